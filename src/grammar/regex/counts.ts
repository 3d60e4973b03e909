// Repetitions of repetitions as one, where it takes the same texts: (x{1,3}){0,5} is x{0,15}.

interface Counts {
  readonly low: number;
  readonly high: number;
}

/** undefined: some counts in between are not taken, as in (x{2}){0,5}. */
export function joinedCounts(inner: Counts, outer: Counts): Counts | undefined {
  if (outer.high === 0 || inner.high === 0) return { low: 0, high: 0 };
  const low = inner.low * outer.low;
  const high = inner.high * outer.high;
  const isCountable = high === Number.POSITIVE_INFINITY || high <= Number.MAX_SAFE_INTEGER;
  if (!isCountable || low > Number.MAX_SAFE_INTEGER) return undefined;
  if (outer.low === 0 && inner.low > 1) return undefined; // between no turn and the first
  const least = Math.max(outer.low, 1);
  const isWhole = outer.low === outer.high || inner.high * least + 1 >= inner.low * (least + 1);
  return isWhole ? { low, high } : undefined;
}
