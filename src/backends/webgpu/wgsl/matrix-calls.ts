// Matrix units in WGSL: Chromium's experimental subgroup matrices, of 16 x 16 half floats with float32 sums. A matrix is held by the
// 32 lanes of a subgroup together; kernels name their types Left, Right and Sums.

/** Rows and columns of a subgroup matrix. */
export const UNIT = 16;

/**
 * The WGSL that declares, loads, multiplies and stores matrices; `at` and `pitch` count elements of the array; `vectors`: which ones, if they are
 * not those of the matrix. Tests have calls that need no matrix units (test/support/).
 */
export interface MatrixCalls {
  /** Extensions of WGSL. */
  readonly enables: string;
  /** Declares the types Left, Right and Sums. */
  readonly types: string;
  load(
    type: string,
    from: string,
    at: string,
    order: "row" | "col",
    pitch: number,
    vectors?: MatrixVectors,
  ): string;
  /** Sums plus left times right. */
  multiply(left: string, right: string, sums: string): string;
  store(to: string, at: string, value: string, pitch: number, vectors?: MatrixVectors): string;
}

/** 16 bytes, which are surely aligned: 8 half floats, or 4 floats. */
export type MatrixVectors = "vec4u" | "vec4f";

const chromium = {
  enables: "f16, subgroups, chromium_experimental_subgroup_matrix",
  types: `alias Left = subgroup_matrix_left<f16, ${UNIT}, ${UNIT}>;
alias Right = subgroup_matrix_right<f16, ${UNIT}, ${UNIT}>;
alias Sums = subgroup_matrix_result<f32, ${UNIT}, ${UNIT}>;`,
  multiply: (left: string, right: string, sums: string) =>
    `subgroupMatrixMultiplyAccumulate(${left}, ${right}, ${sums})`,
};

export const namedCalls: MatrixCalls = {
  ...chromium,
  load: (type, from, at, order, pitch) =>
    `subgroupMatrixLoad<${type}, ${order}_major>(${from}, ${at}, ${pitch}u)`,
  store: (to, at, value, pitch) =>
    `subgroupMatrixStore<row_major>(${to}, ${at}, ${value}, ${pitch}u)`,
};

/** The calls of older versions, in which the order of elements is no part of the name. */
const flaggedCalls: MatrixCalls = {
  ...chromium,
  load: (type, from, at, order, pitch) =>
    `subgroupMatrixLoad<${type}>(${from}, ${at}, ${order === "col"}, ${pitch}u)`,
  store: (to, at, value, pitch) => `subgroupMatrixStore(${to}, ${at}, ${value}, false, ${pitch}u)`,
};

/** The calls that this device's compiler knows, found by compiling a few lines; undefined: none of these. */
export async function matrixCallsOf(device: GPUDevice): Promise<MatrixCalls | undefined> {
  for (const calls of [namedCalls, flaggedCalls]) {
    device.pushErrorScope("validation");
    device.createShaderModule({
      code: `enable f16;
enable chromium_experimental_subgroup_matrix;
${chromium.types}
var<workgroup> tile: array<vec4u, 64>;
@compute @workgroup_size(32) fn main() {
  let m = ${calls.load("Left", "&tile", "0u", "row", 2, "vec4u")};
  let sums = Sums();
  ${calls.store("&tile", "0u", "sums", 4, "vec4u")};
}`,
    });
    if (!(await device.popErrorScope())) return calls;
  }
  return undefined;
}
