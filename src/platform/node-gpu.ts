// WebGPU in Node: Dawn, from the npm package `webgpu`. The package is optional and large, so it is loaded only when a
// GPU is requested.
//
// LANTERN_GPU=off: no GPU; =software: an adapter that computes on the processor; anything else: the first adapter whose name
// contains it. LANTERN_GPU_MEMORY=4096: the MiB of GPU memory that may be used, which WebGPU does not report. LANTERN_LOOKAHEAD=0: no
// batch is submitted before the tokens in it are known (1 to 4: at most this many). LANTERN_LAYER_GROUPS=132: a layer of a token is
// one dispatch of this many workgroups, which wait for each other.

import { UsageError } from "../base/errors.ts";
import { embeddedFiles } from "./node-embedded.ts";
import { withoutNativeErrors } from "./node-quiet.ts";
import { checkPackage } from "./node-trusted-path.ts";
import type { GpuAccess } from "./platform.ts";

/**
 * Dawn toggles: allow experimental features; half floats on NVIDIA, which Dawn hides by default; no clearing of
 * workgroup memory, which no kernel relies on and which takes software adapters seconds to compile; no bounds checks
 * in shaders, which all come from Lantern (the checks take a third of the time of prompts); exact kernel times.
 */
const dawnFeatures = [
  "enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia,disable_workgroup_init,disable_robustness",
  "disable-dawn-features=timestamp_quantization",
];

/** Only the part used here: the package's own types would declare all of WebGPU a second time. */
interface DawnPackage {
  create(flags: string[]): GPU;
}

/** One for the whole thread: adapters and devices need the instance that made them. */
let known: Promise<GpuAccess> | undefined;

export function nodeGpu(): Promise<GpuAccess> {
  known ??= loadGpu(process.env.LANTERN_GPU ?? "");
  return known;
}

async function loadGpu(wanted: string): Promise<GpuAccess> {
  if (wanted === "off") return "LANTERN_GPU=off says to use none";
  if (embeddedFiles()) {
    return "the single-file program computes on the processor only: with Node.js, npm install lantern webgpu uses a GPU";
  }
  const softwareOnly = wanted === "software";
  const named = wanted !== "" && !softwareOnly;
  let dawn: DawnPackage;
  try {
    checkPackage("webgpu");
    dawn = (await import("webgpu")) as DawnPackage;
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ERR_MODULE_NOT_FOUND") {
      return 'in Node a GPU needs the npm package "webgpu", which is not installed: npm install webgpu';
    }
    return `the npm package "webgpu" cannot be loaded here: ${(error as Error).message}`;
  }
  const flags = named ? [...dawnFeatures, `adapter=${wanted}`] : dawnFeatures;
  return {
    gpu: quietly(dawn.create(flags)),
    softwareOnly,
    memoryBytes: memoryLimit(process.env.LANTERN_GPU_MEMORY ?? ""),
    ahead: mostAhead(process.env.LANTERN_LOOKAHEAD ?? ""),
    layerGroups: layerGroups(process.env.LANTERN_LAYER_GROUPS ?? ""),
    doze,
  };
}

/** Silences Dawn while it looks for adapters: it prints a line about each one that it cannot use. */
function quietly(gpu: GPU): GPU {
  const { requestAdapter } = gpu;
  gpu.requestAdapter = (options) => withoutNativeErrors(() => requestAdapter.call(gpu, options));
  return gpu;
}

const dozeMs = 0.2;
const never = new Int32Array(new SharedArrayBuffer(4));

/** Dawn polls in every turn of the event loop while work is pending; this makes turns rare. */
async function doze(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  Atomics.wait(never, 0, 0, dozeMs);
}

function mostAhead(batches: string): number | undefined {
  if (batches === "") return undefined;
  if (/^[0-4]$/.test(batches)) return Number(batches);
  throw new UsageError(
    `LANTERN_LOOKAHEAD: got "${batches}", expected how many batches may be submitted ahead, 0 to 4`,
  );
}

function layerGroups(groups: string): number | undefined {
  if (groups === "") return undefined;
  if (/^\d{1,4}$/.test(groups)) return Number(groups);
  throw new UsageError(
    `LANTERN_LAYER_GROUPS: got "${groups}", expected how many workgroups compute a layer, 0 (each op by itself) to 9999`,
  );
}

function memoryLimit(mebibytes: string): number | undefined {
  if (mebibytes === "") return undefined;
  const bytes = Number(mebibytes) * 2 ** 20;
  if (bytes > 0) return bytes;
  throw new UsageError(
    `LANTERN_GPU_MEMORY: got "${mebibytes}", expected a number above 0: how many MiB of the GPU's memory may be used`,
  );
}
