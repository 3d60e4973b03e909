// Dawn's null device: it computes nothing and has every feature, also half floats and matrix units, which no software adapter has. Its
// compiler says whether it takes a kernel's text.

import { afterAll, expect, test } from "vitest";
import type { GpuAccess } from "../../src/platform/platform.ts";

const features = ["shader-f16", "subgroups", "chromium-experimental-subgroup-matrix"];

/** As a platform gives access to a GPU; a text: why there is none. */
export async function nullAccess(): Promise<GpuAccess> {
  const dawn = await import("webgpu").catch(() => undefined);
  if (!dawn) return "the npm package webgpu is not installed";
  const gpu = dawn.create(["backend=null", "enable-dawn-features=allow_unsafe_apis"]);
  return { gpu, softwareOnly: false };
}

/** Until the tests of the file end; a text: why there is none. */
export async function nullGpu(): Promise<GPUDevice | string> {
  const access = await nullAccess();
  if (typeof access === "string") return access;
  const { gpu } = access;
  const adapter = await gpu.requestAdapter();
  if (!adapter) return "this build of Dawn has no null device";
  const missing = features.filter((name) => !(adapter.features as ReadonlySet<string>).has(name));
  if (missing.length > 0) return `Dawn's null device has no ${missing.join(", ")}`;
  const device = await adapter.requestDevice({ requiredFeatures: features as GPUFeatureName[] });
  // A device lives no longer than the object that its adapter came from: where that was collected, the process dies.
  afterAll(() => {
    device.destroy();
    expect(gpu).toBeDefined();
  });
  return device;
}

/** A test for each type: that its kernels' texts compile. Where there is no null device, one that says why it is skipped. */
export async function testTexts(
  types: readonly string[],
  codesOf: (type: string) => Iterable<string>,
): Promise<void> {
  const device = await nullGpu();
  if (typeof device === "string") return void test.skip(`texts [skipped: ${device}]`, () => {});
  test.each(types)("text for %s", async (type) => {
    for (const code of codesOf(type)) {
      const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
      expect(messages.map(({ message }) => message)).toEqual([]);
    }
  });
}
