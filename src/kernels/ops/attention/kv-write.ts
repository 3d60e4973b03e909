// The kernels that write the KV cache. store_f16: n float32 values as half floats. quantize_kv_q8_0: n values (a multiple
// of 32) as ggml's q8_0 blocks. Unlike dtypes/q8_0.ts, ties round to even: rounding them away from zero costs more and is
// no closer. Both store the largest magnitude of the n values, too: the cache may not hold it.
// For vectors of at most 32 bytes.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { forEachVector, load, stream } from "../loops.ts";

const blockValues = 32;
const blockBytes = 34;

export function storeF16(width: number): Kernel {
  const k = new KernelBuilder("store_f16", width);
  const x = stream(k, k.param("ptr", "x"));
  const out = stream(k, k.param("ptr", "out"), 2);
  const n = k.param("i32", "n");
  const largestAt = k.param("ptr", "largest");
  const largest = k.variable(k.op("f32v.const", [], 0), "largest");
  forEachVector(k, n, 2, [x, out], (i) => {
    const values = load(k, x, i);
    k.op("f32v.store_f16", [out.pointer, values], i * out.step);
    k.update(largest, "f32v.max", [largest, k.op("f32v.abs", [values])]);
  });
  k.op("f32.store", [largestAt, k.op("f32v.hmax", [largest])]);
  return k.finish();
}

export function quantizeKvQ8_0(width: number): Kernel {
  const k = new KernelBuilder("quantize_kv_q8_0", width);
  const x = k.variable(k.param("ptr", "x"));
  const out = k.variable(k.param("ptr", "out"));
  const n = k.param("i32", "n");
  const largestAt = k.param("ptr", "largest");
  const largestOfAll = k.variable(k.f32(0), "largest");
  k.loop(k.op("i32.shr_u", [n], Math.log2(blockValues)), () => {
    const vectors = Array.from({ length: blockValues / k.lanes }, (_, i) =>
      k.op("f32v.load", [x], i * width),
    );
    const magnitudes = vectors.map((v) => k.op("f32v.abs", [v]));
    const largest = k.op("f32v.hmax", [pairwise(magnitudes, (a, b) => k.op("f32v.max", [a, b]))]);
    k.update(largestOfAll, "f32.max", [largestOfAll, largest]);
    const scale = k.op("f32.div", [largest, k.f32(127)]);
    // A block of zeros: any finite inverse gives quants of 0.
    const inverse = k.op("f32.div", [k.f32(1), k.op("f32.max", [scale, k.f32(2 ** -126)])]);
    const factor = k.op("f32v.splat", [inverse]);
    // The scale is written in every lane; the quants overwrite all but the first.
    k.op("f32v.store_f16", [out, k.op("f32v.splat", [scale])]);
    const quants = vectors.map((v) => k.op("i32v.from_f32v", [k.op("f32v.mul", [v, factor])]));
    for (let i = 0; i < quants.length; i += 4) {
      const [a, b, c, d] = quants.slice(i, i + 4) as [I32, I32, I32, I32];
      k.op("i8v.store", [out, k.op("i8v.pack_i32", [a, b, c, d])], 2 + i * k.lanes);
    }
    k.advance(x, blockValues * 4);
    k.advance(out, blockBytes);
  });
  k.op("f32.store", [largestAt, largestOfAll]);
  return k.finish();
}

type I32 = Reg<"i32v">;

function pairwise<T>(items: readonly T[], combine: (a: T, b: T) => T): T {
  if (items.length === 1) return items[0]!;
  const half = items.length / 2;
  return pairwise(
    items.slice(0, half).map((item, i) => combine(item, items[half + i]!)),
    combine,
  );
}
