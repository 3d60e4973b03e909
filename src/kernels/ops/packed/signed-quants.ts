// Turns quants into the signed bytes that they stand for, as IR: by a lookup in the codebook of their type, or by subtracting
// their offset. For kernels that unpack quants once and multiply them often (matmul/amx.ts, matmul/i8mm.ts); dot4.ts
// corrects its sums for the offset instead.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import type { BlockLayout } from "./packed.ts";

export class SignedQuants {
  readonly #k: KernelBuilder;
  /** Subtracted from every quant; undefined: there is none, or it is subtracted from the codebook. */
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

  value(quants: Reg<"i8v">): Reg<"i8v"> {
    if (this.#codebook) return this.#k.op("i8v.lookup16", [this.#codebook, quants]);
    return this.#offset ? this.#k.op("i8v.sub", [quants, this.#offset]) : quants;
  }
}
