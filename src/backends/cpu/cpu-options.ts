// The options of the CPU backend: threads, kernels, recording, and limits for tests.

import type { WasmFeatures } from "../../kernels/features.ts";
import type { ChooseMatmul } from "../../kernels/matmul-variants.ts";
import type { RowTile } from "../../kernels/ops/matmul/row-tiles.ts";
import type { EngineThread } from "../../platform/platform.ts";
import type { NeuronChoice, RamBudget, WeightFiles } from "../backend.ts";
import type { GuardMode } from "./guard/guard.ts";
import type { FarLimits } from "./memory/arena.ts";
import type { NativeKernels } from "./native/native.ts";
import type { Idle } from "./threads/team.ts";

export interface CpuOptions {
  /** The opt level. 1: plain TypeScript; 2: SIMD, row by row; 3: row panels. */
  level: 1 | 2 | 3;
  threads: number;
  /** The CPUs that each thread but the leader binds itself to; undefined: the system places threads. */
  cpusOf?: ((thread: number) => readonly number[]) | undefined;
  /** Weights in local files, which the threads read by themselves; undefined: upload() reads all. */
  files?: WeightFiles | undefined;
  /** The memory limits of the model; undefined: no limit. */
  ram?: RamBudget | undefined;
  /** Starts a thread that runs serveCompute(); undefined if there are no threads. */
  startThread: (() => EngineThread) | undefined;
  /** Record times, for profile(). */
  profile?: boolean;
  /** Behaviour of idle threads (default "spin"). */
  idle?: Idle | undefined;
  /** Which kernels compute which matmul; default: by the kind of processor. */
  choose?: ChooseMatmul | undefined;
  /** The register tile where weights are not in row panels; undefined: the default of opt level 2. */
  rowTile?: RowTile | "scalar" | undefined;
  /** Leave out neurons that are zero, where the layout of their weights allows it (default false; docs/use/sparse.md). */
  sparse?: boolean | NeuronChoice | undefined;
  /** Machine code for the matmuls of opt level 3; a sentence: why they are WebAssembly. */
  native?: NativeKernels | string | undefined;
  /** Notes on the choices above, for --explain. */
  notes?: readonly string[] | undefined;
  /** Guard mode: see guard/guard.ts. */
  guard?: GuardMode | undefined;
  /** For tests: the features of WebAssembly to use, if not all of this engine. */
  wasm?: WasmFeatures;
  /** For tests: the first address that is used, and the time that a batch may make no progress, in ms. */
  memoryStart?: number;
  /** For tests: where row panels lie that machine code reads, and how large such a memory is. */
  far?: FarLimits;
  lostMs?: number;
}
