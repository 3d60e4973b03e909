// short_conv: a causal convolution of a few taps over each column. A row is a chunk; it reads rows before it, and the state of
// its sequence where there are none. The last row of a sequence writes the state that the next batch begins with.
//
// Plain TypeScript over the shared memory, on all threads: a few multiplications for each value, beside matrices that are
// multiplied for thousands. Sums are made as the reference makes them, bit for bit.

import { NO_SLOT } from "../../../graph/step.ts";
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
  /** Where the state lies in slot 0, and from a slot to the next. */
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
    const addresses = new Float64Array(i.taps);
    return { chunks: () => rowCount(c, "tokens"), run: (row) => convolve(i, c, row, addresses) };
  },
};

/** Of an input that is 0. */
const NOWHERE = -1;

/** `inputs`: scratch, the addresses of the rows that are read, in floats. */
function convolve(i: ShortConv, c: ExecutorContext, row: number, inputs: Float64Array): void {
  const { f32, i32 } = c.views;
  const { cols, taps } = i;
  const segment = c.program.step.segments / 4 + row * SEGMENT.words;
  const first = i32[segment + SEGMENT.first]!;
  const from = i32[segment + SEGMENT.from]!;
  const inputAt = (source: number): number => {
    if (source >= first) return i.x / 4 + source * cols;
    if (from === NO_SLOT) return NOWHERE;
    return (i.state + from * i.slotBytes) / 4 + (source - first + taps - 1) * cols;
  };
  for (let k = 0; k < taps; k++) inputs[k] = inputAt(row - taps + 1 + k);
  const weight = i.weight / 4;
  const out = i.out / 4 + row * cols;
  for (let column = 0; column < cols; column++) {
    let sum = i.bias < 0 ? 0 : f32[i.bias / 4 + column]!;
    for (let k = 0; k < taps; k++) {
      const at = inputs[k]!;
      if (at !== NOWHERE) sum += f32[weight + column * taps + k]! * f32[at + column]!;
    }
    f32[out + column] = sum;
  }
  const to = i32[segment + SEGMENT.to]!;
  if (to === NO_SLOT) return; // another row of the sequence is its last
  for (let k = 0; k < taps - 1; k++) {
    const at = inputs[k + 1]!;
    const target = (i.state + to * i.slotBytes) / 4 + k * cols;
    if (at === NOWHERE) f32.fill(0, target, target + cols);
    else f32.copyWithin(target, at, at + cols);
  }
}
