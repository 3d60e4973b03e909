// Whether layers go to a GPU where one was not demanded: "auto" takes a real GPU where there is one, and a number of layers without a
// GPU is a warning, as in llama.cpp. What is demanded (backend "webgpu", gpuFor) is left to choose-backend.ts, which says what is missing.
//
// Nothing is loaded for a GPU that cannot be there: looking for a device file costs nothing, opening one takes a package of 130 MB.

import { backendByName } from "../backends/table.ts";
import { findGpu } from "../backends/webgpu/device.ts";
import type { Platform } from "../platform/platform.ts";

/** What was asked for: of the options of open(), those that decide it. */
interface Asked {
  readonly backend: string | undefined;
  readonly gpuLayers: number | "all" | "auto" | undefined;
  readonly gpuFor?: string | undefined;
}

export interface GpuChoice {
  readonly gpuLayers: Asked["gpuLayers"];
  /** For --explain. */
  readonly notes: readonly string[];
  /** What was asked for and is not done. */
  readonly warnings: readonly string[];
  /** What would make the model faster. */
  readonly hints: readonly string[];
}

export async function chooseGpuLayers(
  { backend, gpuLayers, gpuFor }: Asked,
  platform: Pick<Platform, "gpu" | "noGpu">,
): Promise<GpuChoice> {
  const said = { notes: [], warnings: [], hints: [] };
  const isDemanded = (backend !== undefined && backendByName(backend)?.usesGpu) || gpuFor;
  if (isDemanded || gpuLayers === undefined || gpuLayers === 0) return { ...said, gpuLayers };
  if (gpuLayers !== "auto") {
    const found = await findGpu(await platform.gpu());
    if (typeof found !== "string") return { ...said, gpuLayers };
    const warning = `gpuLayers: got ${gpuLayers}, but no GPU can be used (${found}), so the processor computes all layers. "lantern devices" shows what was found`;
    return { ...said, gpuLayers: 0, warnings: [warning] };
  }
  const absent = platform.noGpu();
  if (absent !== undefined) return { ...said, gpuLayers: 0, notes: [noLayers(absent)] };
  const access = await platform.gpu();
  if (typeof access === "string") {
    const hints = [`this machine has a GPU that is not used: ${access}`];
    return { ...said, gpuLayers: 0, notes: [noLayers(access)], hints };
  }
  const reason = whyNotAuto(await findGpu(access), access.softwareOnly);
  return reason === undefined
    ? { ...said, gpuLayers }
    : { ...said, gpuLayers: 0, notes: [noLayers(reason)] };
}

function noLayers(reason: string): string {
  return `no layers on a GPU: ${reason}`;
}

/** Why "auto" does not use this GPU; undefined: it does. */
export function whyNotAuto(
  found: Awaited<ReturnType<typeof findGpu>>,
  softwareOnly: boolean,
): string | undefined {
  if (typeof found === "string") return found;
  return found.isSoftware && !softwareOnly
    ? `"${found.name}" runs on the CPU, and slower than backend "cpu" (LANTERN_GPU=software uses it anyway)`
    : undefined;
}
