// The layout of a model on the CPU backend: addresses of weights, the program, the kernels. It allocates nothing: measure()
// and prepare() share it.

import { usesOf } from "../../../graph/graph.ts";
import type { Plan } from "../../../graph/plan.ts";
import type { NativeFunction } from "../../../kernels/asm/native-function.ts";
import type { WasmFeatures } from "../../../kernels/features.ts";
import { type ChooseMatmul, defaultChoice } from "../../../kernels/matmul-variants.ts";
import type { RowTile } from "../../../kernels/ops/matmul/row-tiles.ts";
import { type KernelTarget, wasmTarget } from "../../../kernels/target.ts";
import type { KvCacheOptions, NeuronChoice } from "../../backend.ts";
import { type Compiled, compileProgram } from "../compile.ts";
import { type DiskLayout, layOutDisk } from "../disk/layout.ts";
import type { DiskPlan } from "../disk/ring.ts";
import { choiceWithCode, refusals } from "../native/choice.ts";
import { BLOCK_BYTES, type NativeJob } from "../native/entry.ts";
import type { NativeKernels } from "../native/native.ts";
import { placeRecords, type RecordArea } from "../threads/records.ts";
import { Arena, type FarLimits, REPORT_BYTES } from "./arena.ts";
import { neuronUses } from "./neuron-weights.ts";
import { type PackProgram, packKernels } from "./repack.ts";
import { WeightStore } from "./weights.ts";

export interface LayoutRequest {
  readonly plan: Plan;
  readonly kv: KvCacheOptions;
  readonly threads: number;
  /** 1: plain TypeScript. 3: weights are packed into row panels, where their type has them. */
  readonly level: 1 | 2 | 3;
  /** The register tile where weights are not in row panels; undefined: the default. */
  readonly rowTile: RowTile | "scalar" | undefined;
  /** Leave out neurons that are zero (docs/inside/sparse.md). Default: all are computed. */
  readonly sparse?: boolean | NeuronChoice | undefined;
  /** Makes machine code for the matmul kernels; undefined: they are WebAssembly. */
  readonly native: NativeKernels | undefined;
  readonly wasm: WasmFeatures;
  /** Which kernels compute which matmul; undefined: the default. */
  readonly choose: ChooseMatmul | undefined;
  /** Reserve memory for recorded times. */
  readonly records: boolean;
  /** The first address that is used. */
  readonly memoryStart: number;
  /** The address range of row panels that machine code reads. */
  readonly far: FarLimits;
  /** Guard mode: keep buffers apart, and reserve memory for reports (guard.ts). */
  readonly guard: boolean;
  /** Which weights stay on disk. Default: none. */
  readonly disk?: DiskPlan | undefined;
}

export interface Layout {
  readonly plan: Plan;
  readonly kv: KvCacheOptions;
  readonly arena: Arena;
  /** The target of the matmul kernels. */
  readonly target: KernelTarget;
  readonly weights: WeightStore;
  readonly packing: PackProgram;
  readonly compiled: Compiled;
  /** Kernels that are machine code, and the address of their parameter blocks; undefined: there are none. */
  readonly native: NativeJob | undefined;
  /** The memory in which threads record times; undefined: none. */
  readonly records: RecordArea | undefined;
  /** The memory in which threads report kernels that leave their buffers; undefined: not in guard mode. */
  readonly reports: number | undefined;
  /** Weights that stay on disk; undefined: none. */
  readonly disk: DiskLayout | undefined;
}

/** Returns a sentence where the kernels cannot be machine code. */
export function layOut(request: LayoutRequest): Layout | string {
  const { plan, kv, threads, native } = request;
  const target = native?.target ?? wasmTarget(request.wasm);
  const { threads: shared, memory64 } = request.wasm;
  const { memoryStart: start, guard } = request;
  const far = native && memory64 ? request.far : undefined;
  const arena = new Arena({ shared, memory64, start, guard, far });
  const weights = new WeightStore(arena, target, request.level, request.disk);
  // Weights on disk are read in row panels.
  const { sparse } = request;
  const isSparse = sparse && !request.disk;
  const all = sparse === true || !sparse ? undefined : sparse;
  const neurons = isSparse ? neuronUses(plan.graph.nodes, target, all) : new Map();
  const packing = weights.place(usesOf(plan.graph), threads, neurons);
  const disk = request.disk && layOutDisk(request.disk, weights, packing, arena);
  const wanted = request.choose ?? defaultChoice(target);
  const choose = native ? choiceWithCode(wanted, refusals(native), target) : wanted;
  const { rowTile } = request;
  const how = { native, choose, rowTile, disk, plain: request.level === 1 };
  const program = compileProgram({ plan, kv, arena, weights, threads, target, ...how });
  const compiled = withPackKernels(program, packing, native);
  // Readers call kernels, too, as threads after the others.
  const callers = threads + (disk?.program.readers ?? 0);
  const job = native && nativeJob(native, compiled, arena, callers);
  if (typeof job === "string") return job;
  const instructions = compiled.program.instructions.length;
  const records = request.records ? placeRecords(arena, instructions, threads) : undefined;
  const reports = request.guard
    ? arena.allocate(threads * REPORT_BYTES, "work", "guard reports", threads)
    : undefined;
  const made = { plan, kv, arena, target, weights, packing, compiled, native: job };
  return { ...made, records, reports, disk };
}

/**
 * With the kernels that pack weights. A target's layout needs its vectors: types without machine code there are packed in
 * TypeScript.
 */
function withPackKernels(
  compiled: Compiled,
  packing: PackProgram,
  native: NativeKernels | undefined,
): Compiled {
  const added = packKernels(packing);
  if (!native) return { ...compiled, kernels: [...compiled.kernels, ...added] };
  const lowered = added.filter((kernel) => typeof native.lower(kernel) !== "string");
  return { ...compiled, nativeKernels: [...compiled.nativeKernels, ...lowered] };
}

/** The machine code of these kernels; a sentence: why one of them has none. */
function nativeJob(
  native: NativeKernels,
  { nativeKernels }: Compiled,
  arena: Arena,
  threads: number,
): NativeJob | undefined | string {
  if (nativeKernels.length === 0) return undefined;
  const functions: NativeFunction[] = [];
  for (const kernel of nativeKernels) {
    const code = native.lower(kernel);
    if (typeof code === "string") return code;
    functions.push(code);
  }
  const blocks = arena.allocate(threads * BLOCK_BYTES, "work", "parameter blocks", threads);
  return { image: native.link(functions), blocks };
}
