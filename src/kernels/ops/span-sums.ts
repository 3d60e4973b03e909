// The float sums of a tiled kernel: a vector for each group of rows and each token, and those of one span under a header.
// What is added to them is the kernel's business (matmul-blocks.ts).

import type { KernelBuilder } from "../ir/builder.ts";
import type { Reg } from "../ir/kernel.ts";

/** [groups][tokens] */
export type Grid = Reg<"f32v">[][];

/** The sums of one span, before its header and the activations' scale are multiplied in; and where its activations are. */
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

  /** Starts again, with the span whose activations are at x. */
  begin(x: Reg<"ptr">): void {
    const zero = this.#k.op("f32v.const", [], 0);
    this.#k.set(this.x, x);
    for (const sum of this.sums.flat()) this.#k.set(sum, zero);
  }
}

export function grid<T>(rows: number, cols: number, make: (row: number, col: number) => T): T[][] {
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: cols }, (_, col) => make(row, col)),
  );
}
