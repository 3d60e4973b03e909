// short_conv: a causal convolution of a few taps over each column. A chunk is a row; it reads the rows before it, and the state
// of its sequence in place of rows before the batch. The last row of a sequence writes the state for the next batch.
//
// Plain TypeScript over the shared memory, on all threads: a value takes a few multiplications, where a matmul takes
// thousands. Sums have the same bits as the reference.

import { NO_SLOT } from "../../../graph/batch.ts";
import { type ExecutorContext, rowCount } from "../executor.ts";
import { SEGMENT } from "../program.ts";
import type { InstructionDef, LowerNode } from "./op.ts";

export interface ShortConv {
  readonly op: "short_conv";
  readonly x: number;
  readonly out: number;
  /** f32 [cols, taps], and [cols]; -1: no bias. */
  readonly weight: number;
  readonly bias: number;
  readonly cols: number;
  readonly taps: number;
  /** The address of the state in slot 0, and the bytes from a slot to the next. */
  readonly state: number;
  readonly slotBytes: number;
}

export const lowerShortConv: LowerNode<"short_conv"> = (c, n): ShortConv | string => {
  const { dtype, shape } = n.weight;
  if (!dtype.asFloat32) return `${dtype.name} weights`;
  return {
    op: "short_conv",
    x: c.address(n.x),
    out: c.address(n.out),
    weight: c.rowsOf(n.weight).at,
    bias: n.bias ? c.vector(n.bias) : -1,
    cols: n.x.cols,
    taps: shape[1]!,
    ...c.recurrent(n.state),
  };
};

export const shortConv: InstructionDef<ShortConv> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",
  execute: (i, c) => {
    const memory = memoryOf(i, c);
    return { chunks: () => rowCount(c, "tokens"), run: (row) => convolve(i, c, memory, row) };
  },
};

/** The memory that a thread reads and writes, as subarrays: small indices are faster. */
interface ConvMemory {
  readonly x: Float32Array;
  readonly out: Float32Array;
  readonly weight: Float32Array;
  readonly bias: Float32Array | undefined;
  /** Slot 0 and all after it. */
  readonly state: Float32Array;
  /** [cols] */
  readonly sums: Float64Array;
}

function memoryOf(i: ShortConv, { views: { f32 } }: ExecutorContext): ConvMemory {
  const from = (address: number) => f32.subarray(address / 4);
  return {
    x: from(i.x),
    out: from(i.out),
    weight: from(i.weight),
    bias: i.bias < 0 ? undefined : from(i.bias),
    state: from(i.state),
    sums: new Float64Array(i.cols),
  };
}

function convolve(i: ShortConv, c: ExecutorContext, memory: ConvMemory, row: number): void {
  const { f32, i32 } = c.views;
  const { cols, taps } = i;
  const { x, out, weight, bias, state, sums } = memory;
  const segment = c.program.batch.segments / 4 + row * SEGMENT.words;
  const first = i32[segment + SEGMENT.first]!;
  const from = i32[segment + SEGMENT.from]!;
  const slotFloats = i.slotBytes / 4;
  /** A row r before the sequence's first is in the state at kept + r * cols. */
  const kept = from * slotFloats + (taps - 1 - first) * cols;
  for (let column = 0; column < cols; column++) sums[column] = bias ? bias[column]! : 0;
  for (let k = 0; k < taps; k++) {
    const source = row - taps + 1 + k;
    if (source >= first) addTap(sums, weight, k, taps, x, source * cols);
    else if (from !== NO_SLOT) addTap(sums, weight, k, taps, state, kept + source * cols);
  }
  for (let column = 0, at = row * cols; column < cols; column++, at++) out[at] = sums[column]!;
  const to = i32[segment + SEGMENT.to]!;
  if (to === NO_SLOT) return; // another row of the sequence is its last
  for (let k = 0; k < taps - 1; k++) {
    const source = row - taps + 2 + k;
    const target = i.state / 4 + to * slotFloats + k * cols;
    if (source < first && from === NO_SLOT) f32.fill(0, target, target + cols);
    else {
      const at = source >= first ? i.x / 4 + source * cols : i.state / 4 + kept + source * cols;
      f32.copyWithin(target, at, at + cols);
    }
  }
}

/** Adds tap `k` of every column, for inputs at `at`. */
function addTap(
  sums: Float64Array,
  weight: Float32Array,
  k: number,
  taps: number,
  inputs: Float32Array,
  at: number,
): void {
  for (let column = 0, w = k; column < sums.length; column++, w += taps) {
    sums[column]! += weight[w]! * inputs[at + column]!;
  }
}
