// short_conv: a causal convolution of a few taps over each column. A row reads the rows before it, and the state of its sequence
// instead of rows before the batch. The last row of a sequence writes the state for the next batch.
//
// Taps are summed in their order, those from the state first, so results do not depend on where a batch begins.

import { NO_SLOT } from "../../../graph/batch.ts";
import { perRow } from "../executor.ts";
import { SEGMENT } from "../program.ts";
import { area, type InstructionDef, ifWhole, type LowerNode } from "./op.ts";

export interface ShortConv {
  readonly op: "short_conv";
  readonly x: number;
  readonly out: number;
  /** f32 [taps, cols], and [cols]; -1: no bias. */
  readonly weight: number;
  readonly bias: number;
  readonly cols: number;
  readonly taps: number;
  /** The address of the state in slot 0, and the bytes from a slot to the next. */
  readonly state: number;
  readonly slotBytes: number;
}

export const lowerShortConv: LowerNode<"short_conv"> = (c, n) =>
  ifWhole(
    n.x.cols,
    (): ShortConv => ({
      op: "short_conv",
      x: c.address(n.x),
      out: c.address(n.out),
      weight: c.taps(n.weight),
      bias: n.bias ? c.vector(n.bias) : -1,
      cols: n.x.cols,
      taps: n.weight.shape[1]!,
      ...c.recurrent(n.state),
    }),
  );

export const shortConv: InstructionDef<ShortConv> = {
  access: {
    stage: "row by row",
    // A row reads others of x: no instruction of the same stage may write it.
    of: ({ x, out, cols }) => ({
      rows: "tokens",
      reads: [area(x, 0)],
      writes: [area(out, cols * 4)],
    }),
  },
  kernels: () => ["short_conv", "short_conv_on", "copy"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { short_conv: plain, short_conv_on: on, copy } = c.kernels;
    const { i32, u8 } = c.views;
    const { cols, taps, weight, bias } = i;
    const rowBytes = cols * 4;
    /** Adds `count` taps from number `tap` on, for inputs from address `from` on. */
    const add = (row: number, start: number, tap: number, count: number, from: number): void => {
      const [factors, target] = [weight + tap * rowBytes, i.out + row * rowBytes];
      if (start < 0) plain!(from, factors, target, cols, count, rowBytes);
      else on!(from, factors, target, cols, count, rowBytes, start);
    };
    return perRow(c, "tokens", (row) => {
      const segment = c.program.batch.segments / 4 + row * SEGMENT.words;
      const before = row - i32[segment + SEGMENT.first]!;
      const from = i32[segment + SEGMENT.from]!;
      const isNew = from === NO_SLOT;
      /** Taps of rows before the batch; those of a new sequence are 0. */
      const earlier = Math.max(0, taps - 1 - before);
      const kept = i.state + from * i.slotBytes;
      const x = i.x + (row - taps + 1) * rowBytes;
      const hasEarlier = earlier > 0 && !isNew;
      if (hasEarlier) add(row, bias, 0, earlier, kept + before * rowBytes);
      const start = hasEarlier ? i.out + row * rowBytes : bias;
      add(row, start, earlier, taps - earlier, x + earlier * rowBytes);

      const to = i32[segment + SEGMENT.to]!;
      if (to === NO_SLOT) return; // another row of the sequence is its last
      const target = i.state + to * i.slotBytes;
      for (let k = 0; k < taps - 1; k++) {
        const at = target + k * rowBytes;
        if (k + 1 >= earlier) copy!(x + (k + 1) * rowBytes, at, cols);
        else if (isNew) u8.fill(0, at, at + rowBytes);
        else copy!(kept + (before + k + 1) * rowBytes, at, cols);
      }
    });
  },
};
