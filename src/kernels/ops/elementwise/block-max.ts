// block_max: the maximum of each of `blocks` consecutive blocks of 64 values. NaN if a value of the block is not finite: a
// search for the best value then looks at all of them.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";

/** Values of a block. */
export const MAX_BLOCK = 64;

/** Maxima that do not wait for each other. */
const chains = 4;

export function blockMax(width: number): Kernel {
  const k = new KernelBuilder("block_max", width);
  const x = k.variable(k.param("ptr", "x"));
  const out = k.variable(k.param("ptr", "out"));
  const blocks = k.param("i32", "blocks");
  const zero = k.op("f32v.const", [], 0);
  const larger = (a: Reg<"f32v">, b: Reg<"f32v">) => k.op("f32v.max", [a, b]);

  k.loop(blocks, () => {
    const maxima: Reg<"f32v">[] = [];
    const zeros: Reg<"f32v">[] = []; // NaN where a value is not finite: f32v.max alone can lose it
    for (let i = 0; i < MAX_BLOCK / k.lanes; i++) {
      const at = i % chains;
      const values = k.op("f32v.load", [x], i * width);
      maxima[at] = i < chains ? values : larger(maxima[at]!, values);
      zeros[at] = k.op("f32v.fma", [values, zero, zeros[at] ?? zero]);
    }
    const max = larger(larger(maxima[0]!, maxima[1]!), larger(maxima[2]!, maxima[3]!));
    const low = k.op("f32v.add", [zeros[0]!, zeros[1]!]);
    const high = k.op("f32v.add", [zeros[2]!, zeros[3]!]);
    const checked = k.op("f32v.add", [max, k.op("f32v.add", [low, high])]);
    k.op("f32.store", [out, k.op("f32v.hmax", [checked])]);
    k.advance(x, MAX_BLOCK * 4);
    k.advance(out, 4);
  });
  return k.finish();
}
