// What tuned matmuls are made for: WebAssembly, or a target of machine code. Times of one say nothing about the other, so
// each has a remembered file of its own, and a file says by its features which it is of.

import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { detectWasmFeatures } from "../kernels/features.ts";
import {
  type KernelTarget,
  nativeTargets,
  type TargetName,
  wasmTarget,
} from "../kernels/target.ts";

/** The remembered file of a target; undefined: WebAssembly's. */
export function tuneFileOf(target: Pick<KernelTarget, "name"> | undefined): string {
  return target === undefined || target.name === "wasm" ? "tune.txt" : `tune-${target.name}.txt`;
}

/** The remembered file of the GPU. */
export const GPU_TUNE_FILE = "tune-webgpu.txt";

/** Whether a file's times are of a GPU. */
export function isGpuFile({ features }: { readonly features: string }): boolean {
  return features.split(" ", 1)[0] === "webgpu";
}

export function targetFor(native: NativeKernels | undefined): KernelTarget {
  return native?.target ?? wasmTarget(detectWasmFeatures());
}

/** As a tune file has them: "wasm relaxed dot4=unsigned", "x64-avx512 dot4=unsigned". */
export function featuresText(target: KernelTarget): string {
  const { relaxed } = detectWasmFeatures();
  const how = target.name === "wasm" ? ` ${relaxed ? "relaxed" : "simd"}` : "";
  return `${target.name}${how} dot4=${target.dot4}`;
}

/** The target that a file's times are of, on whichever machine they were measured. */
export function targetOfFeatures(features: string): KernelTarget {
  const name = features.split(" ", 1)[0]! as TargetName;
  if (name !== "wasm" && Object.hasOwn(nativeTargets, name)) return nativeTargets[name];
  const isSigned = features.includes("dot4=signed");
  return wasmTarget({
    dot4: isSigned ? "signed" : "unsigned",
    vectorRegisters: isSigned ? 32 : 16,
  });
}
