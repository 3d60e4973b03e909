// Walks the rows of a paged KV cache in the order of their positions, several rows at a time.
//
// `table` is an array of i32 block numbers, one for every 32 positions; block b starts at cache + b * 32 * rowBytes.
// There are `blocks` whole blocks and `last` (0 to 31) rows of one more. The offset of a block is an i32: with 32-bit
// pointers it wraps around as it should, with 64-bit pointers a layer's keys (or values) must be less than 2 GiB.

import type { KernelBuilder } from "../ir/builder.ts";
import type { Reg } from "../ir/kernel.ts";
import { remainder } from "./loops.ts";

/** KV_BLOCK_TOKENS of graph/step.ts, which kernels do not know. */
const blockRows = 32;

export interface PagedRows {
  /** Of the first block, the head's offset included. */
  readonly cache: Reg<"ptr">;
  readonly table: Reg<"ptr">;
  readonly blocks: Reg<"i32">;
  readonly last: Reg<"i32">;
  readonly rowBytes: Reg<"i32">;
}

/** Calls visit(rows, pointer to the first) for `together` rows at a time, and for single rows at the end. */
export function walkRows(
  k: KernelBuilder,
  paged: PagedRows,
  together: number,
  visit: (rows: number, first: Reg<"ptr">) => void,
): void {
  const { cache, blocks, last, rowBytes } = paged;
  const table = k.variable(paged.table);
  const blockBytes = k.op("i32.mul", [rowBytes, k.i32(blockRows)]);
  const bytesTogether = k.op("i32.mul", [rowBytes, k.i32(together)]);
  const roundsOfBlock = k.i32(blockRows / together);
  const roundsOfLast = k.op("i32.shr_u", [last], Math.log2(together));
  const singles = remainder(k, last, roundsOfLast, together);
  const row = k.variable(cache);
  const enterBlock = (): void => {
    const offset = k.op("i32.mul", [k.op("i32.load", [table]), blockBytes]);
    k.update(row, "ptr.add", [cache, offset]);
    k.advance(table, 4);
  };
  const visitTogether = (): void => {
    visit(together, row);
    k.update(row, "ptr.add", [row, bytesTogether]);
  };
  k.loop(blocks, () => {
    enterBlock();
    k.loop(roundsOfBlock, visitTogether);
  });
  // Once or not at all: without rows in it, there is no last block to look up.
  k.loop(
    k.op("i32.shr_u", [k.op("i32.add", [last, k.i32(blockRows - 1)])], Math.log2(blockRows)),
    () => {
      enterBlock();
      k.loop(roundsOfLast, visitTogether);
      if (together === 1) return;
      k.loop(singles, () => {
        visit(1, row);
        k.update(row, "ptr.add", [row, rowBytes]);
      });
    },
  );
}
