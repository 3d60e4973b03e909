// The measuring kernels of a GPU, checked by Dawn's own compiler on its null device: it computes nothing and has every feature,
// also half floats and matrix units, which no software adapter has. That they measure right is not shown by it.

import { expect, test } from "vitest";
import { matrixCallsOf } from "../../src/backends/webgpu/wgsl/matrix-calls.ts";
import {
  floatKernel,
  int8Kernel,
  matrixKernel,
  readKernel,
} from "../../src/machine/gpu-kernels.ts";
import { nullGpu } from "../support/null-gpu.ts";

const device = await nullGpu();

if (typeof device === "string") test.skip(`measuring kernels [skipped: ${device}]`, () => {});
else {
  const kernels = {
    read: readKernel(2 ** 30, 4096, 64),
    "read from a cache": readKernel(2 ** 25, 1024, 256),
    floats: floatKernel(32, 256),
    halves: floatKernel(16, 256),
    int8: int8Kernel(256),
    matrices: matrixKernel(256, (await matrixCallsOf(device))!),
  };

  /** What is wrong with a text; undefined: nothing. */
  const compile = async (code: string): Promise<string | undefined> => {
    device.pushErrorScope("validation");
    const module = device.createShaderModule({ code });
    const compute = { module, entryPoint: "main" };
    const refused = await device
      .createComputePipelineAsync({ layout: "auto", compute })
      .then(() => undefined)
      .catch((error: Error) => error.message);
    return (await device.popErrorScope())?.message ?? refused;
  };

  test.each(Object.entries(kernels))("%s: compiles", async (_, { code, workOfGroup }) => {
    expect(await compile(code)).toBeUndefined();
    expect(workOfGroup).toBeGreaterThan(0);
  });

  test("a wrong text does not", async () => {
    expect(await compile(kernels.floats.code.replace("vec4<f32>", "vec5<f32>"))).toContain("vec5");
  });
}
