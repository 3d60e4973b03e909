// Stores the results of the tiled kernel (dot4.ts), as IR: a vector for each group of rows and each token. The groups of a
// stream are next to each other; tokens are a stride apart, and so are streams.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { type BlockLayout, isSecond, SECOND_SCALE } from "../packed/packed.ts";
import type { Grid } from "./span-sums.ts";
import type { TilePointers } from "./tile-pointers.ts";

/** The address of the first stream's results, and the distances to those of the next token and stream. */
export interface Results {
  readonly out: Reg<"ptr">;
  readonly stride: Reg<"i32"> | undefined;
  readonly apart: Reg<"i32"> | undefined;
  /** Groups of all streams, and of one. */
  readonly groups: number;
  readonly inStream: number;
  readonly tokens: number;
}

/** Calls visit with the address of every vector of results, group by group. */
export function forEachResult(
  k: KernelBuilder,
  { out, stride, apart, groups, inStream, tokens }: Results,
  visit: (g: number, t: number, row: Reg<"ptr">, at: number) => void,
): void {
  // One pointer that moves: an address for each result would need more registers than there are.
  const target = k.variable(out);
  const row = k.variable(out);
  for (let g = 0; g < groups; g++) {
    if (g > 0 && g % inStream === 0) k.update(target, "ptr.add", [target, apart!]);
    k.set(row, target);
    for (let t = 0; t < tokens; t++) {
      visit(g, t, row, k.width * (g % inStream));
      if (stride && t + 1 < tokens) k.update(row, "ptr.add", [row, stride]);
    }
  }
}

/** Stores the sums of all streams, times the factors of their rows where there are any. */
export function storeResults(
  k: KernelBuilder,
  layout: BlockLayout,
  { out, stride, apart, inStream, tokens }: Results,
  sums: Grid,
  tiles: TilePointers,
): void {
  let target = out;
  for (let first = 0; first < sums.length; first += inStream) {
    if (first > 0) {
      target = k.op("ptr.add", [target, apart!]);
      tiles.toNextFactors();
    }
    let row = target;
    for (let t = 0; t < tokens; t++) {
      sums.slice(first, first + inStream).forEach((group, g) => {
        const sum = group[t]!;
        const factor = isSecond(layout, g)
          ? k.op("f32v.const", [], 1 / SECOND_SCALE)
          : tiles.factors && k.op("f32v.load", [tiles.factors], k.width * g);
        k.op("f32v.store", [row, factor ? k.op("f32v.mul", [sum, factor]) : sum], k.width * g);
      });
      if (stride && t + 1 < tokens) row = k.op("ptr.add", [row, stride]);
    }
  }
}
