// kv_widen_<kv>: the rows of one head of a paged cache as float32, one after the other: out[p][i] = value i of row p.
//
// For many queries over the same rows (attention-prefill.ts): a row is then widened once for all of them, and rows that lie a power
// of 2 apart in the cache do not evict each other from the nearest one.
// Values are mixed with their scale in the score (attention-mix.ts), so widened values of a type with scales would give other bits:
// see mixesWidened().
// `cache` is the first row of the layer's first block, `headOffset` where the head starts in a row, in bytes; table, blocks,
// last, rowBytes as in kv-walk.ts. headDim is a multiple of the lanes (types with blocks: of 32).

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { type KernelMaker, lazily } from "../../ir/lazy-kernel.ts";
import { remainder } from "../loops.ts";
import type { KvFormat } from "./kv-format.ts";
import { kvFormats } from "./kv-formats.ts";
import { walkBlocks, walkRows } from "./kv-walk.ts";

/** Vectors per round of the loop over a row, where the format leaves the choice. */
const unroll = 4;

/** Each takes the bytes of a vector register. */
export const kvWidens: readonly KernelMaker[] = kvFormats.map((format) =>
  lazily(`kv_widen_${format.name}`, (width) => widenKernel(width, format)),
);

function widenKernel(width: number, format: KvFormat): Kernel {
  const k = new KernelBuilder(`kv_widen_${format.name}`, width);
  const cacheAt = k.param("ptr", "cache");
  const table = k.param("ptr", "table");
  const out = k.variable(k.param("ptr", "out"));
  const blocks = k.param("i32", "blocks");
  const last = k.param("i32", "last");
  const rowBytes = k.param("i32", "rowBytes");
  const headOffset = k.param("i32", "headOffset");
  const headDim = k.param("i32", "headDim");

  const reader = format.reader(k);
  const cache = k.op("ptr.add", [cacheAt, headOffset]);
  walkBlocks(k, { cache, table, blocks, last, rowBytes }, (range) => {
    walkRows(k, range, 1, ([row]) => {
      const from = k.variable(row!);
      let left = headDim;
      for (const vectors of format.blockValues ? [format.blockValues / k.lanes] : [unroll, 1]) {
        const values = vectors * k.lanes;
        const rounds = k.op("i32.shr_u", [left], Math.log2(values));
        k.loop(rounds, () => {
          const { load, scale } = reader(from);
          for (let i = 0; i < vectors; i++) {
            const value = scale ? k.op("f32v.mul", [load(i), scale]) : load(i);
            k.op("f32v.store", [out, value], i * k.width);
          }
          k.advance(from, format.bytes(values));
          k.advance(out, values * 4);
        });
        left = remainder(k, left, rounds, values);
      }
    });
  });
  return k.finish();
}

/** Whether attn_mix_many over widened values gives the bits of attn_mix over the cache. */
export function mixesWidened(type: string): boolean {
  return kvFormats.some(({ name, isScaled }) => name === type && !isScaled);
}
