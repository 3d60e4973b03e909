// Walks a paged KV cache in the order of the positions: block by block, and in a block several rows at a time.
//
// `table` is an array of i32 block numbers, one for every 32 positions; block b starts at cache + b * 32 * rowBytes.
// There are `blocks` whole blocks and `last` (0 to 31) rows of one more. The offset of a block is as wide as an address:
// a layer's keys (or values) may be as large as the memory.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { remainder } from "../loops.ts";

/** KV_BLOCK_TOKENS of graph/batch.ts, which kernels must not import. */
export const blockRows = 32;

export interface PagedRows {
  /** The first row of block 0, plus the head's offset. */
  readonly cache: Reg<"ptr">;
  readonly table: Reg<"ptr">;
  readonly blocks: Reg<"i32">;
  readonly last: Reg<"i32">;
  readonly rowBytes: Reg<"i32">;
}

/** `count` rows from `first` on. */
export interface RowRange {
  readonly first: Reg<"ptr">;
  readonly count: Reg<"i32">;
  readonly rowBytes: Reg<"i32">;
}

/** Calls visit for the rows of each block. */
export function walkBlocks(
  k: KernelBuilder,
  paged: PagedRows,
  visit: (range: RowRange) => void,
): void {
  const { cache, blocks, last, rowBytes } = paged;
  const table = k.variable(paged.table);
  const blockBytes = k.op("i32.mul", [rowBytes, k.i32(blockRows)]);
  const left = k.variable(k.op("i32.add", [k.op("i32.mul", [blocks, k.i32(blockRows)]), last]));
  const rounded = k.op("i32.add", [left, k.i32(blockRows - 1)]);
  k.loop(k.op("i32.shr_u", [rounded], Math.log2(blockRows)), () => {
    const first = k.op("ptr.add_product", [cache, k.op("i32.load", [table]), blockBytes]);
    visit({ first, count: atMostABlock(k, left), rowBytes });
    k.advance(table, 4);
    k.update(left, "i32.sub", [left, k.i32(blockRows)]);
  });
}

/** min(n, 32), by vectors, since scalars have no such op: the sum of equal lanes divided by their number. */
function atMostABlock(k: KernelBuilder, n: Reg<"i32">): Reg<"i32"> {
  const limit = k.op("i32v.const", [], blockRows);
  const least = k.op("i32v.min_s", [k.op("i32v.splat", [n]), limit]);
  return k.op("i32.shr_u", [k.op("i32v.sum", [least])], Math.log2(k.lanes));
}

/** Calls visit with pointers to `together` rows (a power of 2) at a time, and to single rows at the end. */
export function walkRows(
  k: KernelBuilder,
  { first, count, rowBytes }: RowRange,
  together: number,
  visit: (rows: readonly Reg<"ptr">[]) => void,
): void {
  const row = k.variable(first);
  let left = count;
  for (const rows of together > 1 ? [together, 1] : [1]) {
    const rounds = k.op("i32.shr_u", [left], Math.log2(rows));
    const bytes = k.op("i32.mul", [rowBytes, k.i32(rows)]);
    k.loop(rounds, () => {
      visit(strided(k, row, rows, rowBytes));
      k.update(row, "ptr.add", [row, bytes]);
    });
    left = remainder(k, left, rounds, rows);
  }
}

/**
 * Calls visit with pointers to `together` rows (a power of 2 that divides a block) at a time. The last ones may lie
 * beyond the count, but are still in the block.
 */
export function walkRowGroups(
  k: KernelBuilder,
  { first, count, rowBytes }: RowRange,
  together: number,
  visit: (rows: readonly Reg<"ptr">[]) => void,
): void {
  const row = k.variable(first);
  const bytes = k.op("i32.mul", [rowBytes, k.i32(together)]);
  const up = k.op("i32.add", [count, k.i32(together - 1)]);
  k.loop(k.op("i32.shr_u", [up], Math.log2(together)), () => {
    visit(strided(k, row, together, rowBytes));
    k.update(row, "ptr.add", [row, bytes]);
  });
}

/** first, first + stride, first + 2 stride, ... */
export function strided(
  k: KernelBuilder,
  first: Reg<"ptr">,
  count: number,
  stride: Reg<"i32"> | undefined,
): Reg<"ptr">[] {
  const pointers = [first];
  while (stride && pointers.length < count) {
    pointers.push(k.op("ptr.add", [pointers.at(-1)!, stride]));
  }
  return pointers;
}
