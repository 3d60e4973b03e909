// Kernels for types that only round: a block of 32 values at a time, with the same bits as the type's own quantizer.
// Blocks that a kernel cannot compute exactly (scales that are almost zero or infinite) are left to that quantizer by
// round.ts, which finds them by their largest magnitude or their span in `reach`, 4 bytes per block.
//
// `lanes` points at the constants that differ between lanes (`laneConstants`).

import { KernelBuilder } from "../../kernels/ir/builder.ts";
import type { Kernel, Reg } from "../../kernels/ir/kernel.ts";

type Floats = Reg<"f32v">;
type Integers = Reg<"i32v">;

const width = 16;
/** Vectors of a block. */
const vectors = 8;
/** The largest float below a half. */
const belowHalf = 0.49999997;

/** Vectors that kernels load from `lanes`, one after the other. */
const laneVectors = {
  /** Twice the index of each value in a vector, which leaves the odd numbers free. */
  places: [0, 2, 4, 6],
  /** One bit per lane. */
  bits: [1, 2, 4, 8],
  /** A mask of the first lane. */
  first: [-1, 0, 0, 0],
} as const;
export const laneConstants: readonly number[] = Object.values(laneVectors).flat();
const laneOffset = { places: 0, bits: width, first: 2 * width } as const;

interface Block {
  readonly k: KernelBuilder;
  readonly out: Reg<"ptr">;
  readonly lanes: Reg<"ptr">;
  /** The block's values, 4 in each. */
  readonly values: readonly Floats[];
}

/**
 * Runs block by block: (x, out, reach, blocks, lanes). `round` writes a block and returns its reach, the same in every
 * lane.
 */
function blockKernel(name: string, blockBytes: number, round: (block: Block) => Floats): Kernel {
  const k = new KernelBuilder(name, width);
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const reaches = k.param("ptr", "reach");
  const blocks = k.param("i32", "blocks");
  const lanes = k.param("ptr", "lanes");
  k.loop(blocks, () => {
    const values = Array.from({ length: vectors }, (_, i) => k.op("f32v.load", [x], width * i));
    const reach = round({ k, out, lanes, values });
    k.op("f32.store", [reaches, k.op("f32v.hmax", [reach])]);
    k.advance(x, width * vectors);
    k.advance(out, blockBytes);
    k.advance(reaches, 4);
  });
  return k.finish();
}

/** The maximum over all lanes of all vectors, in every lane. */
function largestOf(k: KernelBuilder, vectorsOf: readonly Floats[]): Floats {
  const most = vectorsOf.reduce((a, b) => k.op("f32v.max", [a, b]));
  return k.op("f32v.splat", [k.op("f32v.hmax", [most])]);
}

function largestMagnitude({ k, values }: Block): Floats {
  return largestOf(
    k,
    values.map((value) => k.op("f32v.abs", [value])),
  );
}

/** scale = largest / 127; quants round halves away from zero. */
export function roundSignedBytes(name: string): Kernel {
  return blockKernel(name, 34, (block) => {
    const { k, out, values } = block;
    const reach = largestMagnitude(block);
    const scale = k.op("f32v.div", [reach, k.op("f32v.const", [], 127)]);
    const inverse = k.op("f32v.div", [k.op("f32v.const", [], 1), scale]);
    const codes = values.map((value) => halfAway(k, k.op("f32v.mul", [value, inverse])));
    // Stores four halves; the quants overwrite all but the first.
    k.op("f32v.store_f16", [out, scale]);
    const pack = (from: number) =>
      k.op("i8v.pack_i32", [codes[from]!, codes[from + 1]!, codes[from + 2]!, codes[from + 3]!]);
    k.op("i8v.store", [out, pack(0)], 2);
    k.op("i8v.store", [out, pack(4)], 18);
    return reach;
  });
}

/** The nearest integer; halfway cases away from zero. */
function halfAway(k: KernelBuilder, x: Floats): Integers {
  const even = k.op("i32v.from_f32v", [x]);
  const rest = k.op("f32v.sub", [x, k.op("f32v.from_i32v", [even])]); // exact
  const zero = k.op("f32v.const", [], 0);
  const half = k.op("f32v.const", [], belowHalf);
  const up = k.op("i32v.and", [k.op("f32v.lt", [half, rest]), k.op("f32v.lt", [zero, x])]);
  const isLow = k.op("f32v.lt", [rest, k.op("f32v.const", [], -belowHalf)]);
  const down = k.op("i32v.and", [isLow, k.op("f32v.lt", [x, zero])]);
  // A mask is -1.
  return k.op("i32v.add", [k.op("i32v.sub", [even, up]), down]);
}

/** scale = the value with the largest magnitude / -8, which becomes quant 0; quants are clamped to 0..15. */
export function roundNibbles(name: string): Kernel {
  return blockKernel(name, 18, (block) => {
    const { quants, scale, reach } = quantsAroundZero(block, 4);
    block.k.op("f32v.store_f16", [block.out, scale]);
    storeNibbles(block, quants, 4, 2);
    return reach;
  });
}

/** The same with 5 bits: / -16, quants are clamped to 0..31. */
export function roundFiveBits(name: string): Kernel {
  return blockKernel(name, 22, (block) => {
    const { quants, scale, reach } = quantsAroundZero(block, 5);
    block.k.op("f32v.store_f16", [block.out, scale]);
    storeFifthBits(block, quants, 2);
    storeNibbles(block, quants, 5, 6);
    return reach;
  });
}

/** scale = span / 15, from the least value up. */
export function roundNibblesFromLeast(name: string): Kernel {
  return blockKernel(name, 20, (block) => {
    const { quants, reach } = quantsFromLeast(block, 4);
    storeNibbles(block, quants, 4, 4);
    return reach;
  });
}

/** The same with 5 bits: span / 31. */
export function roundFiveBitsFromLeast(name: string): Kernel {
  return blockKernel(name, 24, (block) => {
    const { quants, reach } = quantsFromLeast(block, 5);
    storeFifthBits(block, quants, 4);
    storeNibbles(block, quants, 5, 8);
    return reach;
  });
}

interface Quants {
  readonly quants: readonly Integers[];
  readonly scale: Floats;
  readonly reach: Floats;
}

function quantsAroundZero(block: Block, bits: number): Quants {
  const { k, values } = block;
  const half = 1 << (bits - 1);
  const reach = largestMagnitude(block);
  const scale = k.op("f32v.div", [signedLargest(block, reach), k.op("f32v.const", [], -half)]);
  const inverse = k.op("f32v.div", [k.op("f32v.const", [], 1), scale]);
  const quants = values.map((value) => {
    const scaled = k.op("f32v.mul", [value, inverse]);
    const shifted = k.op("f32v.add", [scaled, k.op("f32v.const", [], half + 0.5)]);
    return k.op("i32v.min_s", [floor(k, shifted), k.op("i32v.const", [], 2 * half - 1)]);
  });
  return { quants, scale, reach };
}

/** Also stores the scale and the least value. A least value of zero has no reach, because its sign is unknown. */
function quantsFromLeast({ k, out, lanes, values }: Block, bits: number): Quants {
  const most = largestOf(k, values);
  const lowest = values.reduce((a, b) => k.op("f32v.min", [a, b]));
  const least = k.op("f32v.neg", [largestOf(k, [k.op("f32v.neg", [lowest])])]);
  const span = k.op("f32v.sub", [most, least]);
  const scale = k.op("f32v.div", [span, k.op("f32v.const", [], (1 << bits) - 1)]);
  const inverse = k.op("f32v.div", [k.op("f32v.const", [], 1), scale]);
  const quants = values.map((value) => {
    const scaled = k.op("f32v.mul", [k.op("f32v.sub", [value, least]), inverse]);
    // At most one rounding above the highest quant, so adding a half cannot reach the next one.
    return floor(k, k.op("f32v.add", [scaled, k.op("f32v.const", [], 0.5)]));
  });
  const first = k.op("i32v.load", [lanes], laneOffset.first);
  const both = [k.op("f32v.as_i32v", [scale]), k.op("f32v.as_i32v", [least])] as const;
  // Four halves: the scale, and the least value three times.
  k.op("f32v.store_f16", [out, k.op("i32v.as_f32v", [k.op("i32v.select", [first, ...both])])]);
  const zero = k.op("f32v.const", [], 0);
  const isSigned = k.op("i32v.or", [
    k.op("f32v.lt", [least, zero]),
    k.op("f32v.lt", [zero, least]),
  ]);
  const reach = k.op("i32v.and", [k.op("f32v.as_i32v", [span]), isSigned]);
  return { quants, scale, reach: k.op("i32v.as_f32v", [reach]) };
}

/** Quants 0-15 in the low nibbles of 16 bytes, 16-31 in the high ones. */
function storeNibbles(
  { k, out }: Block,
  quants: readonly Integers[],
  bits: number,
  at: number,
): void {
  const pairs = [0, 1, 2, 3].map((i) => {
    const high = k.op("i32v.shl", [quants[i + 4]!], 28);
    // As a signed byte, because packing saturates.
    const signed = k.op("i32v.shr_s", [high], 24);
    const low = bits > 4 ? k.op("i32v.and", [quants[i]!, k.op("i32v.const", [], 15)]) : quants[i]!;
    return k.op("i32v.or", [signed, low]);
  });
  const bytes = k.op("i8v.pack_i32", [pairs[0]!, pairs[1]!, pairs[2]!, pairs[3]!]);
  k.op("i8v.store", [out, bytes], at);
}

/** Bit 4 of quant i becomes bit i of a word. */
function storeFifthBits({ k, out, lanes }: Block, quants: readonly Integers[], at: number): void {
  const fifth = k.op("i32v.const", [], 16);
  const everyFourth = quants
    .map((quant, i) => {
      const bit = k.op("i32v.and", [quant, fifth]);
      return i === 0 ? k.op("i32v.shr_u", [bit], 4) : k.op("i32v.shl", [bit], 4 * i - 4);
    })
    .reduce((a, b) => k.op("i32v.or", [a, b]));
  // A lane has the bits of every fourth value, at positions that no other lane uses.
  const placed = k.op("i32v.mul", [everyFourth, k.op("i32v.load", [lanes], laneOffset.bits)]);
  k.op("i32.store", [out, k.op("i32v.sum", [placed])], at);
}

function floor(k: KernelBuilder, x: Floats): Integers {
  const nearest = k.op("i32v.from_f32v", [x]);
  const isAbove = k.op("f32v.lt", [x, k.op("f32v.from_i32v", [nearest])]);
  return k.op("i32v.add", [nearest, isAbove]);
}

/** The first value with the largest magnitude, in every lane: the one with the smallest key. */
function signedLargest({ k, lanes, values }: Block, reach: Floats): Floats {
  const none = k.op("i32v.const", [], 2 * vectors * 4);
  const places = k.op("i32v.load", [lanes], laneOffset.places);
  const keys = values.map((value, i) => {
    const sign = k.op("i32v.shr_u", [k.op("f32v.as_i32v", [value])], 31);
    const key = k.op("i32v.add", [places, k.op("i32v.const", [], 8 * i)]);
    const isLess = k.op("f32v.lt", [k.op("f32v.abs", [value]), reach]);
    return k.op("i32v.select", [isLess, none, k.op("i32v.or", [key, sign])]);
  });
  const least = keys.reduce((a, b) => k.op("i32v.min_s", [a, b]));
  const negated = k.op("f32v.neg", [k.op("f32v.from_i32v", [least])]);
  const first = k.op("f32v.splat", [k.op("f32v.hmax", [negated])]);
  const key = k.op("i32v.from_f32v", [k.op("f32v.neg", [first])]);
  // Its lowest bit is the sign.
  const sign = k.op("i32v.shl", [key], 31);
  const bits = k.op("i32v.or", [k.op("f32v.as_i32v", [reach]), sign]);
  return k.op("i32v.as_f32v", [bits]);
}
