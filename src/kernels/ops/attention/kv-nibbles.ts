// The formats of a KV cache whose blocks hold 32 values in 16 bytes of nibbles: q4_0, q4_1, q5_0, q5_1, iq4_nl.
//
// Values 0 to 15 are the low nibbles, 16 to 31 the high ones. Where a vector has 16 bytes, the nibbles of a block are unpacked
// as bytes, and a table lookup brings each byte to the top of a 32-bit lane; wider vectors load bytes into lanes. A quant
// in the top byte of a lane is 2^24 times as large, and the scale as much smaller.
// A value is quant * scale + min: the product is exact in float32, and so is the sum where the min is a multiple of the scale,
// fused or not.

import { nonlinearValues } from "../../../dtypes/nonlinear-codebook.ts";
import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { type KvFormat, type KvReader, splatHalf, upperHalf } from "./kv-format.ts";

type I32 = Reg<"i32v">;

const blockValues = 32;
const quantBytes = 16;

/** A type whose quants are evenly spaced. */
interface EvenNibbles {
  readonly name: string;
  /** The quant that stands for zero; undefined: the block stores a min after its scale. */
  readonly middle: number | undefined;
  /** Whether a word of fifth bits stands before the nibbles. */
  readonly hasFifthBits: boolean;
}

const evenTypes: readonly EvenNibbles[] = [
  { name: "q4_0", middle: 8, hasFifthBits: false },
  { name: "q4_1", middle: undefined, hasFifthBits: false },
  { name: "q5_0", middle: 16, hasFifthBits: true },
  { name: "q5_1", middle: undefined, hasFifthBits: true },
];

function evenFormat(type: EvenNibbles): KvFormat {
  const headBytes = (type.middle === undefined ? 4 : 2) + (type.hasFifthBits ? 4 : 0);
  return {
    ...nibbleFormat(type.name, headBytes, type.hasFifthBits ? 5 : 3),
    reader: (k) => {
      const unpack = unpacker(k, undefined);
      const powers = type.hasFifthBits ? fallingPowers(k) : undefined;
      return (pointer) => {
        const { scale, min } = affineOf(k, pointer, type.middle, unpack.shift);
        const nibbles = unpack.open(pointer, headBytes);
        const fifths = powers && fifthBits(k, pointer, headBytes - 4, powers, 4 + unpack.shift);
        const quants = (i: number): I32 =>
          fifths ? k.op("i32v.or", [nibbles(i), fifths(i)]) : nibbles(i);
        return {
          load: (i) => k.op("f32v.fma", [k.op("f32v.from_i32v", [quants(i)]), scale, min]),
          scale: undefined,
        };
      };
    },
  };
}

const iq4_nl: KvFormat = {
  ...nibbleFormat("iq4_nl", 2, 3),
  reader: (k): KvReader => {
    const unpack = unpacker(k, nonlinearValues);
    return (pointer) => {
      const values = unpack.open(pointer, 2);
      const scale = splatHalf(k, pointer, 2 ** -unpack.shift);
      return {
        load: (i) => k.op("f32v.mul", [k.op("f32v.from_i32v", [values(i)]), scale]),
        scale: undefined,
      };
    };
  },
};

export const nibbleFormats: readonly KvFormat[] = [...evenTypes.map(evenFormat), iq4_nl];

/** `registers`: the scale, the min or a codebook, and bytes; the word of fifth bits and the powers of 2. */
function nibbleFormat(
  name: string,
  headBytes: number,
  registers: number,
): Omit<KvFormat, "reader"> {
  return {
    name,
    blockValues,
    registers,
    isScaled: false,
    bytes: (values) => (values / blockValues) * (headBytes + quantBytes),
  };
}

/** The scale of a block's quants, and the min that is added then. Quants are 2^shift times as large. */
function affineOf(
  k: KernelBuilder,
  pointer: Reg<"ptr">,
  middle: number | undefined,
  shift: number,
): { readonly scale: Reg<"f32v">; readonly min: Reg<"f32v"> } {
  if (middle !== undefined) {
    const scale = splatHalf(k, pointer, 2 ** -shift);
    const zero = k.op("f32v.const", [], -middle * 2 ** shift);
    return { scale, min: k.op("f32v.mul", [scale, zero]) };
  }
  const both = k.op("i32v.load_splat", [pointer]);
  const scale = upperHalf(k, k.op("i32v.shl", [both], 16), 2 ** -shift);
  return { scale, min: upperHalf(k, both) };
}

/** Unpacks blocks into i32 lanes: nibbles, or their values in a codebook of bytes. */
interface Unpacker {
  /** Lanes are 2^shift times as large. */
  readonly shift: number;
  /** Vector i of the block whose nibbles begin `at` bytes after the pointer. */
  open(pointer: Reg<"ptr">, at: number): (i: number) => I32;
}

function unpacker(k: KernelBuilder, codebook: Int8Array | undefined): Unpacker {
  const table = codebook && sixteenBytes(k, codebook);
  return k.width === 16 ? byBytes(k, table) : byLanes(k, table);
}

/** Sixteen nibbles at once. The nibbles of a half block, low or high, are in a register while its vectors are taken. */
function byBytes(k: KernelBuilder, codebook: Reg<"i8v"> | undefined): Unpacker {
  const vectors = quantBytes / k.lanes;
  const toTop = Array.from({ length: vectors }, (_, i) =>
    sixteenBytes(k, topBytes(i * k.lanes, k.lanes)),
  );
  return {
    shift: 24,
    open: (pointer, at) => {
      const bytes = new Map<boolean, Reg<"i8v">>();
      const halfOf = (isHigh: boolean): Reg<"i8v"> => {
        const packed = k.op("i8v.load", [pointer], at);
        const nibbles = isHigh
          ? k.op("i8v.shr_u", [packed], 4)
          : k.op("i8v.and", [packed, k.op("i8v.splat", [], 15)]);
        return codebook ? k.op("i8v.lookup16", [codebook, nibbles]) : nibbles;
      };
      return (i) => {
        const isHigh = i >= vectors;
        const half = bytes.get(isHigh) ?? halfOf(isHigh);
        bytes.set(isHigh, half);
        return k.op("i8v.as_i32v", [k.op("i8v.lookup16", [half, toTop[i % vectors]!])]);
      };
    },
  };
}

/** Indices for a lookup that moves `count` bytes, from `first` on, to the top of a lane each, with zeros below. */
function topBytes(first: number, count: number): Int8Array {
  return Int8Array.from({ length: 4 * count }, (_, i) => (i % 4 === 3 ? first + (i - 3) / 4 : -1));
}

/** A vector at a time, from bytes that are loaded into lanes. */
function byLanes(k: KernelBuilder, codebook: Reg<"i8v"> | undefined): Unpacker {
  const vectors = quantBytes / k.lanes;
  return {
    shift: codebook ? 24 : 0,
    open: (pointer, at) => (i) => {
      const pair = k.op("i32v.load_i8", [pointer], at + (i % vectors) * k.lanes);
      const nibble = i < vectors ? pair : k.op("i32v.shr_u", [pair], 4);
      const quants = k.op("i32v.and", [nibble, k.op("i32v.const", [], 15)]);
      if (!codebook) return quants;
      const found = k.op("i8v.lookup16", [codebook, k.op("i32v.as_i8v", [quants])]);
      return k.op("i32v.shl", [k.op("i8v.as_i32v", [found])], 24);
    },
  };
}

/**
 * Vector i of a block's fifth bits, 0 or 2^place each. The word's bits i * lanes + j are shifted left by the distance of lane j
 * from the last, which moves a vector's bits to the same position in all lanes.
 */
function fifthBits(
  k: KernelBuilder,
  pointer: Reg<"ptr">,
  at: number,
  powers: I32,
  place: number,
): (i: number) => I32 {
  const word = k.op("i32v.mul", [k.op("i32v.load_splat", [pointer], at), powers]);
  return (i) => {
    const down = (i + 1) * k.lanes - 1 - place;
    const shifted = down < 0 ? k.op("i32v.shl", [word], -down) : k.op("i32v.shr_u", [word], down);
    return k.op("i32v.and", [shifted, k.op("i32v.const", [], 2 ** place)]);
  };
}

/** 2^(lanes - 1), ..., 4, 2, 1: made as floats, whose exponents are counted down. */
function fallingPowers(k: KernelBuilder): I32 {
  const largest = k.op("i32v.const", [], 127 + k.lanes - 1);
  const exponents = k.op("i32v.shl", [k.op("i32v.sub", [largest, laneNumbers(k)])], 23);
  return k.op("i32v.from_f32v", [k.op("i32v.as_f32v", [exponents])]);
}

/** 0, 1, 2, ..., lanes - 1. */
function laneNumbers(k: KernelBuilder): I32 {
  const constants = [0, 1, 2, 3].map((n) => k.op("i32v.const", [], n));
  // In fours, pairs or ones: 0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3, 0 0 1 1 2 2 3 3, 0 1 2 3.
  const quarter = packedBytes(k, constants);
  if (k.lanes === 4) return quarter;
  const within = k.lanes === 16 ? quarter : k.op("i32v.shr_u", [quarter], 1);
  const inQuarter = packedBytes(k, [within, within, within, within]);
  return k.op("i32v.add", [k.op("i32v.shl", [quarter], Math.log2(k.lanes / 4)), inQuarter]);
}

/** The first byte of each four that pack_i32 makes of four vectors. */
function packedBytes(k: KernelBuilder, [a, b, c, d]: readonly I32[]): I32 {
  const packed = k.op("i8v.as_i32v", [k.op("i8v.pack_i32", [a!, b!, c!, d!])]);
  return k.op("i32v.and", [packed, k.op("i32v.const", [], 255)]);
}

/** These 16 bytes in each 16-byte group. */
function sixteenBytes(k: KernelBuilder, bytes: Int8Array): Reg<"i8v"> {
  const words = new Int32Array(bytes.slice().buffer);
  const inGroup = k.op("i32v.and", [laneNumbers(k), k.op("i32v.const", [], 3)]);
  let chosen = k.op("i32v.const", [], words[0]!);
  for (let lane = 1; lane < 4; lane++) {
    // All ones from this lane on.
    const before = k.op("i32v.sub", [k.op("i32v.const", [], lane - 1), inGroup]);
    const isReached = k.op("i32v.shr_s", [before], 31);
    const word = k.op("i32v.const", [], words[lane]!);
    chosen = k.op("i32v.select", [isReached, word, chosen]);
  }
  return k.op("i32v.as_i8v", [chosen]);
}
