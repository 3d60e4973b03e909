// The ops of the graph for models with experts, in plain TypeScript (reference.ts has the others): route, matmul_id and combine.

import type { Batch } from "./batch.ts";
import type { NodeOf } from "./graph.ts";
import {
  dot,
  type ReferenceMemory,
  readRow,
  roundActivations,
  rowCount,
  vector,
} from "./reference-memory.ts";
import { routeRow, routeScratchSize } from "./route.ts";

const f32 = Math.fround;

export function route(node: NodeOf<"route">, batch: Batch, memory: ReferenceMemory): void {
  const logits = memory.value(node.logits); // [T, experts]
  const out = memory.value(node.out); // [T, 2 * used]
  const [bias, scales] = [node.bias, node.scales].map((own) => own && vector(memory, own));
  const [experts, cols] = [node.logits.cols, node.out.cols];
  const scratch = new Float32Array(routeScratchSize(experts));
  for (let t = 0; t < rowCount(node.out, batch); t++) {
    routeRow(node.routing, experts, logits, t * experts, bias, out, t * cols, scratch, scales);
  }
}

export function matmulId(node: NodeOf<"matmul_id">, batch: Batch, memory: ReferenceMemory): void {
  const out = memory.value(node.out); // [T, slots * N]
  const routes = memory.value(node.routes); // [T, 2 * slots]
  const weight = memory.weight(node.weight); // [experts, N, K]
  const [, n, k] = node.weight.shape as [number, number, number];
  const slots = node.routes.cols / 2;
  const perToken = node.x.cols / k; // rows of x for each token: 1, or one for each slot
  const rows = rowCount(node.out, batch);
  const x = roundActivations(node, rows * perToken, k, memory);
  const source = weight.floats ?? memory.row;
  for (let pair = 0; pair < rows * slots; pair++) {
    const [t, slot] = [Math.floor(pair / slots), pair % slots];
    const first = routes[t * 2 * slots + slot]! * n; // row of the expert's matrix
    const xAt = (perToken === 1 ? t : pair) * k;
    for (let o = 0; o < n; o++) {
      const at = weight.floats ? (first + o) * k : 0;
      if (!weight.floats) readRow(weight, first + o, k, memory.row, 0);
      out[pair * n + o] = dot(x, xAt, source, at, k);
    }
  }
  if (!node.bias) return;
  const bias = vector(memory, node.bias); // [experts * N]
  for (let pair = 0; pair < rows * slots; pair++) {
    const [t, slot] = [Math.floor(pair / slots), pair % slots];
    const first = routes[t * 2 * slots + slot]! * n;
    for (let o = 0; o < n; o++) out[pair * n + o]! += bias[first + o]!;
  }
}

export function combine(node: NodeOf<"combine">, batch: Batch, memory: ReferenceMemory): void {
  const x = memory.value(node.x); // [T, slots * N]
  const routes = memory.value(node.routes); // [T, 2 * slots]
  const out = memory.value(node.out); // [T, N]
  const [n, slots] = [node.out.cols, node.routes.cols / 2];
  for (let t = 0; t < rowCount(node.out, batch); t++) {
    for (let i = 0; i < n; i++) {
      let sum = 0;
      for (let slot = 0; slot < slots; slot++) {
        const weight = routes[(2 * t + 1) * slots + slot]!;
        sum = f32(sum + f32(x[(t * slots + slot) * n + i]! * weight));
      }
      out[t * n + i] = sum;
    }
  }
}
