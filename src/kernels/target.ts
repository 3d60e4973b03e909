// The targets of kernels: the properties that layouts and kernels adapt to, as data. lower/ makes code for a target.
// src/kernels/features.ts (WebAssembly) and src/platform (machine code) detect this machine's targets.

import type { WasmFeatures } from "./features.ts";
import type { Dot4 } from "./ir/meanings.ts";

export type TargetName =
  | "wasm"
  | "x64-amx"
  | "x64-avx512"
  | "x64-avx2-vnni"
  | "x64-avx2"
  | "arm64-i8mm"
  | "arm64-dotprod";

/** Bytes of a vector register. */
export type VectorWidth = 16 | 32 | 64;

/** Half floats of weights: coded so that a shift and a mask widen them (half-panels.ts), or unchanged. */
export type Halves = "coded" | "hardware";

export interface KernelTarget {
  readonly name: TargetName;
  readonly width: VectorWidth;
  /** The allowed range of i32v.dot4's second operand. */
  readonly dot4: Dot4;
  readonly halves: Halves;
  /** Registers that hold a vector, as far as is known. */
  readonly vectorRegisters: number;
  /** Has AMX tiles and their dot products of bytes (ir/tiles.ts). */
  readonly amx?: true;
  /** Multiplies pairs of rows of bytes (SMMLA). */
  readonly i8mm?: true;
}

const arm64 = { width: 16, dot4: "signed", halves: "hardware", vectorRegisters: 32 } as const;
const avx512 = { width: 64, dot4: "unsigned", halves: "hardware", vectorRegisters: 32 } as const;

/** The targets of machine code. The caller knows which of them the machine supports. */
export const nativeTargets: Readonly<Record<Exclude<TargetName, "wasm">, KernelTarget>> = {
  "x64-amx": { name: "x64-amx", ...avx512, amx: true },
  "x64-avx512": { name: "x64-avx512", ...avx512 },
  "x64-avx2-vnni": {
    name: "x64-avx2-vnni",
    width: 32,
    dot4: "unsigned",
    halves: "hardware",
    vectorRegisters: 16,
  },
  "x64-avx2": {
    name: "x64-avx2",
    width: 32,
    dot4: "i7",
    halves: "hardware",
    vectorRegisters: 16,
  },
  "arm64-i8mm": { name: "arm64-i8mm", ...arm64, i8mm: true },
  "arm64-dotprod": { name: "arm64-dotprod", ...arm64 },
};

/** WebAssembly with the features of this engine. */
export function wasmTarget({
  dot4,
  vectorRegisters,
}: Pick<WasmFeatures, "dot4" | "vectorRegisters">): KernelTarget {
  return { name: "wasm", width: 16, dot4, halves: "coded", vectorRegisters };
}
