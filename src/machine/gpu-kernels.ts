// WGSL kernels that measure a GPU: reading a buffer, and multiply-adds of each number type. Their results are not
// used, but depend on every operation, so that no compiler removes one.
//
// Text only: gpu-rates.ts runs and times them.

import type { MatrixCalls } from "../backends/webgpu/wgsl/matrix-calls.ts";
import { SUBGROUP } from "../backends/webgpu/wgsl/subgroups.ts";

/** Threads of a workgroup. */
export const MEASURE_LANES = 256;

/** Independent sums per lane, so that no operation waits for the one before it. */
const CHAINS = 8;

export interface MeasureKernel {
  readonly code: string;
  /** Bytes that a workgroup reads, or operations that it computes. */
  readonly workOfGroup: number;
}

const each = (count: number, text: (i: number) => string): string =>
  Array.from({ length: count }, (_, i) => text(i)).join("\n    ");

/**
 * `groups` workgroups read a buffer of `setBytes` repeatedly, `loads` times 16 bytes per lane. Both are powers of two.
 */
export function readKernel(setBytes: number, groups: number, loads: number): MeasureKernel {
  const stride = MEASURE_LANES * groups;
  const mask = setBytes / 16 - 1;
  const code = `
@group(0) @binding(0) var<storage, read> data: array<vec4u>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(${MEASURE_LANES})
fn main(@builtin(global_invocation_id) id: vec3u) {
  var all = vec4u();
  for (var i = 0u; i < ${loads}u; i += 4u) {
    let at = id.x + i * ${stride}u;
    let a = data[at & ${mask}u];
    let b = data[(at + ${stride}u) & ${mask}u];
    let c = data[(at + ${2 * stride}u) & ${mask}u];
    let d = data[(at + ${3 * stride}u) & ${mask}u];
    all = all + (a ^ b) + (c ^ d);
  }
  if ((all.x ^ all.y ^ all.z ^ all.w) == 0x12345u) { result[id.x % 64u] = 1u; }
}`;
  return { code, workOfGroup: MEASURE_LANES * loads * 16 };
}

/** Multiply-adds of vec4, of floats or half floats. */
export function floatKernel(bits: 32 | 16, rounds: number): MeasureKernel {
  const type = `f${bits}`;
  const vector = `vec4<${type}>`;
  const code = `${bits === 16 ? "enable f16;" : ""}
@group(0) @binding(0) var<storage, read> data: array<vec4u>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(${MEASURE_LANES})
fn main(@builtin(global_invocation_id) id: vec3u) {
  let factor = ${vector}(vec4f(data[0])) + ${type}(0.5);
  let added = ${vector}(vec4f(data[1])) + ${type}(0.25);
  ${each(CHAINS, (i) => `var sum${i} = ${vector}(${type}(id.x % 64u + ${i}u));`)}
  for (var round = 0u; round < ${rounds}u; round++) {
    ${each(CHAINS, (i) => `sum${i} = sum${i} * factor + added;`)}
  }
  let all = ${each(CHAINS, (i) => `${i > 0 ? "+ " : ""}sum${i}`)};
  if (f32(all.x + all.y + all.z + all.w) == 12345.0) { result[id.x % 64u] = 1u; }
}`;
  return { code, workOfGroup: MEASURE_LANES * rounds * CHAINS * 4 * 2 };
}

/** dot4I8Packed: four products of 8-bit numbers, and their sum. */
export function int8Kernel(rounds: number): MeasureKernel {
  const code = `
@group(0) @binding(0) var<storage, read> data: array<vec4u>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;
@compute @workgroup_size(${MEASURE_LANES})
fn main(@builtin(global_invocation_id) id: vec3u) {
  let factor = data[0].x + 0x01020304u;
  ${each(CHAINS, (i) => `var sum${i} = i32(id.x + ${i}u);`)}
  for (var round = 0u; round < ${rounds}u; round++) {
    ${each(CHAINS, (i) => `sum${i} += dot4I8Packed(u32(sum${i}), factor);`)}
  }
  let all = ${each(CHAINS, (i) => `${i > 0 ? "^ " : ""}sum${i}`)};
  if (all == 0x12345) { result[id.x % 64u] = 1u; }
}`;
  return { code, workOfGroup: MEASURE_LANES * rounds * CHAINS * 8 };
}

/** Rows and columns of the matrices that a matrix unit multiplies. */
const UNIT = 16;

/** Products of 16 x 16 half floats with float sums: every subgroup of 32 lanes has its own sums. */
export function matrixKernel(rounds: number, calls: MatrixCalls): MeasureKernel {
  const load = (type: string, at: number): string =>
    calls.load(type, "&tile", `${at}u`, "row", UNIT);
  const code = `diagnostic(off, chromium.subgroup_matrix_uniformity);
enable f16, subgroups, chromium_experimental_subgroup_matrix;
alias Left = subgroup_matrix_left<f16, ${UNIT}, ${UNIT}>;
alias Right = subgroup_matrix_right<f16, ${UNIT}, ${UNIT}>;
alias Sums = subgroup_matrix_result<f32, ${UNIT}, ${UNIT}>;
@group(0) @binding(0) var<storage, read> data: array<vec4u>;
@group(0) @binding(1) var<storage, read_write> result: array<u32>;
var<workgroup> tile: array<f16, ${2 * UNIT * UNIT}>;
var<workgroup> sums: array<f32, ${(MEASURE_LANES / SUBGROUP) * UNIT * UNIT}>;
@compute @workgroup_size(${MEASURE_LANES})
fn main(
  @builtin(global_invocation_id) id: vec3u,
  @builtin(local_invocation_index) lane: u32,
) {
  tile[lane] = f16(data[0].x + lane % 3u);
  tile[lane + ${UNIT * UNIT}u] = f16(data[1].x + lane % 5u);
  workgroupBarrier();
  let subgroup = lane / ${SUBGROUP}u;
  let left = ${load("Left", 0)};
  let right = ${load("Right", UNIT * UNIT)};
  ${each(CHAINS, (i) => `var sum${i} = Sums();`)}
  for (var round = 0u; round < ${rounds}u; round++) {
    ${each(CHAINS, (i) => `sum${i} = subgroupMatrixMultiplyAccumulate(left, right, sum${i});`)}
  }
  var all = 0.0;
  ${each(
    CHAINS,
    (i) => `${calls.store("&sums", `subgroup * ${UNIT * UNIT}u`, `sum${i}`, UNIT)};
    workgroupBarrier();
    all += sums[lane * ${MEASURE_LANES / SUBGROUP}u] + f32(${i});
    workgroupBarrier();`,
  )}
  if (all == 12345.0) { result[id.x % 64u] = 1u; }
}`;
  return {
    code,
    workOfGroup: (MEASURE_LANES / SUBGROUP) * rounds * CHAINS * UNIT * UNIT * UNIT * 2,
  };
}
