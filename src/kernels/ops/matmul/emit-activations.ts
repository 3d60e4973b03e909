// What the tiled kernels read of activations in blocks (packed.ts), as IR: quants and fields, in every lane, whichever of
// the two styles they are stored in.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { ACTIVATION_FIELDS, ACTIVATION_QUANTS_AT, activationBlockBytes } from "../packed/packed.ts";

/** `x` points to a block of the first token; t counts the blocks behind it. */
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

  /** The sum of the activations' quants in a part of a block, as it is stored: the second of two is what the first leaves. */
  sum(x: Reg<"ptr">, t: number, part: number, parts: number): Reg<"i32v"> {
    if (parts === 1) return this.i32(x, t, ACTIVATION_FIELDS.sum);
    const first = this.i32(x, t, ACTIVATION_FIELDS.firstSum);
    if (part === 0) return first;
    return this.#k.op("i32v.sub", [this.i32(x, t, ACTIVATION_FIELDS.sum), first]);
  }
}
