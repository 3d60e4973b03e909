// The table of backends: one entry for each, in order of preference. The reference is last because it supports everything.

import { detectWasmFeatures } from "../kernels/features.ts";
import type { ChooseMatmul } from "../kernels/matmul-variants.ts";
import type { RowTile } from "../kernels/ops/matmul/row-tiles.ts";
import type { EngineThread } from "../platform/platform.ts";
import type { Backend, NeuronChoice, RamBudget, WeightFiles } from "./backend.ts";
import { cpuArithmetic } from "./cpu/arithmetic.ts";
import { CpuBackend } from "./cpu/cpu.ts";
import type { GuardMode } from "./cpu/guard/guard.ts";
import type { NativeKernels } from "./cpu/native/native.ts";
import { ReferenceBackend } from "./reference/reference.ts";
import type { GpuDevice } from "./webgpu/device.ts";
import type { StreamSource } from "./webgpu/stream/stream-source.ts";
import type { Tuning } from "./webgpu/tuning.ts";

/** The user's request to a backend, and the parts of this machine that it may use. */
export interface BackendRequest {
  /** The opt level. 1: plain TypeScript; 2: SIMD, row by row; 3: SIMD and register tiles; 4: the same as machine code. */
  readonly level: 1 | 2 | 3 | 4;
  /** Makes the machine code of opt level 4; a sentence: why there is none. */
  readonly native?: NativeKernels | string | undefined;
  readonly threads: number;
  /** The CPUs that each thread but the leader binds itself to; undefined: the system places threads. */
  readonly cpusOf?: ((thread: number) => readonly number[]) | undefined;
  readonly startThread: (() => EngineThread) | undefined;
  /** The model's weights in local files, for a backend whose threads read them. */
  readonly files?: WeightFiles | undefined;
  /** The memory limits of the model; undefined: no limit. */
  readonly ram?: RamBudget | undefined;
  /** Which kernels compute which matmul, where that was measured. */
  readonly choose?: ChooseMatmul | undefined;
  /** The register tile of opt level 2, where it is not the default. */
  readonly rowTile?: RowTile | "scalar" | undefined;
  /** Leave out neurons that are zero, where the backend can (default false; docs/use/sparse.md). */
  readonly sparse?: boolean | NeuronChoice | undefined;
  /** Behaviour of idle threads, if that was measured. */
  readonly idle?: "spin" | "sleep" | undefined;
  /** Why these were chosen, for --explain. */
  readonly notes?: readonly string[] | undefined;
  /** Guard mode, where the backend has one (cpu/guard/guard.ts). */
  readonly guard?: GuardMode | undefined;
  /** Record times for a profile, where the backend can. */
  readonly profile?: boolean;
  /** The open GPU, for a backend that `usesGpu`, which then owns it. */
  readonly gpu?: GpuDevice | undefined;
  /** A backend that `usesGpu` computes with the bits of the CPU's. */
  readonly exact?: boolean | undefined;
  /** Experts of each layer that lie in GPU memory at a time. Default: all. */
  readonly expertSlots?: number | undefined;
  /** The source of matrices that a backend that `usesGpu` copies for each batch; undefined: they are in GPU memory. */
  readonly stream?: StreamSource | undefined;
  /** The GPU's tuning, where it was measured, and notes on it. */
  readonly tunedGpu?: { readonly tuning?: Tuning | undefined; readonly notes: readonly string[] };
}

export interface BackendEntry {
  readonly name: string;
  /** Computes on a GPU, which must be opened first, so it is only taken when the user asks for it. */
  readonly usesGpu?: boolean;
  /** True where this machine can run it as asked, otherwise the reason. */
  available(request: BackendRequest): true | string;
  /** Loads the code of create(), and must be awaited before it. Optional: the code is there. */
  ready?(): Promise<void>;
  create(request: BackendRequest): Backend;
}

/** The maker of machine code at this opt level; a sentence: why there is none. */
function codeOf(
  level: BackendRequest["level"],
  native: BackendRequest["native"],
): NativeKernels | string {
  if (level === 4) return native ?? "machine code is switched off";
  return typeof native === "string" ? native : `opt level ${level} was asked for`;
}

/** Seventy files, which a model on the processor does not wait for. */
let webGpu: typeof import("./webgpu/webgpu.ts") | undefined;

const entries: BackendEntry[] = [
  {
    name: "cpu",
    available: (request) => {
      const { level, native = "it was not asked for" } = request;
      if (level === 1) {
        return isThreaded(request) ? true : "opt level 1 on one thread is the reference";
      }
      if (level === 4 && typeof native === "string") return `no machine code: ${native}`;
      return detectWasmFeatures().simd ? true : "this engine's WebAssembly has no SIMD";
    },
    create: ({ level, native, profile = false, ...request }) => {
      const code = codeOf(level, native);
      return new CpuBackend({ ...request, level: level === 4 ? 3 : level, native: code, profile });
    },
  },
  {
    name: "webgpu",
    usesGpu: true,
    available: ({ gpu }) => (gpu ? true : "is used when it is asked for by name"),
    ready: async () => {
      webGpu ??= await import("./webgpu/webgpu.ts");
    },
    create: ({ gpu, profile, tunedGpu, exact, expertSlots, stream, level, native }) =>
      new webGpu!.WebGpuBackend(gpu!, {
        profile,
        expertSlots,
        stream,
        ...tunedGpu,
        exact: exact ? cpuArithmetic(codeOf(level, native)) : undefined,
      }),
  },
  { name: "reference", available: () => true, create: () => new ReferenceBackend() },
];

/** Whether more than one thread computes. */
function isThreaded({ threads, startThread }: BackendRequest): boolean {
  return threads > 1 && startThread !== undefined && detectWasmFeatures().threads;
}

export function allBackends(): readonly BackendEntry[] {
  return entries;
}

export function backendByName(name: string): BackendEntry | undefined {
  return entries.find((entry) => entry.name === name);
}

/** Adds a backend before all others. */
export function registerBackend(entry: BackendEntry): void {
  entries.unshift(entry);
}
