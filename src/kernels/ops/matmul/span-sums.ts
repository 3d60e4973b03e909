// The float sums of a tiled kernel: a vector for each group of rows and each token; and those of one span with a header,
// to which the header is applied at the end. The kernels (dot4.ts, i8mm.ts, tile-scaling.ts) add to them.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import type { BlockLayout } from "../packed/packed.ts";
import type { Place } from "./tile-pointers.ts";

/** [groups][tokens] */
export type Grid = Reg<"f32v">[][];

/** The sums of one span, before its header and the activations' scale are applied; and where its activations are. */
export class SpanSums {
  readonly sums: Grid;
  readonly x: Reg<"ptr">;
  readonly #k: KernelBuilder;

  constructor(k: KernelBuilder, groups: number, tokens: number, x: Reg<"ptr">) {
    const zero = k.op("f32v.const", [], 0);
    this.#k = k;
    this.sums = grid(groups, tokens, () => k.variable(zero));
    this.x = k.variable(x, "x_span");
  }

  /** Sets the sums to zero for the span whose activations are at x. */
  begin(x: Reg<"ptr">): void {
    const zero = this.#k.op("f32v.const", [], 0);
    this.#k.set(this.x, x);
    for (const sum of this.sums.flat()) this.#k.set(sum, zero);
  }
}

/** The factors of a span's small scales and mins. */
export interface Header {
  readonly scale: Reg<"f32v">;
  readonly min: Reg<"f32v"> | undefined;
}

export function loadHeader(k: KernelBuilder, { hasMin }: BlockLayout, [from, at]: Place): Header {
  const scale = k.op("f32v.load", [from], at);
  return { scale, min: hasMin ? k.op("f32v.load", [from], at + k.width) : undefined };
}

/**
 * Adds a span's sum to a sum, times the header and the activations' scale, and its mins, which are computed only where it
 * has any.
 */
export function addSpanSum(
  k: KernelBuilder,
  sum: Reg<"f32v">,
  inSpan: Reg<"f32v">,
  { scale, min }: Header,
  xScale: Reg<"f32v">,
  mins: () => Reg<"f32v">,
): void {
  k.update(sum, "f32v.fma", [inSpan, k.op("f32v.mul", [scale, xScale]), sum]);
  if (!min) return;
  k.update(sum, "f32v.fma", [mins(), k.op("f32v.mul", [min, xScale]), sum]);
}

export function grid<T>(rows: number, cols: number, make: (row: number, col: number) => T): T[][] {
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: cols }, (_, col) => make(row, col)),
  );
}
