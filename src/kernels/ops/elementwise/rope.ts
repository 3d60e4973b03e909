// rope_interleaved and rope_half: rotate the heads of one token. x and out: [heads, headDim]; of every head the first
// `dims` values are rotated, the rest is copied. In place allowed.
//
// The table holds cosines and sines of the token's position, computed once for all heads and layers:
//   interleaved  dims cosines, each twice (c0 c0 c1 c1 ...), then dims sines with their signs (-s0 s0 -s1 s1 ...), so
//                that out = x * cosines + neighbour * sines. dims must be a multiple of the lanes.
//   half         dims / 2 cosines, then dims / 2 sines. dims / 2 must be a multiple of the lanes.
// Products are rounded before they are added, as in graph/reference.ts.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { forEachVector, load, type Stream, store, stream } from "../loops.ts";

export function ropeInterleaved(width: number): Kernel {
  return ropeKernel("rope_interleaved", width, ({ k, x, out, table, dims }) => {
    const cos = stream(k, table);
    const sin = stream(k, k.at(table, dims, 4));
    forEachVector(k, dims, 2, [x, out, cos, sin], (i) => {
      const v = load(k, x, i);
      const straight = k.op("f32v.mul", [v, load(k, cos, i)]);
      const crossed = k.op("f32v.mul", [k.op("f32v.swap_pairs", [v]), load(k, sin, i)]);
      store(k, out, i, k.op("f32v.add", [straight, crossed]));
    });
  });
}

export function ropeHalf(width: number): Kernel {
  return ropeKernel("rope_half", width, ({ k, x, out, table, dims }) => {
    const pairs = k.op("i32.shr_u", [dims], 1);
    const cos = stream(k, table);
    const sin = stream(k, k.at(table, pairs, 4));
    const upper = stream(k, k.at(x.pointer, pairs, 4));
    const outUpper = stream(k, k.at(out.pointer, pairs, 4));
    forEachVector(k, pairs, 2, [x, out, upper, outUpper, cos, sin], (i) => {
      const [a, b] = [load(k, x, i), load(k, upper, i)];
      const [c, s] = [load(k, cos, i), load(k, sin, i)];
      store(k, out, i, k.op("f32v.sub", [k.op("f32v.mul", [a, c]), k.op("f32v.mul", [b, s])]));
      store(k, outUpper, i, k.op("f32v.add", [k.op("f32v.mul", [a, s]), k.op("f32v.mul", [b, c])]));
    });
    k.set(x.pointer, upper.pointer);
    k.set(out.pointer, outUpper.pointer);
  });
}

interface Rotation {
  k: KernelBuilder;
  /** Both point to the head's first value; the rotation moves them past the last value rotated. */
  x: Stream;
  out: Stream;
  table: Reg<"ptr">;
  dims: Reg<"i32">;
}

/** All heads: the rotation of the first dims values, then a copy of the others. */
function ropeKernel(name: string, width: number, rotate: (rotation: Rotation) => void): Kernel {
  const k = new KernelBuilder(name, width);
  const x = stream(k, k.param("ptr", "x"));
  const out = stream(k, k.param("ptr", "out"));
  const table = k.param("ptr", "table");
  const heads = k.param("i32", "heads");
  const headDim = k.param("i32", "headDim");
  const dims = k.param("i32", "dims");
  const rest = k.op("i32.sub", [headDim, dims]);
  k.loop(heads, () => {
    rotate({ k, x, out, table, dims });
    forEachVector(k, rest, 1, [x, out], (i) => store(k, out, i, load(k, x, i)));
  });
  return k.finish();
}

/** Floats that the table of one token takes. */
export function ropeTableSize(dims: number): number {
  return 2 * dims;
}

/** Fills one token's table, at target[at...], from the cosines and sines of its pairs: [dims / 2] each. */
export function ropeTable(
  layout: "interleaved" | "half",
  cos: Float32Array,
  sin: Float32Array,
  target: Float32Array,
  at: number,
): void {
  const pairs = cos.length;
  if (layout === "half") {
    target.set(cos, at);
    target.set(sin, at + pairs);
    return;
  }
  for (let pair = 0; pair < pairs; pair++) {
    const [even, odd] = [at + 2 * pair, at + 2 * pair + 1];
    target[even] = cos[pair]!;
    target[odd] = cos[pair]!;
    target[even + 2 * pairs] = -sin[pair]!;
    target[odd + 2 * pairs] = sin[pair]!;
  }
}
