// The positions of its sequence that a token attends to: [attendedFrom(), attendedTo()). This file alone defines a window. The
// reference calls it; kernels that compute these bounds themselves are tested against the reference.

export interface Attended {
  /** Positions, the token's own included; undefined: all. Where attention is not causal, half of it lies on either side. */
  readonly window: number | undefined;
  readonly causal: boolean;
  /** The window begins at the last multiple of its length: attention within chunks, which is causal. */
  readonly chunked: boolean;
}

/**
 * With a window of 4, position 9 attends to 6, 7, 8 and 9; where attention is not causal, to 7, 8, 9, 10 and 11; within chunks, to
 * 8 and 9.
 */
export function attendedFrom({ window, causal, chunked }: Attended, position: number): number {
  if (window === undefined) return 0;
  if (chunked) return position - (position % window);
  return Math.max(0, causal ? position + 1 - window : position - halfWindow(window));
}

/** `length`: tokens of the sequence after this batch, which only matters where attention is not causal. */
export function attendedTo({ window, causal }: Attended, position: number, length: number): number {
  if (causal) return position + 1;
  return window === undefined ? length : Math.min(length, position + halfWindow(window) + 1);
}

/** The bucket of the distance of a key from the query: `buckets` has those from -n to n. */
export function bucketOf(
  buckets: ArrayLike<number>,
  distance: number,
  from: number = 0,
  count: number = buckets.length,
): number {
  const most = (count - 1) / 2;
  return buckets[from + most + Math.max(-most, Math.min(most, distance))]!;
}

/** On either side, as llama.cpp counts symmetric windows. */
export function halfWindow(window: number): number {
  return Math.floor(window / 2);
}
