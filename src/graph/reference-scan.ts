// The scans of the graph in plain TypeScript: ops that go over the tokens of a sequence with a matrix for each head as their
// state (reference.ts has the other ops). Results are summed in double precision; the state is float32.

import { type Batch, NO_SLOT } from "./batch.ts";
import type { NodeOf } from "./graph.ts";
import { type ReferenceMemory, readRow, vector } from "./reference-memory.ts";
import { lastOf, type StoredRecurrent, slotsOf } from "./reference-recurrent.ts";

/** Calls step(matrix, row) for each token of each sequence; `matrix` is the state of head `head`, of `size` floats. */
function scan(
  batch: Batch,
  state: StoredRecurrent,
  head: number,
  size: number,
  step: (matrix: Float32Array, row: number) => void,
): void {
  const matrix = new Float32Array(size);
  for (let first = 0; first < batch.tokenCount; ) {
    const last = lastOf(batch, first);
    const { from, to } = slotsOf(batch.sequences[first]!);
    const at = (slot: number) => slot * state.stride + head * size;
    if (from === NO_SLOT) matrix.fill(0);
    else matrix.set(state.floats.subarray(at(from), at(from) + size));
    for (let row = first; row <= last; row++) step(matrix, row);
    if (to !== NO_SLOT) state.floats.set(matrix, at(to));
    first = last + 1;
  }
}

export function ssmScan(node: NodeOf<"ssm_scan">, batch: Batch, memory: ReferenceMemory): void {
  const [x, dt, b, c] = [node.x, node.dt, node.b, node.c].map((value) => memory.value(value));
  const out = memory.value(node.out);
  const heads = node.dt.cols;
  const { states } = node;
  const [headDim, groups] = [node.x.cols / heads, node.b.cols / states];
  const isMatrix = node.a.shape.length === 2;
  const skips = vector(memory, node.skip).slice(0, heads);
  const decays = new Float32Array(isMatrix ? states : heads);
  if (!isMatrix) decays.set(vector(memory, node.a).subarray(0, heads));
  for (let head = 0; head < heads; head++) {
    if (isMatrix) readRow(memory.weight(node.a), head, states, decays, 0);
    const group = Math.floor(head / (heads / groups));
    const decay = (n: number) => (isMatrix ? decays[n]! : decays[head]!);
    scan(batch, memory.recurrent[node.state]!, head, states * headDim, (matrix, row) => {
      const step = dt![row * heads + head]!;
      for (let i = 0; i < headDim; i++) {
        const input = x![row * node.x.cols + head * headDim + i]!;
        let sum = 0;
        for (let n = 0; n < states; n++) {
          const [at, shared] = [n * headDim + i, (row * groups + group) * states + n];
          matrix[at] = matrix[at]! * Math.exp(step * decay(n)) + step * input * b![shared]!;
          sum += matrix[at]! * c![shared]!;
        }
        out[row * node.x.cols + head * headDim + i] = sum + skips[head]! * input;
      }
    });
  }
}

export function deltaNet(node: NodeOf<"delta_net">, batch: Batch, memory: ReferenceMemory): void {
  const [q, k, v] = [node.q, node.k, node.v].map((value) => memory.value(value));
  const [dt, beta, out] = [node.dt, node.beta, node.out].map((value) => memory.value(value));
  const heads = node.beta.cols;
  const { keyHeads, tiled } = node;
  const [keyDim, vDim, perHead] = [
    node.k.cols / keyHeads,
    node.v.cols / heads,
    node.dt.cols / heads,
  ];
  const a = vector(memory, node.a).slice(0, heads);
  for (let head = 0; head < heads; head++) {
    const keyHead = tiled ? head % keyHeads : Math.floor(head / (heads / keyHeads));
    scan(batch, memory.recurrent[node.state]!, head, keyDim * vDim, (matrix, row) => {
      const [keys, values] = [(row * keyHeads + keyHead) * keyDim, (row * heads + head) * vDim];
      for (let j = 0; j < keyDim; j++) {
        const step = dt![(row * heads + head) * perHead + (perHead === 1 ? 0 : j)]!;
        const decay = Math.exp(a[head]! * step);
        for (let i = 0; i < vDim; i++) matrix[j * vDim + i]! *= decay;
      }
      for (let i = 0; i < vDim; i++) {
        let known = 0;
        for (let j = 0; j < keyDim; j++) known += matrix[j * vDim + i]! * k![keys + j]!;
        const delta = (v![values + i]! - known) * beta![row * heads + head]!;
        let sum = 0;
        for (let j = 0; j < keyDim; j++) {
          matrix[j * vDim + i]! += k![keys + j]! * delta;
          sum += matrix[j * vDim + i]! * q![keys + j]!;
        }
        out![values + i] = sum;
      }
    });
  }
}

export function wkv(node: NodeOf<"wkv">, batch: Batch, memory: ReferenceMemory): void {
  const [r, w, k, v] = [node.r, node.w, node.k, node.v].map((value) => memory.value(value));
  const [a, b] = [node.a, node.b].map((value) => value && memory.value(value));
  const out = memory.value(node.out);
  const { heads } = node;
  const size = node.v.cols / heads;
  const bonus = node.bonus && vector(memory, node.bonus);
  for (let head = 0; head < heads; head++) {
    scan(batch, memory.recurrent[node.state]!, head, size * size, (matrix, row) => {
      const at = row * node.v.cols + head * size;
      for (let i = 0; i < size; i++) {
        let removed = 0;
        if (a) for (let j = 0; j < size; j++) removed += a[at + j]! * matrix[j * size + i]!;
        let sum = 0;
        for (let j = 0; j < size; j++) {
          const [old, added] = [matrix[j * size + i]!, k![at + j]! * v![at + i]!];
          const kept = old * w![at + j]! + added + (b ? removed * b[at + j]! : 0);
          sum += r![at + j]! * (bonus ? old + bonus[head * size + j]! * added : kept);
          matrix[j * size + i] = kept;
        }
        out[at + i] = sum;
      }
    });
  }
}
