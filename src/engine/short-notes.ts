// A backend's notes (Backend.explain) for ModelInfo: a note that several matmuls share is given once, so that the notes of a model
// do not grow with its layers. Nothing is left out: names and layers of each are in front.
//
//   blk.0.attn_q: q8_0, A    ->   blk.*.attn_q, blk.*.attn_k: q8_0, A     "*": all layers that have one
//   blk.0.attn_k: q8_0, A
//   blk.1.attn_q: q8_0, A         Lines that are indented belong to the one above them: the heads of two with the same lines
//   blk.1.attn_k: q8_0, A         below them are joined in the same way.

/** A line and the indented lines below it. */
interface Note {
  readonly head: string;
  readonly body: readonly string[];
}

/** The part of a note that may be joined: a matmul's name, between parts that must be equal. */
const NAMED = /^(\w+: )?([\w.]+)(: .+)$/u;
const LAYER = /^blk\.(\d+)\.(.+)$/u;

export function shortNotes(lines: readonly string[]): string[] {
  const groups = new Map<string, { before: string; names: string[]; after: string; note: Note }>();
  for (const note of notesOf(lines)) {
    const match = note.body.length === 0 ? NAMED.exec(note.head) : shaped(note.head);
    const [, before = "", name = note.head, rest = ""] = match ?? [];
    const [, layer] = LAYER.exec(name) ?? [];
    const after = layer === undefined ? rest : rest.replaceAll(`blk.${layer}.`, "blk.*.");
    const key = JSON.stringify([before, match ? "" : name, after, note.body]);
    const group = groups.get(key);
    if (group) group.names.push(name);
    else groups.set(key, { before, names: [name], after, note });
  }
  const layers = layersOf([...groups.values()].flatMap(({ names }) => names));
  return [...groups.values()].flatMap(({ before, names, after, note }) => [
    `${before}${joined(names, layers)}${after}`,
    ...note.body,
  ]);
}

/** The same of "q8_0 64 x 64, 2 threads:", where the shape may differ. */
function shaped(head: string): readonly string[] | undefined {
  const at = head.search(/, \d+ threads?/u);
  if (at < 0) return undefined;
  const [before = ""] = /^\w+: /u.exec(head) ?? [];
  return [head, before, head.slice(before.length, at), head.slice(at)];
}

function notesOf(lines: readonly string[]): Note[] {
  const notes: { head: string; body: string[] }[] = [];
  for (const line of lines) {
    const last = notes.at(-1);
    if (last && /^(?:\w+: )? /u.test(line)) last.body.push(line);
    else notes.push({ head: line, body: [] });
  }
  return notes;
}

/** The layers that have a matmul of each name. */
function layersOf(names: readonly string[]): Map<string, Set<number>> {
  const layers = new Map<string, Set<number>>();
  for (const name of names) {
    const [, layer, rest] = LAYER.exec(name) ?? [];
    if (rest === undefined) continue;
    layers.set(rest, (layers.get(rest) ?? new Set()).add(Number(layer)));
  }
  return layers;
}

/** Names, with several layers' names joined to one: "blk.*.attn_q, blk.0-3.ffn_down, logits". */
function joined(names: readonly string[], all: ReadonlyMap<string, ReadonlySet<number>>): string {
  const own = layersOf(names);
  const shown = names.map((name) => {
    const [, , rest] = LAYER.exec(name) ?? [];
    if (rest === undefined) return name;
    const some = own.get(rest)!;
    const isAll = some.size > 1 && some.size === all.get(rest)!.size;
    return `blk.${isAll ? "*" : ranges([...some])}.${rest}`;
  });
  return [...new Set(shown)].join(", ");
}

/** [0, 1, 2, 5] as "0-2,5". */
function ranges(numbers: readonly number[]): string {
  const ascending = [...numbers].sort((a, b) => a - b);
  const starts = ascending.filter((number) => !ascending.includes(number - 1));
  const ends = ascending.filter((number) => !ascending.includes(number + 1));
  return starts.map((from, at) => (from === ends[at] ? from : `${from}-${ends[at]}`)).join(",");
}
