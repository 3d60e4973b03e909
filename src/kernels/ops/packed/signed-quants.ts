// Quants as the signed bytes that they stand for, as IR: looked up in the codebook of their type, or with their offset taken
// out. For kernels that unpack quants once and multiply them often (matmul/amx.ts, matmul/i8mm.ts); others take the offset
// out of the products.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import type { BlockLayout } from "./packed.ts";

export class SignedQuants {
  readonly #k: KernelBuilder;
  /** Taken out of every code; undefined: there is none, or the codebook has it taken out already. */
  readonly #offset: Reg<"i8v"> | undefined;
  readonly #codebook: Reg<"i8v"> | undefined;

  /** `codebook` is the address of the codebook of a layout with a lookup, and not read otherwise. */
  constructor(k: KernelBuilder, { offset, lookup }: BlockLayout, codebook: Reg<"ptr">) {
    this.#k = k;
    const taken = offset === 0 ? undefined : k.op("i8v.splat", [], offset);
    if (!lookup) this.#offset = taken;
    else {
      const stored = k.op("i8v.load", [codebook]);
      this.#codebook = taken ? k.op("i8v.sub", [stored, taken]) : stored;
    }
  }

  value(code: Reg<"i8v">): Reg<"i8v"> {
    if (this.#codebook) return this.#k.op("i8v.lookup16", [this.#codebook, code]);
    return this.#offset ? this.#k.op("i8v.sub", [code, this.#offset]) : code;
  }
}
