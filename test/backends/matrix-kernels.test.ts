// The kernels of prompts on matrix units: that Dawn's compiler takes them for every type, on its null device, which computes nothing
// and has matrix units; and which batch sizes each is for. What they compute: webgpu-matrices.test.ts.

import { expect, test } from "vitest";
import type { Kernel } from "../../src/backends/webgpu/wgsl/kernel.ts";
import { matmulMatricesKernels } from "../../src/backends/webgpu/wgsl/matmul-matrices.ts";
import { matrixCallsOf, namedCalls } from "../../src/backends/webgpu/wgsl/matrix-calls.ts";
import {
  fittingMatrices,
  type MatrixShape,
  matrixShapes,
  wideMatrixShapes,
} from "../../src/backends/webgpu/wgsl/matrix-shapes.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import { nullGpu } from "../support/null-gpu.ts";

const LEAST = 33;
/** An H200's workgroup memory, and that of a GPU in Chromium. */
const memories = [49_152, 32_768];
/** Rows, columns, and parts of the columns. */
const sizes = [
  [4096, 4096, 2],
  [22_016, 4096, 1], // much of the last round would be lost
  [4096, 11_008, 2],
  [100, 192, 1], // not a multiple of 128
] as const;

function kernelsOf(type: string, rows: number, cols: number, bytes: number): Kernel[] {
  const g = new GraphBuilder();
  const dtype = dtypeByName(type)!;
  const x = g.embed({ name: "table", shape: [8, cols], dtype: dtypeByName("f32")! }, "embed");
  const weight = { name: "w", shape: [rows, cols], dtype };
  const out = g.matmul(x, weight, "out");
  const fitting = (shapes: readonly MatrixShape[]) =>
    shapes.map((shape) => fittingMatrices(shape, bytes)).filter((shape) => shape !== undefined);
  const matmul = { op: "matmul", name: "out", x, weight, bias: undefined, out } as const;
  const part = { rows, rowStart: 0 } as Parameters<typeof matmulMatricesKernels>[1];
  const [shapes, wideShapes] = [fitting(matrixShapes), fitting(wideMatrixShapes)];
  const matrices = { shapes, wideShapes, calls: namedCalls, bytes };
  return matmulMatricesKernels({ x, matmuls: [matmul] }, part, 0, matrices, LEAST);
}

const cases = memories.flatMap((bytes) =>
  sizes.map(([rows, cols, parts]) => [rows, cols, bytes, parts] as const),
);

test.each(cases)("[%i, %i] with %i bytes: one kernel for every batch size", (rows, cols, bytes) => {
  const kernels = kernelsOf("q4_0", rows, cols, bytes);
  expect(kernels[0]!.minRows).toBe(LEAST);
  expect(kernels.at(-1)!.maxRows).toBe(Infinity);
  for (const [i, { minRows }] of kernels.slice(1).entries()) {
    expect(minRows).toBe(kernels[i]!.maxRows + 1);
  }
});

test("with 16 KiB of workgroup memory there is none", () => {
  expect(matrixShapes.map((shape) => fittingMatrices(shape, 16_384))).toEqual([
    undefined,
    undefined,
  ]);
});

// The order of sums would depend on the batch otherwise.
test.each(cases)(
  "[%i, %i] with %i bytes: all split the columns alike",
  (rows, cols, bytes, parts) => {
    const columns = kernelsOf("q4_0", rows, cols, bytes).map(
      ({ code }) => /let firstColumn = share \* (\d+)u;/.exec(code)![1],
    );
    expect(new Set(columns)).toEqual(new Set([String(cols / parts)]));
  },
);

const device = await nullGpu();

if (typeof device === "string") test.skip(`texts [skipped: ${device}]`, () => {});
else {
  const refusal = async (code: string): Promise<string | undefined> => {
    device.pushErrorScope("validation");
    device.createShaderModule({ code });
    return (await device.popErrorScope())?.message;
  };

  test("matrices are loaded from arrays of 16 bytes", async () => {
    expect(await matrixCallsOf(device)).toBe(namedCalls);
  });

  test.each(["q4_0", "q4_1", "q8_0", "q4_k", "q6_k", "f16", "q5_0"])("%s", async (type) => {
    for (const bytes of memories) {
      for (const { name, code } of kernelsOf(type, 4096, 4096, bytes)) {
        expect(await refusal(code), name).toBeUndefined();
      }
    }
  });
}
