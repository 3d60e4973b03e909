// Reads blocks of activations (packed.ts) for the tiled kernels, as IR: quants and fields, broadcast to every lane, in
// either of the two ways they are stored.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import {
  ACTIVATION_FIELDS,
  ACTIVATION_NEGATIVES_AT,
  ACTIVATION_QUANTS_AT,
  ACTIVATION_WORDS_AT,
  activationBlockBytes,
  BLOCK_COLS,
} from "../packed/packed.ts";

/** `x` points to a block of the first token; t counts blocks from there. */
export class ActivationReader {
  readonly blockBytes: number;
  readonly #k: KernelBuilder;
  readonly #replicated: boolean;
  readonly #words: boolean;

  constructor(k: KernelBuilder, replicated: boolean, words = false) {
    this.#k = k;
    this.#replicated = replicated;
    this.#words = words;
    this.blockBytes = activationBlockBytes(replicated, k.width, words);
  }

  /** Four quants of a token as 16-bit integers: first and third, second and fourth. */
  words(x: Reg<"ptr">, t: number, column: number): Reg<"i16v">[] {
    if (!this.#words) return evenAndOdd(this.#k, this.quants(x, t, column));
    const at = t * this.blockBytes + ACTIVATION_WORDS_AT + 32 * (column >> 2) + 4 * (column & 3);
    return [0, 16].map((side) => {
      return this.#k.op("i32v.as_i16v", [this.#k.op("i32v.load_splat", [x], at + side)]);
    });
  }

  /** Four quants of a token as magnitudes and signs. */
  signs(x: Reg<"ptr">, t: number, column: number): Signs {
    if (!this.#words) return magnitudesAndSigns(this.#k, this.quants(x, t, column));
    const at = t * this.blockBytes + ACTIVATION_WORDS_AT + 4 * column;
    const load = (side: number) => this.#k.op("i8v.load_splat32", [x], at + side);
    return { magnitudes: load(0), signs: load(BLOCK_COLS) };
  }

  /** The sum of the magnitudes of a block's negative quants. */
  negatives(x: Reg<"ptr">, t: number): Reg<"i32v"> {
    const at = t * this.blockBytes + ACTIVATION_NEGATIVES_AT;
    if (this.#words) return this.#k.op("i32v.load_splat", [x], at);
    const all = Array.from({ length: BLOCK_COLS / 4 }, (_, v) => this.signs(x, t, v));
    return sumOfNegatives(this.#k, all);
  }

  /** Four quants of a token. */
  quants(x: Reg<"ptr">, t: number, column: number): Reg<"i8v"> {
    const at = t * this.blockBytes;
    return this.#replicated
      ? this.#k.op("i8v.load", [x], at + this.#k.width * (4 + column))
      : this.#k.op("i8v.load_splat32", [x], at + ACTIVATION_QUANTS_AT + 4 * column);
  }

  f32(x: Reg<"ptr">, t: number, field: number): Reg<"f32v"> {
    const at = t * this.blockBytes;
    return this.#replicated
      ? this.#k.op("f32v.load", [x], at + this.#k.width * field)
      : this.#k.op("f32v.load_splat", [x], at + 4 * field);
  }

  i32(x: Reg<"ptr">, t: number, field: number): Reg<"i32v"> {
    const at = t * this.blockBytes;
    return this.#replicated
      ? this.#k.op("i32v.load", [x], at + this.#k.width * field)
      : this.#k.op("i32v.load_splat", [x], at + 4 * field);
  }

  /** The sums of pairs of columns in a part of a block of a span of `span` blocks, beside products of two. */
  pairSums(x: Reg<"ptr">, t: number, part: number, parts: number, span: 1 | 8): Reg<"i16v"> {
    const field = (name: "sum" | "firstSum") =>
      this.#k.op("i32v.as_i16v", [this.i32(x, t, ACTIVATION_FIELDS[name])]);
    if (span === 1 || (parts === 2 && part === 0)) return field("firstSum");
    if (parts === 2) return field("sum");
    return this.#k.op("i16v.add", [field("firstSum"), field("sum")]);
  }

  /** The sum of the activations' quants in a part of a block. The second of two parts is the whole minus the first. */
  sum(x: Reg<"ptr">, t: number, part: number, parts: number): Reg<"i32v"> {
    if (parts === 1) return this.i32(x, t, ACTIVATION_FIELDS.sum);
    const first = this.i32(x, t, ACTIVATION_FIELDS.firstSum);
    if (part === 0) return first;
    return this.#k.op("i32v.sub", [this.i32(x, t, ACTIVATION_FIELDS.sum), first]);
  }
}

/** The even and the odd bytes of a vector as 16-bit integers. */
export function evenAndOdd(k: KernelBuilder, bytes: Reg<"i8v">): Reg<"i16v">[] {
  const both = k.op("i8v.as_i16v", [bytes]);
  const even = k.op("i16v.shr_s", [k.op("i16v.shl", [both], 8)], 8);
  return [even, k.op("i16v.shr_s", [both], 8)];
}

/** Bytes -127..127 as bytes 0..127, and -1 for each negative one, otherwise 0. */
export interface Signs {
  readonly magnitudes: Reg<"i8v">;
  readonly signs: Reg<"i8v">;
}

export function magnitudesAndSigns(k: KernelBuilder, bytes: Reg<"i8v">): Signs {
  const signs = k.op("i8v.sub", [k.op("i8v.splat", [], 0), k.op("i8v.shr_u", [bytes], 7)]);
  return { magnitudes: k.op("i8v.sub", [k.op("i8v.xor", [bytes, signs]), signs]), signs };
}

/** In each 32-bit lane, the sum of the magnitudes of its negative bytes in all vectors. */
export function sumOfNegatives(k: KernelBuilder, vectors: readonly Signs[]): Reg<"i32v"> {
  // A sign times a magnitude is the magnitude negated.
  const twos = vectors.map(({ signs, magnitudes }) => k.op("i16v.dot2", [signs, magnitudes]));
  const sum = twos.reduce((a, b) => k.op("i16v.add", [a, b]));
  return k.op("i32v.dot2", [sum, k.op("i32v.as_i16v", [k.op("i32v.const", [], -1)])]);
}
