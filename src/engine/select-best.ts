// Partial selection: the k best of many candidates, in order, without sorting the rest.
//
// A heap of k ids with the worst on top takes each candidate in turn, so a vocabulary of 150,000
// costs one pass plus a few hundred heap steps for k = 40. With k = count it is a heap sort.
// "Better" is: the larger key; of equal keys, the lower id. Keys must not be NaN.

export type Keys = Float32Array | Float64Array;

/**
 * Writes the `k` best of ids[0..count) to out[0..k), best first, and returns how many that are:
 * min(k, count). keys is indexed by id; ids is left alone.
 */
export function selectBest(
  keys: Keys,
  ids: Int32Array,
  count: number,
  k: number,
  out: Int32Array,
): number {
  const size = Math.min(k, count);
  if (size === 0) return 0;
  for (let i = 0; i < size; i++) out[i] = ids[i]!;
  for (let i = (size >> 1) - 1; i >= 0; i--) siftDown(keys, out, i, size);

  let worstKey = keys[out[0]!]!;
  for (let i = size; i < count; i++) {
    const id = ids[i]!;
    const key = keys[id]!;
    if (key < worstKey || (key === worstKey && id > out[0]!)) continue;
    out[0] = id;
    siftDown(keys, out, 0, size);
    worstKey = keys[out[0]!]!;
  }

  // The worst of what is left goes to the end, until all are in place.
  for (let end = size - 1; end > 0; end--) {
    const worst = out[0]!;
    out[0] = out[end]!;
    out[end] = worst;
    siftDown(keys, out, 0, end);
  }
  return size;
}

/** Restores the heap (a parent is worse than its children) below `from`. */
function siftDown(keys: Keys, heap: Int32Array, from: number, size: number): void {
  const id = heap[from]!;
  let hole = from;
  for (;;) {
    let child = 2 * hole + 1;
    if (child >= size) break;
    if (child + 1 < size && isWorse(keys, heap[child + 1]!, heap[child]!)) child++;
    if (!isWorse(keys, heap[child]!, id)) break;
    heap[hole] = heap[child]!;
    hole = child;
  }
  heap[hole] = id;
}

function isWorse(keys: Keys, a: number, b: number): boolean {
  const keyA = keys[a]!;
  const keyB = keys[b]!;
  return keyA < keyB || (keyA === keyB && a > b);
}
