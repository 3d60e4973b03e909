// Matrix units for GPUs without: of a product, a lane computes eight elements, and holds what it needs of both factors. Slow, but
// without barriers, which a software driver takes long to compile.

import { type MatrixCalls, UNIT } from "../../src/backends/webgpu/wgsl/matrix-calls.ts";
import { TEAM } from "../../src/backends/webgpu/wgsl/teams.ts";

/** Elements of a lane: those of one column, in every second row. */
const ELEMENTS = (UNIT * UNIT) / TEAM;
const ROWS_APART = TEAM / UNIT;
const column = `lane % ${UNIT}u`;
const row = (i: number): string => `(${i * ROWS_APART}u + lane % ${TEAM}u / ${UNIT}u)`;
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
  load(type, from, at, order, pitch) {
    const [across, down] = order === "row" ? [1, pitch] : [pitch, 1];
    const element = (r: string, c: string): string =>
      `f32(${from.slice(1)}[(${at}) + (${r}) * ${down}u + (${c}) * ${across}u])`;
    if (type === "Right") return `Right(${many(UNIT, (k) => element(`${k}u`, column), ", ")})`;
    const of = (n: number): string => element(row(Math.floor(n / UNIT)), `${n % UNIT}u`);
    return `Left(${many(ELEMENTS * UNIT, of, ", ")})`;
  },
  multiply: (left, right, sums) => `multiplied(${left}, ${right}, ${sums})`,
  store: (to, at, value, pitch) =>
    many(
      ELEMENTS,
      (i) => `${to.slice(1)}[(${at}) + ${row(i)} * ${pitch}u + ${column}] = ${value}[${i}]`,
      "; ",
    ),
};
