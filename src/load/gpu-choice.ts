// Decides whether layers go to a GPU that was not demanded: "auto" takes a real GPU if there is one, and a number of layers without a GPU
// is a warning, as in llama.cpp. A demanded GPU (backend "webgpu", gpuFor) is left to choose-backend.ts, which reports a missing one.
//
// Nothing is loaded for a GPU that cannot be there: looking for a device file costs nothing, opening one takes a package of 130 MB.

import { backendByName } from "../backends/table.ts";
import { findGpu } from "../backends/webgpu/device.ts";
import type { Platform } from "../platform/platform.ts";

/** The options of open() that decide it. */
interface Asked {
  readonly backend?: string | undefined;
  readonly gpuLayers?: number | "all" | "auto" | undefined;
  readonly gpuFor?: string | undefined;
  readonly mostGpuLayers?: number | undefined;
}

export interface GpuChoice {
  readonly gpuLayers: Asked["gpuLayers"];
  /** For --explain. */
  readonly notes: readonly string[];
  /** Warnings about options that are not used as asked. */
  readonly warnings: readonly string[];
  /** Hints that would make the model faster. */
  readonly hints: readonly string[];
}

export async function chooseGpuLayers(
  { backend, gpuLayers, gpuFor, mostGpuLayers }: Asked,
  platform: Pick<Platform, "gpu" | "noGpu">,
): Promise<GpuChoice> {
  const said = { notes: [], warnings: [], hints: [] };
  const isDemanded = (backend !== undefined && backendByName(backend)?.usesGpu) || gpuFor;
  if (mostGpuLayers !== undefined) return { ...said, gpuLayers }; // it was used before, and had too little memory
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
    ? `"${found.name}" runs on the CPU, and slower than \`backend: "cpu"\` (LANTERN_GPU=software uses it anyway)`
    : undefined;
}
