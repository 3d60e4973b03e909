// WebGPU in Node: Dawn, from the npm package `webgpu`. The package is optional and large, so it is loaded when somebody asks
// for a GPU and never before.
//
// LANTERN_GPU=off: none; =software: an adapter that computes on the processor; anything else: the first whose name has it.
// LANTERN_GPU_MEMORY=4096: how many MiB of its memory may be used, which WebGPU does not say.

import { UsageError } from "../base/errors.ts";
import { embeddedFiles } from "./node-embedded.ts";
import { withoutNativeErrors } from "./node-quiet.ts";
import type { GpuAccess } from "./platform.ts";

/**
 * Names of Dawn's: what is still experimental there; half floats on NVIDIA, which it hides otherwise; no clearing of
 * workgroup memory, which no kernel here relies on and software adapters take seconds to compile; and no checks of every
 * index in shaders, which are all from here (they take a third of the time of prompts). Times of kernels are not rounded.
 */
const dawnFeatures = [
  "enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia,disable_workgroup_init,disable_robustness",
  "disable-dawn-features=timestamp_quantization",
];

/** Only what is used of it: its own types would declare all of WebGPU a second time. */
interface DawnPackage {
  create(flags: string[]): GPU;
}

/** One for the whole thread: adapters and devices go on needing what made them. */
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
    dawn = (await import("webgpu")) as DawnPackage;
  } catch (error) {
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
    doze,
  };
}

/** Adapters are looked for while the call lasts, and Dawn writes about those that it cannot use. */
function quietly(gpu: GPU): GPU {
  const { requestAdapter } = gpu;
  gpu.requestAdapter = (options) => withoutNativeErrors(() => requestAdapter.call(gpu, options));
  return gpu;
}

const dozeMs = 0.2;
const never = new Int32Array(new SharedArrayBuffer(4));

/** Dawn asks in every turn of the event loop, as long as something is under way; this makes the turns rare. */
async function doze(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  Atomics.wait(never, 0, 0, dozeMs);
}

function memoryLimit(mebibytes: string): number | undefined {
  if (mebibytes === "") return undefined;
  const bytes = Number(mebibytes) * 2 ** 20;
  if (bytes > 0) return bytes;
  throw new UsageError(
    `LANTERN_GPU_MEMORY: got "${mebibytes}", expected how many MiB of the GPU's memory may be used, a number above 0`,
  );
}
