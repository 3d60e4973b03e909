// The ladder search of src/dtypes/ladder-search.ts as a kernel: one tuple of 4 or 8 values that share a point, all scales of
// the ladder. Four points of a list are tried side by side, one in each lane, and each lane adds its terms in the order of the
// plain search: the same sums, and the same point.
//
// Memory, by the kernel's parameters:
//   input     values, roots, weights, products: 32 floats each, from the tuple's first on
//   ladder    (inverse, scale) for each scale
//   sums      (QX, QQ) for each scale: the sums that the tuple adds to
//   out       (point, quads of its list) for each scale
//   records   by key: the distance of its record in bytes. A record is quads (i32), then points (i32): the one that is
//             taken if none of the list is, then the list's points, four a quad; then their values, [quads, width, 4]
//   constants see kernelConstants
//   points    [points, width]: their values, 2 * digit + 1

import { largestFloat } from "../../dtypes/ladder-search.ts";
import { KernelBuilder } from "../../kernels/ir/builder.ts";
import type { Kernel, Reg } from "../../kernels/ir/kernel.ts";
import { type Floats, Lanes, width as vector } from "./lanes.ts";

/** Bytes from the values to the roots, and so on. */
export const inputStride: number = 4 * 32;

/** First the position of each digit in a key, for two vectors; then the order in a list of the first quad's points. */
export function kernelConstants(width: 4 | 8, bits: number): Int32Array {
  const floats = Float32Array.of(1, 2, 3, 4);
  const places = Array.from({ length: 8 }, (_, i) => (i < width ? 1 << (bits * i) : 0));
  return Int32Array.of(...places, ...new Int32Array(floats.buffer));
}

export function ladderKernel(name: string, width: 4 | 8, digitValues: number): Kernel {
  const k = new KernelBuilder(name, vector);
  const v = new Lanes(k);
  const input = k.param("ptr", "input");
  const ladder = k.param("ptr", "ladder");
  const sums = k.param("ptr", "sums");
  const out = k.param("ptr", "out");
  const records = k.param("ptr", "records");
  const constants = k.param("ptr", "constants");
  const points = k.param("ptr", "points");
  const scratch = k.param("ptr", "scratch");
  const count = k.param("i32", "count");
  const vectors = width / 4;
  const splat = (array: number, i: number): Floats =>
    k.op("f32v.load_splat", [input], array * inputStride + 4 * i);
  const values = Array.from({ length: width }, (_, i) => splat(0, i));
  const roots = Array.from({ length: width }, (_, i) => splat(1, i));
  k.loop(count, () => {
    const inverse = k.op("f32v.load_splat", [ladder], 0);
    const scale = k.op("f32v.load_splat", [ladder], 4);
    const key = keyOf(v, { input, constants, vectors, digitValues }, inverse);
    const offset = k.op("i32.load", [k.at(records, key, 4)], 0);
    const record = k.op("ptr.add", [records, offset]);
    const quads = k.op("i32.load", [record], 0);
    const place = bestPlace(v, { record, quads, constants, values, roots, scale });
    const point = k.op("i32.load", [k.op("ptr.add", [record, place])], 4);
    const q = k.op("ptr.add", [points, k.op("i32.mul", [point, k.i32(4 * width)])]);
    addTerms(v, { input, sums, scratch, q, vectors });
    k.op("i32.store", [out, point], 0);
    k.op("i32.store", [out, quads], 4);
    k.advance(ladder, 8);
    k.advance(sums, 8);
    k.advance(out, 8);
  });
  return k.finish();
}

/** The digits that the values round to. */
function keyOf(
  v: Lanes,
  of: { input: Reg<"ptr">; constants: Reg<"ptr">; vectors: number; digitValues: number },
  inverse: Floats,
): Reg<"i32"> {
  const { k } = v;
  const parts = Array.from({ length: of.vectors }, (_, i) => {
    const scaled = v.mul(inverse, v.load(of.input, i));
    const halved = v.mul(v.constant(0.5), v.sub(scaled, v.constant(1)));
    const digits = v.nearestInt(halved, 0, of.digitValues - 1);
    return k.op("i32v.mul", [digits, k.op("i32v.load", [of.constants], vector * i)]);
  });
  const [first, second] = parts;
  return k.op("i32v.sum", [second ? k.op("i32v.add", [first!, second]) : first!]);
}

/** Four times the index of the best point in a record's list; 0 for the one that is taken if none is. */
function bestPlace(
  v: Lanes,
  of: {
    record: Reg<"ptr">;
    quads: Reg<"i32">;
    constants: Reg<"ptr">;
    values: Floats[];
    roots: Floats[];
    scale: Floats;
  },
): Reg<"i32"> {
  const { k } = v;
  const { quads, values, roots, scale } = of;
  const best = k.variable(v.constant(largestFloat));
  const places = k.variable(v.constant(0));
  const next = k.variable(k.op("f32v.load", [of.constants], 2 * vector));
  // Behind quads, the first point and the list's.
  const lists = k.variable(k.plus(k.at(of.record, quads, vector), 8));
  k.loop(quads, () => {
    let sum: Floats | undefined;
    values.forEach((value, i) => {
      const error = v.sub(v.mul(scale, v.load(lists, i)), value);
      const term = v.mul(v.mul(roots[i]!, error), error);
      sum = sum ? v.add(sum, term) : term;
    });
    const isBetter = v.lt(sum!, best);
    v.take(best, isBetter, sum!);
    v.take(places, isBetter, next);
    k.set(next, v.add(next, v.constant(4)));
    k.advance(lists, vector * values.length);
  });
  // Of the smallest sums, the one that is first in the list.
  const negated = k.op("f32v.neg", [best]);
  const isLarger = v.lt(negated, k.op("f32v.splat", [k.op("f32v.hmax", [negated])]));
  const candidates = v.select(isLarger, v.constant(1e9), places);
  const first = k.op("f32v.hmax", [k.op("f32v.neg", [candidates])]);
  const place = k.op("i32v.from_f32v", [k.op("f32v.neg", [k.op("f32v.splat", [first])])]);
  return k.op("i32v.sum", [place]);
}

/** Adds a point's terms to the sums, value by value. */
function addTerms(
  v: Lanes,
  of: {
    input: Reg<"ptr">;
    sums: Reg<"ptr">;
    scratch: Reg<"ptr">;
    q: Reg<"ptr">;
    vectors: number;
  },
): void {
  const { k } = v;
  for (let i = 0; i < of.vectors; i++) {
    const q = v.load(of.q, i);
    const weights = k.op("f32v.load", [of.input], 2 * inputStride + vector * i);
    const products = k.op("f32v.load", [of.input], 3 * inputStride + vector * i);
    v.store(of.scratch, i, v.mul(products, q));
    v.store(of.scratch, of.vectors + i, v.mul(v.mul(weights, q), q));
  }
  for (let sum = 0; sum < 2; sum++) {
    let total = k.op("f32.load", [of.sums], 4 * sum);
    for (let i = 0; i < 4 * of.vectors; i++) {
      const term = k.op("f32.load", [of.scratch], vector * of.vectors * sum + 4 * i);
      total = k.op("f32.add", [total, term]);
    }
    k.op("f32.store", [of.sums, total], 4 * sum);
  }
}
