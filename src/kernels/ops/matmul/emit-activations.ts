// Reads blocks of activations (packed.ts) for the tiled kernels, as IR: quants and fields, broadcast to every lane, in
// either of the two ways they are stored.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { ACTIVATION_FIELDS, ACTIVATION_QUANTS_AT, activationBlockBytes } from "../packed/packed.ts";

/** `x` points to a block of the first token; t counts blocks from there. */
export class ActivationReader {
  readonly blockBytes: number;
  readonly #k: KernelBuilder;
  readonly #replicated: boolean;

  constructor(k: KernelBuilder, replicated: boolean) {
    this.#k = k;
    this.#replicated = replicated;
    this.blockBytes = activationBlockBytes(replicated, k.width);
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

  /** The sum of the activations' quants in a part of a block. The second of two parts is the whole minus the first. */
  sum(x: Reg<"ptr">, t: number, part: number, parts: number): Reg<"i32v"> {
    if (parts === 1) return this.i32(x, t, ACTIVATION_FIELDS.sum);
    const first = this.i32(x, t, ACTIVATION_FIELDS.firstSum);
    if (part === 0) return first;
    return this.#k.op("i32v.sub", [this.i32(x, t, ACTIVATION_FIELDS.sum), first]);
  }
}
