// The target of tuned matmuls: WebAssembly, or a machine-code target. Times of one mean nothing for the other, so
// each has its own stored file, whose features say which it is for.

import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { detectWasmFeatures } from "../kernels/features.ts";
import {
  type KernelTarget,
  nativeTargets,
  type TargetName,
  wasmTarget,
} from "../kernels/target.ts";

/** The stored file of a target; undefined: WebAssembly's. */
export function tuneFileOf(target: Pick<KernelTarget, "name"> | undefined): string {
  return target === undefined || target.name === "wasm" ? "tune.txt" : `tune-${target.name}.txt`;
}

/** The stored file of the GPU. */
export const GPU_TUNE_FILE = "tune-webgpu.txt";

/** Whether a file's times were measured on a GPU. */
export function isGpuFile({ features }: { readonly features: string }): boolean {
  return features.split(" ", 1)[0] === "webgpu";
}

export function targetFor(native: NativeKernels | undefined): KernelTarget {
  return native?.target ?? wasmTarget(detectWasmFeatures());
}

/** In the form of a tune file: "wasm relaxed dot4=unsigned", "x64-avx512 dot4=unsigned". */
export function featuresText(target: KernelTarget): string {
  const { relaxed } = detectWasmFeatures();
  const how = target.name === "wasm" ? ` ${relaxed ? "relaxed" : "simd"}` : "";
  return `${target.name}${how} dot4=${target.dot4}`;
}

/** The target that a file's times are for, on any machine. */
export function targetOfFeatures(features: string): KernelTarget {
  const name = features.split(" ", 1)[0]! as TargetName;
  if (name !== "wasm" && Object.hasOwn(nativeTargets, name)) return nativeTargets[name];
  const dot4 = (["signed", "i7", "words"] as const).find((kind) =>
    features.includes(`dot4=${kind}`),
  );
  return wasmTarget({
    dot4: dot4 ?? "unsigned",
    vectorRegisters: dot4 === "signed" ? 32 : 16,
  });
}
