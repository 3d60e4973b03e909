// TQ1_0: 1.69 bits a weight. Ternary weights, five to a byte, for models trained with -1, 0 and 1.
//
// Block of 256 in 54 bytes:
//   48 x u8   five base-3 digits a byte. Bytes 0..31 hold weights 0..159, digit n of byte m being weight 32 n + m;
//             bytes 32..47 hold weights 160..239 in the same way, 16 apart
//   4 x u8    four digits a byte: weights 240..255, 4 apart
//   f16 d
// A byte is a fraction, ceil(digits * 256 / 243): its first digit is byte * 3 / 256, and the rest is
// in byte * 3 mod 256.
// weight = d * (digit - 1)

import { f16ToF32 } from "../base/half.ts";
import { halfAt, type Piece, type Strides } from "./block.ts";
import { builtOnce } from "./codebooks.ts";
import type { DType } from "./dtype.ts";
import { reciprocalOrZero, roundHalfAway, storeF16 } from "./float32-math.ts";

const dAt = 52;

/** Number 5 * byte + n is digit n of a byte, minus 1. */
const tableOfTrits: () => Float32Array = builtOnce(buildTrits);

export const tq1_0: DType = {
  name: "tq1_0",
  ggufId: 34,
  blockElems: 256,
  blockBytes: 54,
  activation: "q8_k",
  block: {
    kind: "quants",
    scale: halfAt(52),
    quants: {
      per: 1,
      pieces: [digitsAt(0, 32, 5, 0), digitsAt(32, 16, 5, 160), digitsAt(48, 4, 4, 240)],
    },
    offset: -1,
  },

  dequantize(src, srcOffset, dst, dstOffset, blocks) {
    for (let block = 0; block < blocks; block++) {
      const at = srcOffset + block * 54;
      const out = dstOffset + block * 256;
      const d = f16ToF32(src[at + dAt]! | (src[at + dAt + 1]! << 8));
      spread(src, at, 32, 5, d, dst, out);
      spread(src, at + 32, 16, 5, d, dst, out + 160);
      spread(src, at + 48, 4, 4, d, dst, out + 240);
    }
  },

  quantize(src, srcOffset, dst, dstOffset, blocks) {
    for (let block = 0; block < blocks; block++) {
      const from = srcOffset + block * 256;
      const to = dstOffset + block * 54;
      let d = 0;
      for (let i = from; i < from + 256; i++) d = Math.max(d, Math.abs(src[i]!));
      const inverse = reciprocalOrZero(d);
      gather(src, from, 32, 5, inverse, dst, to);
      gather(src, from + 160, 16, 5, inverse, dst, to + 32);
      gather(src, from + 240, 4, 4, inverse, dst, to + 48);
      storeF16(dst, to + dAt, d);
    }
  },
};

/** Positions of the digits of values from `first` on: digit n of byte m belongs to value first + n * bytes + m. */
function digitsAt(at: number, bytes: number, digits: number, first: number): Piece {
  const strides: Strides = [[bytes, 8]];
  const digit: Strides = [
    [bytes, 0],
    [digits, 1],
  ];
  return { bits: 8, at: 8 * at, strides, digit, only: [first, first + bytes * digits] };
}

/** The first `digits` digits of `bytes` bytes, digit n of byte m going to out + n * bytes + m. */
function spread(
  src: Uint8Array,
  at: number,
  bytes: number,
  digits: number,
  d: number,
  dst: Float32Array,
  out: number,
): void {
  const trits = tableOfTrits();
  for (let m = 0; m < bytes; m++) {
    const row = src[at + m]! * 5;
    for (let n = 0; n < digits; n++) dst[out + n * bytes + m] = trits[row + n]! * d;
  }
}

/** The inverse of spread(): a byte's digits are rounded values, the first most significant; a fifth digit that is not there is 0. */
function gather(
  src: Float32Array,
  from: number,
  bytes: number,
  digits: number,
  inverse: number,
  dst: Uint8Array,
  to: number,
): void {
  for (let m = 0; m < bytes; m++) {
    let number = 0;
    for (let n = 0; n < 5; n++) {
      const value =
        n < digits ? roundHalfAway(Math.fround(src[from + n * bytes + m]! * inverse)) + 1 : 0;
      number = (3 * number + value) & 255;
    }
    dst[to + m] = Math.floor((number * 256 + 242) / 243);
  }
}

function buildTrits(): Float32Array {
  const table = new Float32Array(256 * 5);
  for (let byte = 0; byte < 256; byte++) {
    let rest = byte;
    for (let n = 0; n < 5; n++) {
      rest *= 3;
      table[byte * 5 + n] = (rest >> 8) - 1;
      rest &= 255;
    }
  }
  return table;
}
