// Matrix units for GPUs without: of a product, a lane computes eight elements, and holds what it needs of both factors. Slow, but
// without barriers, which a software driver takes long to compile.

import { type MatrixCalls, UNIT } from "../../src/backends/webgpu/wgsl/matrix-calls.ts";
import { SUBGROUP } from "../../src/backends/webgpu/wgsl/subgroups.ts";

/** Elements of a lane: those of one column, in every second row. */
const ELEMENTS = (UNIT * UNIT) / SUBGROUP;
const ROWS_APART = SUBGROUP / UNIT;
const column = `lane % ${UNIT}u`;
const row = (i: number): string => `(${i * ROWS_APART}u + lane % ${SUBGROUP}u / ${UNIT}u)`;
const many = (count: number, text: (i: number) => string, between: string): string =>
  Array.from({ length: count }, (_, i) => text(i)).join(between);

export const emulatedMatrices: MatrixCalls = {
  enables: "f16, subgroups",
  types: `alias Left = array<f32, ${ELEMENTS * UNIT}>; // the rows of the lane's elements
alias Right = array<f32, ${UNIT}>; // its column
alias Sums = array<f32, ${ELEMENTS}>;
fn multiplied(left: Left, right: Right, sums: Sums) -> Sums {
  var found = sums;
  ${many(ELEMENTS, (i) => `for (var k = 0u; k < ${UNIT}u; k++) { found[${i}] += left[${i * UNIT}u + k] * right[k]; }`, "\n  ")}
  return found;
}`,
  load(type, from, at, order, pitch, vectors) {
    const array = from.slice(1);
    /** An element by its row and column in memory. */
    const inMemory = (r: string, c: string | number): string => {
      if (!vectors) return `f32(${array}[(${at}) + ${r} * ${pitch}u + ${c}${plain(c)}])`;
      if (type === "Sums") return `${array}[(${at}) + ${r} * ${pitch}u + ${c} / 4u][${c} % 4u]`;
      return halfText(`bitcast<vec4u>(${array}[(${at}) + ${r} * ${pitch}u + ${vectorOf(c)}])`, c);
    };
    const element = (r: string, c: string): string =>
      order === "row" ? inMemory(r, known(c)) : inMemory(c, known(r));
    if (type === "Sums") {
      return `Sums(${many(ELEMENTS, (i) => inMemory(row(i), `(${column})`), ", ")})`;
    }
    if (type === "Right")
      return `Right(${many(UNIT, (k) => element(`${k}u`, `(${column})`), ", ")})`;
    const of = (n: number): string => element(row(Math.floor(n / UNIT)), `${n % UNIT}u`);
    return `Left(${many(ELEMENTS * UNIT, of, ", ")})`;
  },
  multiply: (left, right, sums) => `multiplied(${left}, ${right}, ${sums})`,
  store(to, at, value, pitch, vectors) {
    const array = to.slice(1);
    const own = vectors
      ? (i: number) => `(${at}) + ${row(i)} * ${pitch}u + ${column} / 4u][${column} % 4u`
      : (i: number) => `(${at}) + ${row(i)} * ${pitch}u + ${column}`;
    const stored = (i: number): string =>
      vectors === "vec4u" ? `bitcast<u32>(${value}[${i}])` : `${value}[${i}]`;
    return many(ELEMENTS, (i) => `${array}[${own(i)}] = ${stored(i)}`, "; ");
  },
};

/** A column that is a number where it is one, so that a driver finds out which elements are of the same vector. */
const known = (c: string): string | number => (/^\d+u$/.test(c) ? Number.parseInt(c, 10) : c);
const plain = (c: string | number): string => (typeof c === "number" ? "u" : "");
const vectorOf = (c: string | number): string =>
  typeof c === "number" ? `${Math.floor(c / 8)}u` : `${c} / 8u`;
const halfText = (vector: string, c: string | number): string =>
  typeof c === "number"
    ? `unpack2x16float(${vector}[${Math.floor(c / 2) % 4}])[${c % 2}]`
    : `unpack2x16float(${vector}[${c} / 2u % 4u])[${c} % 2u]`;
