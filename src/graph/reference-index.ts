// The ops of the graph by which tokens choose the positions that they attend to, in plain TypeScript (reference.ts has the others):
// index_scores, top_k and sparse_attention.

import type { Batch } from "./batch.ts";
import type { NodeOf } from "./graph.ts";
import { loadContext } from "./reference-attention.ts";
import { dot, type ReferenceMemory } from "./reference-memory.ts";
import { softmaxInPlace } from "./route.ts";

const f32 = Math.fround;

export function indexScores(
  node: NodeOf<"index_scores">,
  batch: Batch,
  memory: ReferenceMemory,
): void {
  const [q, weights, out] = [node.q, node.weights, node.out].map((v) => memory.value(v)) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const { heads } = node;
  const context = node.out.cols;
  const headDim = node.q.cols / heads;
  const half = headDim / 2;
  eachToken(node.state, batch, memory, (t, position) => {
    for (let p = 0; p <= position; p++) {
      let sum = 0;
      for (let head = 0; head < heads; head++) {
        const at = t * node.q.cols + head * headDim;
        const first = dot(q, at, memory.keys, p * half, half);
        const score = f32(first + dot(q, at + half, memory.values, p * half, half));
        sum += f32(Math.max(score, 0) * weights[t * heads + head]!);
      }
      out[t * context + p] = sum;
    }
    out.fill(0, t * context + position + 1, (t + 1) * context);
  });
}

export function topK(node: NodeOf<"top_k">, batch: Batch, memory: ReferenceMemory): void {
  const x = memory.value(node.x);
  const out = memory.value(node.out);
  const most = node.out.cols;
  for (let t = 0; t < batch.tokenCount; t++) {
    chooseLargest(x, t * node.x.cols, batch.positions[t]! + 1, out, t * most, most);
  }
}

/** The positions of the largest of `count` values from `from` on, as a heap of `most` at `to`; -1 where there are fewer values. */
export function chooseLargest(
  x: Float32Array,
  from: number,
  count: number,
  heap: Float32Array,
  to: number,
  most: number,
): void {
  for (let i = 0; i < most; i++) heap[to + i] = i < count ? i : -1;
  if (count <= most) return;
  for (let parent = (most - 2) >> 1; parent >= 0; parent--) sink(x, from, heap, to, parent, most);
  for (let p = most; p < count; p++) {
    if (!(x[from + p]! > x[from + heap[to]!]!)) continue;
    heap[to] = p;
    sink(x, from, heap, to, 0, most);
  }
}

/**
 * Restores a heap, whose first position has the smallest value, from `at` on: as the C++ library does, since this decides which of
 * equal values stay.
 */
function sink(
  x: Float32Array,
  from: number,
  heap: Float32Array,
  to: number,
  at: number,
  size: number,
): void {
  const moved = heap[to + at]!;
  let hole = at;
  while (hole < (size - 1) >> 1) {
    let child = 2 * hole + 2;
    if (x[from + heap[to + child]!]! > x[from + heap[to + child - 1]!]!) child--;
    heap[to + hole] = heap[to + child]!;
    hole = child;
  }
  if (size % 2 === 0 && hole === (size - 2) >> 1) {
    heap[to + hole] = heap[to + 2 * hole + 1]!;
    hole = 2 * hole + 1;
  }
  for (let parent = (hole - 1) >> 1; hole > at; parent = (hole - 1) >> 1) {
    if (!(x[from + heap[to + parent]!]! > x[from + moved]!)) break;
    heap[to + hole] = heap[to + parent]!;
    hole = parent;
  }
  heap[to + hole] = moved;
}

export function sparseAttend(
  node: NodeOf<"sparse_attention">,
  batch: Batch,
  memory: ReferenceMemory,
): void {
  const [q, chosen, out] = [node.q, node.chosen, node.out].map((v) => memory.value(v)) as [
    Float32Array,
    Float32Array,
    Float32Array,
  ];
  const { heads, kvHeads, headDim, vHeadDim, scale } = node;
  const most = node.chosen.cols;
  const { keys, values, scores } = memory;
  eachToken(node.state, batch, memory, (t, position) => {
    const list = chosen.subarray(t * most, (t + 1) * most);
    const count = Math.min(position + 1, most);
    for (let head = 0; head < heads; head++) {
      const kvHead = Math.floor(head / (heads / kvHeads));
      const at = t * node.q.cols + head * headDim;
      for (let i = 0; i < count; i++) {
        const row = list[i]! * kvHeads + kvHead;
        scores[i] = f32(f32(dot(q, at, keys, row * headDim, headDim)) * f32(scale));
      }
      softmaxInPlace(scores, 0, count);
      for (let c = 0; c < vHeadDim; c++) {
        let sum = 0;
        for (let i = 0; i < count; i++) {
          sum += scores[i]! * values[(list[i]! * kvHeads + kvHead) * vHeadDim + c]!;
        }
        out[t * node.out.cols + head * vHeadDim + c] = sum;
      }
    }
  });
}

/** Calls `run` for each token, with the cache of its sequence loaded. */
function eachToken(
  state: number,
  batch: Batch,
  memory: ReferenceMemory,
  run: (t: number, position: number) => void,
): void {
  for (let t = 0; t < batch.tokenCount; t++) {
    if (t === 0 || batch.sequences[t] !== batch.sequences[t - 1]) {
      loadContext(state, batch, t, 0, batch.lengthAfter(t), memory);
    }
    run(t, batch.positions[t]!);
  }
}
