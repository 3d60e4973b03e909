// The GPU for tests: this machine's own, or a software driver, which Dawn takes as any other. Where
// there is neither, what needs one is skipped, with the reason in the title.

import { afterAll, describe, test } from "vitest";
import { findGpu, GpuDevice, type GpuDeviceOptions } from "../../src/backends/webgpu/device.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { driverManifest } from "./gpu-drivers.ts";
import { endSharedDevices, sharedDevices } from "./shared-device.ts";

const driver = driverManifest("swiftshader") ?? driverManifest("lavapipe");
if (!process.env.VK_ICD_FILENAMES && driver) process.env.VK_ICD_FILENAMES = driver;

const found = await findGpu(await nodePlatform.gpu());

/** Why there is no GPU; undefined: there is one. */
export const gpuLacks: string | undefined = typeof found === "string" ? found : undefined;

/** describe(), skipped with its reason where there is no GPU; the body then does not even run. */
export function describeGpu(title: string, body: () => void): void {
  if (typeof found !== "string") describe(title, body);
  else test.skip(`${title} [skipped: ${found}]`, () => {});
}

/** The same where there are half floats, which emulated matrix units are computed in: SwiftShader has none. */
export function describeHalves(title: string, body: () => void): void {
  if (typeof found === "string" || found.f16) describeGpu(title, body);
  else test.skip(`${title} [skipped: this adapter has no half floats]`, () => {});
}

// Registered before those of the tests, so that it comes after them.
afterAll(endSharedDevices);

/** A device that can be lost: the others share one. */
export async function openOwnGpu(): Promise<GpuDevice> {
  return await GpuDevice.open(await nodePlatform.gpu());
}

/** A device whose shaders are compiled once for all tests of a file. */
export async function openGpu(options?: GpuDeviceOptions): Promise<GpuDevice> {
  const access = await nodePlatform.gpu();
  return await GpuDevice.open(typeof access === "string" ? access : sharedDevices(access), options);
}

export async function gpuBackend(options?: GpuDeviceOptions): Promise<WebGpuBackend> {
  return new WebGpuBackend(await openGpu(options));
}
