// Partial selection: the k best of many candidates, in order, without sorting the rest.
//
// A heap of k ids with the worst on top takes one candidate after the other, so a vocabulary of 150,000 costs one pass plus a few
// hundred heap steps for k = 40. With k = count it is a heap sort. Better means: the larger key; of equal keys, the lower id.
//
// The functions over all keys compare eight at a time and look closer only if one may be better: 0.17 ms for 150,000. If a backend
// has the logits, it looks at the maxima of blocks instead (backends/cpu/best-logits.ts).

export type Keys = Float32Array | Float64Array;

/**
 * Writes the `k` best of ids[0..count) to out[0..k), best first, and returns their number: min(k, count). `keys` is indexed by id
 * and has no NaN; `ids` is not changed.
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
  makeHeap(keys, out, size);

  let worstKey = keys[out[0]!]!;
  for (let i = size; i < count; i++) {
    const id = ids[i]!;
    const key = keys[id]!;
    if (key < worstKey || (key === worstKey && id > out[0]!)) continue;
    out[0] = id;
    siftDown(keys, out, 0, size);
    worstKey = keys[out[0]!]!;
  }
  sortHeap(keys, out, size);
  return size;
}

/** The same over all ids from 0 to keys.length - 1. A NaN key ends the search: its id is then the only one in `out`. */
export function selectBestOfAll(keys: Float32Array, k: number, out: Int32Array): number {
  const size = Math.min(k, keys.length);
  if (size === 0) return 0;
  for (let id = 0; id < size; id++) {
    if (Number.isNaN(keys[id])) return alone(id, out);
    out[id] = id;
  }
  makeHeap(keys, out, size);
  let worstKey = keys[out[0]!]!;
  for (let id = nextAbove(keys, size, worstKey); id < keys.length; ) {
    if (Number.isNaN(keys[id])) return alone(id, out);
    out[0] = id;
    siftDown(keys, out, 0, size);
    worstKey = keys[out[0]!]!;
    id = nextAbove(keys, id + 1, worstKey);
  }
  sortHeap(keys, out, size);
  return size;
}

/** The id of the largest key (the lowest id on ties), or of the first NaN. `keys` must not be empty. */
export function bestOfAll(keys: Float32Array): number {
  let best = 0;
  for (let id = 0; id < keys.length && !Number.isNaN(keys[best]); ) {
    best = id;
    id = nextAbove(keys, id + 1, keys[best]!);
  }
  return best;
}

/** The same of ids[0..count), in any order: of several NaN, the lowest id. There must be at least one. */
export function bestOf(keys: Float32Array, ids: Int32Array, count: number): number {
  let best = ids[0]!;
  for (let i = 1; i < count; i++) {
    const id = ids[i]!;
    const key = keys[id]!;
    const bestKey = keys[best]!;
    const isSame = key === bestKey || (Number.isNaN(key) && Number.isNaN(bestKey));
    if (isSame ? id < best : key > bestKey || Number.isNaN(key)) best = id;
  }
  return best;
}

/** The first id from `from` on with a key above `limit` or NaN; keys.length if there is none. */
function nextAbove(keys: Float32Array, from: number, limit: number): number {
  let id = from;
  for (; id + 8 <= keys.length; id += 8) {
    const areBelow =
      keys[id]! <= limit &&
      keys[id + 1]! <= limit &&
      keys[id + 2]! <= limit &&
      keys[id + 3]! <= limit &&
      keys[id + 4]! <= limit &&
      keys[id + 5]! <= limit &&
      keys[id + 6]! <= limit &&
      keys[id + 7]! <= limit;
    if (!areBelow) break;
  }
  while (id < keys.length && keys[id]! <= limit) id++;
  return id;
}

function alone(id: number, out: Int32Array): number {
  out[0] = id;
  return 1;
}

/**
 * Sorts ids[0..count) by key, best first; `scratch` has room for as many. For large counts, where a heap sort is
 * slower.
 */
export function sortBest(
  keys: Float32Array,
  ids: Int32Array,
  count: number,
  scratch: Float64Array,
): void {
  // One number per id, in the order of the result: 32 bits of the key (its bits mapped to an integer that grows from
  // best to worst), then 21 bits of the id. JavaScript's own sort of numbers does the rest.
  for (let i = 0; i < count; i++) {
    asFloat[0] = keys[ids[i]!]! + 0; // no -0
    const bits = asBits[0]!;
    const descending = bits < 0 ? bits >>> 0 : 0x7fffffff - bits;
    scratch[i] = descending * ID_RANGE + ids[i]!;
  }
  const sorted = scratch.subarray(0, count).sort();
  for (let i = 0; i < count; i++) ids[i] = sorted[i]! % ID_RANGE;
}

/** Ids are below this: 2^32 times this is still exact in a float64. */
const ID_RANGE = 2 ** 21;
const asFloat = new Float32Array(1);
const asBits = new Int32Array(asFloat.buffer);

function makeHeap(keys: Keys, heap: Int32Array, size: number): void {
  for (let i = (size >> 1) - 1; i >= 0; i--) siftDown(keys, heap, i, size);
}

/** Turns a heap into a list, best first: the worst of the rest goes to the end, until all are sorted. */
function sortHeap(keys: Keys, heap: Int32Array, size: number): void {
  for (let end = size - 1; end > 0; end--) {
    const worst = heap[0]!;
    heap[0] = heap[end]!;
    heap[end] = worst;
    siftDown(keys, heap, 0, end);
  }
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
