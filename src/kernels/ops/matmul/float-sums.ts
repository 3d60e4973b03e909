// Integer sums whose registers are floats at the same time, as IR: how register tiles on arm64 (dot4.ts) convert sums without
// a conversion. On Neoverse-N1 SCVTF of a vector occupies one of the two vector units for two cycles, as four dot products
// would; a subtraction takes half a cycle of either. Loading the start takes no vector unit at all.
//
// A sum starts at the bits of the float 1.5 * 2^23. Around there, floats are 1 apart: adding n to the bits adds n to the
// float, as long as it stays between 2^23 and 2^24, so for |n| < 2^22. The float minus 1.5 * 2^23 is n, exactly: what a
// conversion gives, zero included. No sum of a block is larger than 32 products of bytes, 2^7 * 2^7 * 32 = 2^19.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import type { BlockLayout } from "../packed/packed.ts";

const START = 1.5 * 2 ** 23;
const START_BITS = 0x4b400000;

/** Register tiles of vectors of 16 bytes with half floats in hardware (arm64), where sums start at zero. */
export function startsAsFloats({
  layout: { width, halves, offset },
  order,
}: {
  readonly layout: BlockLayout;
  readonly order: "vector" | "matrix";
}): boolean {
  return order === "matrix" && width === 16 && halves === "hardware" && offset === 0;
}

export function startOfSum(k: KernelBuilder): Reg<"i32v"> {
  return k.op("i32v.const", [], START_BITS);
}

/** The sum as a float. */
export function valueOfSum(k: KernelBuilder, sum: Reg<"i32v">): Reg<"f32v"> {
  return k.op("f32v.sub", [k.op("i32v.as_f32v", [sum]), k.op("f32v.const", [], START)]);
}
