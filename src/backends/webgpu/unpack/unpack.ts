// The interface of a WGSL unpack: how a tensor type is read on the GPU, four consecutive values of a block at a time, straight
// from the file's bytes. All kernels that read weights (embed, matvec, matmul) are generated around it.
//
// The bytes are bound as `array<u32>`, for any block size, so blocks may begin in the middle of a word. The helpers
// below read bytes, half floats and words at any byte address.

import { halfText } from "../wgsl/halves.ts";

/** Values in blocks: the WGSL body of `fn unpack(b: u32, n: u32, i: u32) -> vec4f`. */
export interface BlockUnpack {
  readonly kind: "block";
  /**
   * b: address of the block's first byte; n: its number; i: index of the first of four values in it, a multiple of 4. The
   * body may call the helpers of `unpackHelpers`, and read `book[...]` where there is a codebook.
   */
  readonly body: string;
  /** Blocks are split into two planes, and b is an address in the wide one; without it they are as in the file. */
  readonly planes?: Planes;
  /** Optional, for speed: how a lane multiplies a chunk of a row. */
  readonly lane?: LaneDot;
  /** Points of a codebook, four signed bytes a word, bound as `book: array<u32>`. */
  readonly book?: () => Uint32Array;
  /** Declarations that the body needs. */
  readonly tables?: string;
}

/** Single values: the WGSL body of `fn element(i: u32) -> f32`, i being the index in the tensor. */
export interface ElementUnpack {
  readonly kind: "element";
  readonly body: string;
  readonly lane?: LaneDot;
}

/**
 * Blocks whose size is no multiple of 16 bytes are split in two, so that lanes load 16 bytes at once: `wide` bytes of each
 * from byte `wideFrom` on are in one plane, `narrow` bytes (scales) from `narrowFrom` on in another.
 */
export interface Planes {
  readonly wide: number;
  readonly wideFrom: number;
  /** 1, 2 or 4. */
  readonly narrow: number;
  readonly narrowFrom: number;
}

/**
 * The WGSL by which a lane multiplies one chunk of a row by the activations (wgsl/matmul-gemv.ts). Texts are WGSL over these names: `wide`
 * (array<vec4u>, the wide plane), `narrow` (array<u32>, the other), `low` and `high` (vec4u: staged activations of the
 * chunk), `sumLow` and `sumHigh` (i32: their sums, where they are quants).
 */
export interface LaneDot {
  /** Columns of a chunk. */
  readonly columns: number;
  /** Columns that take a whole number of vectors in `wide`: a block, or less. */
  readonly unit: number;
  /** For chunk `c` of a row: the indices of its staged vectors, and of their scale. */
  readonly lowAt: string;
  readonly highAt: string;
  readonly scaleAt: string;
  /** The loads of a chunk: `row` is the number of the row's first unit, `c` the chunk. */
  readonly loads: Readonly<
    Record<string, { type: "vec4u" | "u32"; at: (row: string, c: string) => string }>
  >;
  /** The dot product of the loaded chunk and its activations, without their scale and `factor`. */
  readonly dot: (loaded: (name: string) => string, row: string, c: string) => string;
  /** The scale of all of the chunk's weights; undefined: it is in `dot`. */
  readonly factor?: LaneDot["dot"];
  /** Functions that `dot` calls. */
  readonly functions?: string;
  /** For several tokens; undefined: `dot` is for them as well. */
  readonly smallBatch?: SmallBatchDot;
  /** For matrix units; "as they are": chunks of eight half floats; undefined: they get values of fn unpack. */
  readonly halves?: HalfUnpack | "as they are";
}

/** A chunk whose quants are unpacked once for all tokens, to signed bytes; its type has LaneDot.factor. */
export interface SmallBatchDot {
  readonly functions: string;
  /** The bytes beside `low`, and those beside `high`. */
  readonly low: (loaded: (name: string) => string) => string;
  readonly high: (loaded: (name: string) => string) => string;
}

/** The values of a chunk as half floats, each four columns in the order 0, 2, 1, 3 (wgsl/matrix-tiles.ts). */
export interface HalfUnpack {
  /** Columns that a whole number of chunks covers without a gap. */
  readonly span: number;
  readonly functions: string;
  /** An array<vec4h, 8>: 16 columns from lowAt * 16 on, then 16 from highAt * 16 on. */
  readonly values: LaneDot["dot"];
}

export type Unpack = BlockUnpack | ElementUnpack;

/** Reads `weights: array<u32>` at byte addresses. Half floats are decoded from bits, since devices may flush small ones to 0. */
export const unpackHelpers: string = `
fn byteAt(at: u32) -> u32 {
  return (weights[at >> 2u] >> ((at & 3u) * 8u)) & 255u;
}
fn u16At(at: u32) -> u32 {
  return (weights[at >> 2u] >> ((at & 2u) * 8u)) & 65535u;
}
fn wordAt(at: u32) -> u32 {
  let shift = (at & 3u) * 8u;
  let low = weights[at >> 2u];
  if (shift == 0u) { return low; }
  return (low >> shift) | (weights[(at >> 2u) + 1u] << (32u - shift));
}
${halfText}
fn halfAt(at: u32) -> f32 {
  return half(u16At(at));
}
fn bytesOf(word: u32) -> vec4f {
  return vec4f((vec4u(word) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(255u));
}
fn signedBytesOf(word: u32) -> vec4f {
  return vec4f(bitcast<vec4i>(vec4u(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u));
}
fn bitsOf(bits: u32) -> vec4f {
  return vec4f((vec4u(bits) >> vec4u(0u, 1u, 2u, 3u)) & vec4u(1u));
}
`;
