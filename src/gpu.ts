// What GPU this machine has for backend "webgpu": a composition root as machine.ts is. Opens nothing and computes nothing.

import type { GpuInfo } from "./api.ts";
import { findGpu } from "./backends/webgpu/device.ts";
import { currentPlatform } from "./platform/current.ts";

/** The GPU, or a sentence that says why there is none. */
export async function gpuInfo(): Promise<GpuInfo | string> {
  const platform = await currentPlatform();
  return await findGpu(await platform.gpu());
}
