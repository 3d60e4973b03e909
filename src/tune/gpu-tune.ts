// Measures matmuls on a GPU: the backend's own choice and, for few tokens, every other split of the work
// (src/backends/webgpu/tuning.ts). This is `lantern tune --backend webgpu`. The times are stored like the processor's,
// in a file of the same format whose header names the adapter.
//
// A time is measured over many matmuls in one submission, each with its own weights, by the host's clock, so the cost
// of the host and of a submission does not count. Rounds go through all profiles; the fastest round counts, and a
// profile that seems faster than the default is measured again, alternating with it (confirm.ts). Preparing activations
// (init) is timed apart from the matmul, and so are the ways of activations and results between the host and the GPU
// (gpu-transfers.ts).

import { type Backend, evenCapacity } from "../backends/backend.ts";
import { backendByName } from "../backends/table.ts";
import type { GpuDevice, GpuFacts } from "../backends/webgpu/device.ts";
import {
  type GpuTuningControls,
  type KernelFilter,
  matmulShapes,
  type Tuning,
  tuningFor,
} from "../backends/webgpu/tuning.ts";
import { laneDotOf } from "../backends/webgpu/wgsl/matmul-gemv.ts";
import { MATVEC_TOKENS } from "../backends/webgpu/wgsl/matvec.ts";
import { AbortedError } from "../base/errors.ts";
import { median } from "../base/measure.ts";
import { bytesFor } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { Batch } from "../graph/batch.ts";
import type { Weight } from "../graph/graph.ts";
import { makePlan } from "../graph/plan.ts";
import { challengeDefault } from "./challenge.ts";
import { total } from "./confirm.ts";
import { gpuTuneProfiles } from "./gpu-profiles.ts";
import { measureTransfers } from "./gpu-transfers.ts";
import {
  expertsGraph,
  floats,
  matmulBatch,
  matmulGraph,
  matmulName,
  uploadSample,
} from "./matmul-graph.ts";
import type { TuneWatch } from "./run-tune.ts";
import { problemText, type StageTimes, type TuneGroup, type TuneProblem } from "./tune-file.ts";

export interface GpuTunePlan {
  readonly problems: readonly TuneProblem[];
  /** Numbers of tokens, ascending. */
  readonly tokens: readonly number[];
  readonly rounds: number;
  /** Size of weights that stream from memory: more than caches hold. */
  readonly streamBytes: number;
}

const MOST_COPIES = 64;
/** A software adapter is too slow for more. */
const SOFTWARE_BYTES = 1 << 20;
/** The most bytes of experts, which have one copy: with more than this, some of their rows stand for all. */
const EXPERTS_BYTES: number = 1 << 30;
/** Rounds of a confirmation, besides those of the plan. */
const MORE_ROUNDS = 4;
/** The fraction of the time for all profiles; the rest is for confirmations and transfers. */
const ROUNDS_SHARE = 0.7;

/** `openGpu` opens a device for each problem, because a backend owns its device. */
export async function runGpuTune(
  plan: GpuTunePlan,
  openGpu: () => Promise<GpuDevice>,
  yieldThread: () => Promise<void>,
  watch: TuneWatch = {},
): Promise<TuneGroup[]> {
  const groups: TuneGroup[] = [];
  for (const problem of plan.problems) {
    const done = groups.length;
    const report = async (share: number): Promise<void> => {
      await yieldThread();
      if (watch.signal?.aborted) throw new AbortedError("tuning");
      watch.onProgress?.((done + share) / plan.problems.length, `${problemText(problem)}, GPU`);
    };
    const group = await tuneGroup(plan, problem, await openGpu(), report);
    groups.push(group);
    await watch.onGroup?.(group);
  }
  return groups;
}

async function tuneGroup(
  plan: GpuTunePlan,
  problem: TuneProblem,
  gpu: GpuDevice,
  report: (share: number) => Promise<void>,
): Promise<TuneGroup> {
  const { tokens, rounds, streamBytes } = plan;
  const { facts } = gpu;
  const bytes = facts.isSoftware ? Math.min(streamBytes, SOFTWARE_BYTES) : streamBytes;
  const bench = await GpuMatmulBench.open(gpu, problem, Math.max(...tokens), bytes);
  const profiles = gpuTuneProfiles();
  const best = tokens.map(() => new Map<number, StageTimes>());
  // A type without such kernels, and experts, have only one way.
  const hasShapes =
    !problem.experts && laneDotOf(weightOf(problem), facts.workgroupStorageBytes) !== undefined;
  const refused = new Set(hasShapes ? [] : profiles.map((_, index) => index).slice(1));
  const take = (profile: number) => bench.take(variantTuning(profiles[profile]!.variant, facts));
  try {
    for (let round = 0; round < rounds; round++) {
      for (const index of profiles.keys()) {
        if (refused.has(index)) continue;
        await report((ROUNDS_SHARE * (round + index / profiles.length)) / rounds);
        if (!(await take(index))) refused.add(index);
        else await timeAll(bench, tokens, index, best);
      }
    }
    const noises: number[] = [];
    const lines: TuneGroup["lines"][number][] = [];
    for (const [line, m] of tokens.entries()) {
      await report(ROUNDS_SHARE + ((1 - ROUNDS_SHARE) * line) / tokens.length);
      const { spinning, noise } = await challengeDefault({
        known: best[line]!,
        usual: 0,
        rounds: rounds + MORE_ROUNDS,
        canSleep: () => false,
        notifyUs: 0,
        measure: async (profile) => {
          await take(profile);
          return await bench.measure(m);
        },
      });
      if (noise !== undefined) noises.push(noise);
      lines.push({ m, times: profiles.map((_, profile) => spinning.get(profile)) });
    }
    await take(0);
    const prepared = tokens.map((m) => bench.preparedBytes(m));
    const transfers = await measureTransfers(gpu, problem, tokens, prepared);
    const noise = noises.length > 0 ? median(noises) : 0;
    return { ...problem, threads: 1, ...(noise > 0 && { noise }), lines, transfers };
  } finally {
    bench.dispose();
  }
}

function weightOf({ dtype, n, k }: TuneProblem): Weight {
  return { name: "weight", shape: [n, k], dtype: dtypeByName(dtype)! };
}

/** With more tokens than a gemv kernel takes, all of them compute the same way. */
async function timeAll(
  bench: GpuMatmulBench,
  tokens: readonly number[],
  profile: number,
  best: readonly Map<number, StageTimes>[],
): Promise<void> {
  for (const [line, m] of tokens.entries()) {
    if (profile > 0 && m > MATVEC_TOKENS) continue;
    const times = await bench.measure(m);
    const known = best[line]!.get(profile);
    if (!known || total(times) < total(known)) best[line]!.set(profile, times);
  }
}

/** The default, or one kernel shape for everything. */
function variantTuning(variant: string, facts: GpuFacts): Tuning {
  const usual = tuningFor(facts);
  const shape = matmulShapes.get(variant);
  return shape ? { ...usual, shapeFor: () => shape } : usual;
}

/** Prepares activations. */
const isInit: KernelFilter = ({ preparedBytes }) => preparedBytes !== undefined;
/** Is a matmul that is measured, not the embedding or the router before it. */
const isCompute: KernelFilter = (kernel, nodes) =>
  kernel.preparedBytes === undefined && nodes.some(({ name }) => name.startsWith(matmulName));

/** Copies of a matmul, one after the other, as a backend runs them. */
class GpuMatmulBench {
  readonly #gpu: GpuDevice;
  readonly #backend: Backend & GpuTuningControls;
  readonly #copies: number;
  /** The ratio of the time of all rows to that of the measured rows. */
  readonly #factor: number;
  readonly #isRouted: boolean;
  readonly #limits: { maxTokens: number; maxOutputs: number };

  private constructor(
    gpu: GpuDevice,
    backend: Backend,
    copies: number,
    maxTokens: number,
    { factor, isRouted }: { factor: number; isRouted: boolean },
  ) {
    this.#gpu = gpu;
    this.#backend = backend as Backend & GpuTuningControls;
    this.#copies = copies;
    this.#factor = factor;
    this.#isRouted = isRouted;
    this.#limits = { maxTokens, maxOutputs: maxTokens };
  }

  static async open(
    gpu: GpuDevice,
    { dtype, n, k, experts }: TuneProblem,
    maxTokens: number,
    bytes: number,
  ): Promise<GpuMatmulBench> {
    const type = dtypeByName(dtype)!;
    const rowBytes = bytesFor(type, k) * (experts?.count ?? 1);
    const most = gpu.facts.isSoftware ? bytes : EXPERTS_BYTES;
    const rows = experts ? Math.min(n, Math.max(16, Math.floor(most / rowBytes))) : n;
    const copies = Math.min(MOST_COPIES, Math.max(1, Math.ceil(bytes / (rows * rowBytes))));
    const how = { factor: n / rows, isRouted: experts !== undefined };
    const request = { level: 3, threads: 1, startThread: undefined, gpu } as const;
    const entry = backendByName("webgpu")!;
    await entry.ready?.();
    const bench = new GpuMatmulBench(gpu, entry.create(request), copies, maxTokens, how);
    try {
      const graph = experts
        ? expertsGraph(type, rows, k, experts, copies)
        : matmulGraph(type, rows, k, copies);
      const plan = makePlan(graph, bench.#limits);
      await bench.#backend.prepare(plan, evenCapacity(1, floats));
      for (const weight of graph.weights) await uploadSample(bench.#backend, weight);
      // The routes of experts come from the router, which is not measured.
      await bench.#backend.run(bench.#batch(maxTokens));
      return bench;
    } catch (error) {
      bench.dispose();
      throw error;
    }
  }

  /** Switches to these kernels; false if this GPU refuses them. */
  async take(tuning: Tuning): Promise<boolean> {
    const { device } = this.#gpu;
    device.pushErrorScope("validation");
    const taken = await this.#backend.retune(tuning).then(
      () => true,
      () => false,
    );
    return (await device.popErrorScope()) === null && taken;
  }

  /** Microseconds: of preparing activations, once for all matmuls that read them, and of one matmul. */
  async measure(m: number): Promise<StageTimes> {
    const batch = this.#batch(m);
    const init = await this.#backend.timeBatch(batch, isInit);
    // Copies may share the prepared activations, or each prepares its own.
    const inits = Math.max(1, this.#backend.kernelsOf(batch, isInit).length);
    const compute = await this.#backend.timeBatch(batch, isCompute);
    return {
      init: (init * 1000) / inits,
      compute: (compute * 1000 * this.#factor) / this.#copies,
    };
  }

  /** The bytes of a prepared activation; undefined: kernels prepare activations as they read them. */
  preparedBytes(m: number): number | undefined {
    return this.#backend.kernelsOf(this.#batch(m), isInit)[0]?.preparedBytes;
  }

  #batch(m: number): Batch {
    return matmulBatch(m, this.#limits, this.#isRouted);
  }

  dispose(): void {
    this.#backend.dispose();
  }
}
