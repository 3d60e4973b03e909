// What a tensor type brings to the GPU: WGSL that gives four consecutive values of a block, straight from the file's
// bytes. Everything that reads packed weights (embedding, matrix-vector, matrix-matrix) is generated around it.
//
// The bytes are bound as `array<u32>`, whatever the block size, so blocks may begin in the middle of a word: the helpers
// below read bytes, halves and words at any byte address.

/** Values in blocks: the WGSL body of `fn unpack(b: u32, i: u32) -> vec4f`. */
export interface BlockUnpack {
  readonly kind: "block";
  /**
   * b: address of the block's first byte; i: index of the first of four values in it, a multiple of 4. The body may call
   * the helpers of `unpackHelpers`, and with a codebook `book[...]`.
   */
  readonly body: string;
  /**
   * Optional, for speed: the WGSL body of `fn dot32(b: u32, i: u32) -> f32`, the sum of values i ... i + 31 times the
   * activations xs[0 ... 7] (vectors of 4); i is a multiple of 32. xTotal is the sum of those activations.
   */
  readonly dot32?: string;
  /** Points of a codebook, four signed bytes a word, bound as `book: array<u32>`. */
  readonly book?: () => Uint32Array;
  /** Declarations that the body needs. */
  readonly tables?: string;
}

/** One value after the other: the WGSL body of `fn element(i: u32) -> f32`, i being its index in the tensor. */
export interface ElementUnpack {
  readonly kind: "element";
  readonly body: string;
}

export type Unpack = BlockUnpack | ElementUnpack;

/** Reading `weights: array<u32>` by byte addresses; half floats by their bits, since devices may flush the small ones to 0. */
export const unpackHelpers = `
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
fn wordsAt(at: u32) -> vec4u {
  let i = at >> 2u;
  let shift = (at & 3u) * 8u;
  let words = vec4u(weights[i], weights[i + 1u], weights[i + 2u], weights[i + 3u]);
  if (shift == 0u) { return words; }
  let next = vec4u(words.yzw, weights[i + 4u]);
  return (words >> vec4u(shift)) | (next << vec4u(32u - shift));
}
fn half(bits: u32) -> f32 {
  let sign = (bits & 0x8000u) << 16u;
  let magnitude = bits & 0x7fffu;
  if (magnitude < 0x400u) {
    return select(1.0, -1.0, sign != 0u) * f32(magnitude) * 5.9604644775390625e-8;
  }
  return bitcast<f32>(sign | ((magnitude << 13u) + 0x38000000u));
}
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
