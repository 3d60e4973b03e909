// What the conformance table runs on: every way that this project computes a graph. A target that this machine lacks says why,
// and is skipped with that reason.

import type { Backend } from "../../src/backends/backend.ts";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import type { TargetName as KernelTargetName } from "../../src/kernels/target.ts";
import { nativeElsewhere, nativeHere } from "../support/native.ts";

type NativeName = Exclude<KernelTargetName, "wasm">;
type WasmName =
  | "opt level 2"
  | "wasm"
  | "wasm with dot products of 0..127"
  | "wasm without relaxed SIMD"
  | "wasm with 64-bit addresses";

/** "guarded": in guard mode; "interpreted": its kernels as the IR means them, and some of them under qemu. */
export type TargetName =
  | "reference"
  | WasmName
  | `${WasmName | NativeName}, guarded`
  | NativeName
  | `${NativeName}, interpreted`
  | "wasm, interpreted, guarded"
  | "webgpu"
  | "webgpu, guarded";

export interface CpuTarget {
  readonly name: WasmName | NativeName;
  /** Why it cannot be run here; undefined: it can. */
  readonly lacks: string | undefined;
  options(): CpuOptions;
}

const alone = { threads: 1, startThread: undefined } as const;
const features = detectWasmFeatures();
const GIB = 2 ** 30;

const lacks = {
  memory64: features.memory64 ? undefined : "this engine has no 64-bit addresses",
  relaxed: features.relaxed ? undefined : "this engine's WebAssembly has no relaxed SIMD",
  simd: features.simd ? undefined : "this engine's WebAssembly has no SIMD",
};

export const wasmTargets: readonly CpuTarget[] = [
  { name: "opt level 2", lacks: lacks.simd, options: () => ({ level: 2, ...alone }) },
  { name: "wasm", lacks: lacks.simd, options: () => ({ level: 3, ...alone }) },
  {
    name: "wasm with dot products of 0..127",
    lacks: lacks.simd ?? lacks.relaxed,
    // As x64 without VNNI has them.
    options: () => ({ level: 3, ...alone, wasm: { ...features, dot4: "i7" } }),
  },
  {
    name: "wasm without relaxed SIMD",
    lacks: lacks.simd,
    // Spelled out with 16-bit products, the dot product takes all bytes.
    options: () => ({ level: 3, ...alone, wasm: { ...features, relaxed: false, dot4: "words" } }),
  },
  {
    name: "wasm with 64-bit addresses",
    lacks: lacks.simd ?? lacks.memory64,
    // Behind a gap that nobody touches.
    options: () => ({ level: 3, ...alone, memoryStart: 5 * GIB }),
  },
];

export const nativeTargetsHere: readonly CpuTarget[] = nativeHere.map(({ name, native }) => ({
  name: name as NativeName,
  lacks: undefined,
  options: () => ({ level: 3, ...alone, native }),
}));

/** Machine code that this machine cannot run, with the reason. */
export const nativeTargetsElsewhere: readonly string[] = nativeElsewhere;

/** All that run on this processor. */
export const cpuTargets: readonly CpuTarget[] = [...wasmTargets, ...nativeTargetsHere];

/** In guard mode: the name of a CPU target, or "interpreted". */
export function guardedName(name: string): TargetName {
  const of = name === "interpreted" ? "wasm, interpreted" : name;
  return `${of}, guarded` as TargetName;
}

export function cpuBackend(target: CpuTarget): Backend {
  return new CpuBackend(target.options());
}
