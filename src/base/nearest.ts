// "Did you mean ...": the known names closest to the one typed. Knows nothing about models or flags.

/** Up to `limit` of `names` that `typed` may have meant, best first; empty when none is close. */
export function nearest(typed: string, names: readonly string[], limit = 3): string[] {
  // A name that is this much longer than all others is close to none: a file's may be as long as the file.
  const longest = names.reduce((most, { length }) => Math.max(most, length), 0);
  if (typed.length - longest > Math.max(1, typed.length * 0.4)) return [];
  const wanted = typed.toLowerCase();
  return names
    .map((name) => ({ name, distance: nameDistance(wanted, name.toLowerCase()) }))
    .filter(({ distance }) => distance <= Math.max(1, wanted.length * 0.4))
    .sort((a, b) => a.distance - b.distance)
    .slice(0, limit)
    .map(({ name }) => name);
}

/** Advice after an unknown name: the names it may have meant, or else all known names. */
export function suggestion(typed: string, names: readonly string[]): string {
  const near = nearest(typed, names);
  return near.length > 0 ? `Did you mean ${near.join(" or ")}?` : `Known: ${names.join(", ")}.`;
}

function nameDistance(typed: string, name: string): number {
  const whole = editDistance(typed, name);
  // A part of a name ("qwen3") of any length counts as one mistake.
  if (typed.length >= 3 && name.includes(typed)) return Math.min(whole, 1);
  const words = name.split("-");
  const beginnings = words.slice(1).map((_, index) => words.slice(0, index + 1).join("-"));
  return Math.min(whole, ...beginnings.map((part) => editDistance(typed, part) + 1));
}

/** Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`. */
export function editDistance(a: string, b: string): number {
  // rows[i][j]: distance of a's first i characters to b's first j
  const rows = Array.from({ length: a.length + 1 }, (_, i) => {
    const row = new Array<number>(b.length + 1).fill(0);
    row[0] = i;
    return row;
  });
  for (let j = 0; j <= b.length; j++) rows[0]![j] = j;
  for (let i = 1; i <= a.length; i++) {
    for (let j = 1; j <= b.length; j++) {
      const replace = rows[i - 1]![j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      let best = Math.min(replace, rows[i - 1]![j]! + 1, rows[i]![j - 1]! + 1);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) best = Math.min(best, rows[i - 2]![j - 2]! + 1);
      rows[i]![j] = best;
    }
  }
  return rows[a.length]![b.length]!;
}
