// The loop over slabs, as IR. A slab is some spans of a row panel, which a kernel unpacks and then uses for all tokens
// (matmul/amx.ts, matmul/i8mm.ts).

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import type { SignedQuants } from "./signed-quants.ts";

/** The pointers of such a kernel, and the values that stay the same for all slabs. */
export interface SlabWalk {
  /** Variables: the slab's weights, and the activations of its columns in the first token tile. */
  readonly w: Reg<"ptr">;
  readonly x: Reg<"ptr">;
  readonly tokenTiles: Reg<"i32">;
  /** Bytes of activations from one token tile to the next. */
  readonly tileStep: Reg<"i32">;
  readonly scratch: Reg<"ptr">;
  readonly quants: SignedQuants;
}

/**
 * Calls visit in a loop over slabs of `inSlab` spans (a power of 2), with the number of spans: the first slab has the
 * remainder.
 */
export function forEachSlab(
  k: KernelBuilder,
  spans: Reg<"i32">,
  inSlab: number,
  visit: (count: Reg<"i32">) => void,
): void {
  const { first, more } = inSlab === 1 ? singles(k, spans) : cut(k, spans, inSlab);
  const count = k.variable(first, "count");
  k.loop(k.op("i32.add", [more, k.i32(1)]), () => {
    visit(count);
    k.set(count, k.i32(inSlab));
  });
}

/** Spans of the first slab, and the number of slabs after it. */
interface Cut {
  readonly first: Reg<"i32">;
  readonly more: Reg<"i32">;
}

function cut(k: KernelBuilder, spans: Reg<"i32">, inSlab: number): Cut {
  const more = k.op("i32.shr_u", [k.op("i32.sub", [spans, k.i32(1)])], Math.log2(inSlab));
  return { first: k.op("i32.sub", [spans, k.op("i32.mul", [more, k.i32(inSlab)])]), more };
}

function singles(k: KernelBuilder, spans: Reg<"i32">): Cut {
  return { first: k.i32(1), more: k.op("i32.sub", [spans, k.i32(1)]) };
}
