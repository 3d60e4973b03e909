// Writes the quants of one block of one row into its lane of the block's vectors: the table of quant-fields.ts, unrolled,
// since this runs for every weight while a model is loaded (interpreting the table takes ten times as long).
// test/kernels/packings.test.ts checks it against the table.
//
// `c` has 8 words of four quants from `f` on; word v of the lane is m[t + s * v], where s is the lanes of a vector.

import type { QuantBits } from "./quant-fields.ts";

type WriteQuants = (c: Uint32Array, f: number, m: Uint32Array, t: number, s: number) => void;

const LOW_1 = 0x01010101;
const LOW_2 = 0x03030303;
const LOW_3 = 0x07070707;
const NIBBLES = 0x0f0f0f0f;
/** Flips the sign of four nibbles: 8 less, as two's complement. */
const SIGN_BITS = 0x08080808;

export const writeQuants: Readonly<Record<QuantBits, WriteQuants>> = {
  2: (c, f, m, t, s) => {
    m[t] = c[f]! | (c[f + 1]! << 2) | (c[f + 2]! << 4) | (c[f + 3]! << 6);
    m[t + s] = c[f + 4]! | (c[f + 5]! << 2) | (c[f + 6]! << 4) | (c[f + 7]! << 6);
  },
  3: (c, f, m, t, s) => {
    const [fourth, eighth] = [c[f + 3]!, c[f + 7]!];
    const thirds = (((fourth >>> 2) & LOW_1) << 6) | (((eighth >>> 2) & LOW_1) << 7);
    m[t] = c[f]! | (c[f + 1]! << 3) | ((fourth & LOW_2) << 6);
    m[t + s] = c[f + 2]! | (c[f + 6]! << 3) | thirds;
    m[t + 2 * s] = c[f + 4]! | (c[f + 5]! << 3) | ((eighth & LOW_2) << 6);
  },
  4: (c, f, m, t, s) => {
    m[t] = c[f]! | (c[f + 4]! << 4);
    m[t + s] = c[f + 1]! | (c[f + 5]! << 4);
    m[t + 2 * s] = c[f + 2]! | (c[f + 6]! << 4);
    m[t + 3 * s] = c[f + 3]! | (c[f + 7]! << 4);
  },
  5: (c, f, m, t, s) => {
    const [sixth, seventh, eighth] = [c[f + 5]!, c[f + 6]!, c[f + 7]!];
    m[t] = c[f]! | ((sixth & LOW_3) << 5);
    m[t + s] = c[f + 1]! | (((eighth >>> 3) & LOW_1) << 5) | (((sixth >>> 3) & LOW_2) << 6);
    m[t + 2 * s] = c[f + 2]! | ((seventh & LOW_3) << 5);
    m[t + 3 * s] = c[f + 3]! | (((eighth >>> 4) & LOW_1) << 5) | (((seventh >>> 3) & LOW_2) << 6);
    m[t + 4 * s] = c[f + 4]! | ((eighth & LOW_3) << 5);
  },
  6: (c, f, m, t, s) => {
    writeSixBits(c, f, m, t, s);
    writeSixBits(c, f + 4, m, t + 3 * s, s);
  },
  8: (c, f, m, t, s) => {
    for (let v = 0; v < 8; v++) m[t + s * v] = c[f + v]!;
  },
};

/**
 * The quants of a row of a pair of groups (packed.ts); `isSecond`: of the second one, which is written after the first. The
 * words of the first begin at `t` as well.
 */
export function writePaired(isSecond: boolean): WriteQuants {
  if (!isSecond) return writeQuants[8];
  return (c, f, m, t, s) => {
    for (let v = 0; v < 8; v++) {
      const at = t + s * v;
      m[at] = (m[at]! & NIBBLES) | ((c[f + v]! ^ SIGN_BITS) << 4);
    }
  };
}

/** Half a block. */
function writeSixBits(c: Uint32Array, f: number, m: Uint32Array, t: number, s: number): void {
  const fourth = c[f + 3]!;
  m[t] = c[f]! | ((fourth & LOW_2) << 6);
  m[t + s] = c[f + 1]! | (((fourth >>> 2) & LOW_2) << 6);
  m[t + 2 * s] = c[f + 2]! | (((fourth >>> 4) & LOW_2) << 6);
}
