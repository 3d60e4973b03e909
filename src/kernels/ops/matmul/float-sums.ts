// Integer sums whose registers are floats at the same time, as IR: how kernels on arm64 (dot4.ts) convert sums without a
// conversion. On Neoverse-N1 SCVTF of a vector occupies one of the two vector units for two cycles, as four dot products
// would; a subtraction takes half a cycle of either. Loading the start takes no vector unit at all.
//
// A sum starts at the bits of the float 1.5 * 2^23. Around there, floats are 1 apart: adding n to the bits adds n to the
// float, as long as it stays between 2^23 and 2^24, so for |n| < 2^22. The float minus 1.5 * 2^23 is n, exactly: the
// result of a conversion, zero included. No sum of a block is larger than 32 products of bytes, 2^7 * 2^7 * 32 = 2^19.

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

/**
 * Kernels whose sums start as floats and whose quants have an offset, which the subtraction takes out as well: all that walk over
 * whole row panels on arm64, and those of paired groups (packed.ts), whose sums are subtracted from each other.
 */
export function convertsBySubtraction({
  layout: { width, halves, paired },
  order,
}: {
  readonly layout: BlockLayout;
  readonly order: "vector" | "matrix";
}): boolean {
  return paired || (order === "vector" && width === 16 && halves === "hardware");
}

export function startOfSum(k: KernelBuilder): Reg<"i32v"> {
  return k.op("i32v.const", [], START_BITS);
}

export function startAsFloat(k: KernelBuilder): Reg<"f32v"> {
  return k.op("f32v.const", [], START);
}

/** The start plus offset * sum(x), as a float. `sum` loads the sum of the activations' quants, which is stored negated. */
export function startWithOffset(
  k: KernelBuilder,
  offset: number,
  sum: () => Reg<"i32v">,
): Reg<"f32v"> {
  if (offset === 0) return startAsFloat(k);
  return lessStart(k, k.op("i32v.shl", [sum()], Math.log2(offset)));
}

/** The subtrahend of a sum, as a float, if `start` is to be added to it. */
export function lessStart(k: KernelBuilder, start: Reg<"i32v">): Reg<"f32v"> {
  return k.op("i32v.as_f32v", [k.op("i32v.sub", [startOfSum(k), start])]);
}

/** The sum as a float: less its start, or another given number. */
export function valueOfSum(
  k: KernelBuilder,
  sum: Reg<"i32v">,
  less: Reg<"f32v"> = startAsFloat(k),
): Reg<"f32v"> {
  return k.op("f32v.sub", [k.op("i32v.as_f32v", [sum]), less]);
}
