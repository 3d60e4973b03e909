// The table of backends: one line for each, in order of preference; the reference is last because it can do anything.

import { detectWasmFeatures } from "../kernels/features.ts";
import type { EngineThread } from "../platform/platform.ts";
import type { Backend } from "./backend.ts";
import { CpuBackend } from "./cpu/cpu.ts";
import { ReferenceBackend } from "./reference/reference.ts";

/** What a backend may use of this machine, and what was asked for. */
export interface BackendRequest {
  /** 1: plain TypeScript; 2: SIMD, row by row; 3: SIMD and tiles. */
  readonly level: 1 | 2 | 3;
  readonly threads: number;
  readonly startThread: (() => EngineThread) | undefined;
  /** Record where the time goes, where the backend can. */
  readonly profile?: boolean;
}

export interface BackendEntry {
  readonly name: string;
  /** True where this machine can run it as asked, otherwise the reason. */
  available(request: BackendRequest): true | string;
  create(request: BackendRequest): Backend;
}

const entries: BackendEntry[] = [
  {
    name: "cpu",
    available: ({ level }) => {
      if (level === 1) return "level 1 is the reference";
      return detectWasmFeatures().simd ? true : "this engine's WebAssembly has no SIMD";
    },
    create: ({ level, threads, startThread, profile = false }) =>
      new CpuBackend({ level: level === 2 ? 2 : 3, threads, startThread, profile }),
  },
  { name: "reference", available: () => true, create: () => new ReferenceBackend() },
];

export function allBackends(): readonly BackendEntry[] {
  return entries;
}

/** Puts a backend before those that are there. */
export function registerBackend(entry: BackendEntry): void {
  entries.unshift(entry);
}
