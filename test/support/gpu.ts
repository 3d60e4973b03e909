// The GPU for tests: this machine's own, or a software driver, which Dawn takes as any other. Where
// there is neither, what needs one is skipped, with the reason in the title.

import { describe, test } from "vitest";
import { cpuArithmetic } from "../../src/backends/cpu/arithmetic.ts";
import { findGpu, GpuDevice, type GpuDeviceOptions } from "../../src/backends/webgpu/device.ts";
import { checkExactness } from "../../src/backends/webgpu/exact/check.ts";
import { WebGpuBackend } from "../../src/backends/webgpu/webgpu.ts";
import { UsageError } from "../../src/base/errors.ts";
import type { Arithmetic } from "../../src/kernels/arithmetic.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { driverManifest } from "./gpu-drivers.ts";
import { nativeHere } from "./native.ts";

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

export async function openGpu(options?: GpuDeviceOptions): Promise<GpuDevice> {
  return await GpuDevice.open(await nodePlatform.gpu(), options);
}

export async function gpuBackend(options?: GpuDeviceOptions): Promise<WebGpuBackend> {
  return new WebGpuBackend(await openGpu(options));
}

/** Why this machine's adapter cannot give the processor's bits; undefined: it can. SwiftShader fuses no multiply-adds on x86-64, lavapipe none. */
export async function notExact(
  gpu: GpuDevice,
  arithmetic: Arithmetic,
): Promise<string | undefined> {
  try {
    await checkExactness(gpu, arithmetic);
    return undefined;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const reason = error.message.split(": a ", 1)[0]!;
    console.warn(`skipped: ${reason}`);
    return reason;
  }
}

/** The same for the kernels that this machine's processor runs. */
export async function notExactHere(): Promise<string | undefined> {
  const gpu = await openGpu();
  try {
    return await notExact(gpu, cpuArithmetic(nativeHere[0]?.native ?? "none"));
  } finally {
    gpu.dispose();
  }
}
