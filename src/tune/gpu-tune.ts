// Measures matmuls on a GPU: the backend's own choice and, for few tokens, every other split of the work
// (src/backends/webgpu/tuning.ts). This is `lantern tune --backend webgpu`. The times are stored like the processor's,
// in a file of the same format whose header names the adapter.
//
// A time is measured over many matmuls in one submission, each with its own weights, by the host's clock, so the cost
// of the host and of a submission does not count. Rounds go through all profiles in turn; the fastest round counts.

import { type Backend, evenRoom } from "../backends/backend.ts";
import { backendByName } from "../backends/table.ts";
import type { GpuDevice, GpuFacts } from "../backends/webgpu/device.ts";
import {
  type GpuTuningControls,
  matmulShapes,
  type Tuning,
  tuningFor,
} from "../backends/webgpu/tuning.ts";
import { laneDotOf } from "../backends/webgpu/wgsl/matmul-few.ts";
import { MATVEC_TOKENS } from "../backends/webgpu/wgsl/matvec.ts";
import { AbortedError } from "../base/errors.ts";
import { bytesFor } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { Weight } from "../graph/graph.ts";
import { makePlan } from "../graph/plan.ts";
import type { MatmulProblem } from "../kernels/matmul-variants.ts";
import { gpuTuneProfiles } from "./gpu-profiles.ts";
import { floats, matmulBatch, matmulGraph, uploadSample } from "./matmul-graph.ts";
import type { TuneWatch } from "./run-tune.ts";
import type { StageTimes, TuneGroup } from "./tune-file.ts";

export interface GpuTunePlan {
  readonly problems: readonly MatmulProblem[];
  /** Numbers of tokens, ascending. */
  readonly tokens: readonly number[];
  readonly rounds: number;
  /** Size of weights that stream from memory: more than caches hold. */
  readonly streamBytes: number;
}

const MOST_COPIES = 64;
/** A software adapter is too slow for more. */
const SOFTWARE_BYTES = 1 << 20;

/** `openGpu` opens a device for each problem, because a backend owns its device. */
export async function runGpuTune(
  plan: GpuTunePlan,
  openGpu: () => Promise<GpuDevice>,
  breathe: () => Promise<void>,
  watch: TuneWatch = {},
): Promise<TuneGroup[]> {
  const groups: TuneGroup[] = [];
  for (const problem of plan.problems) {
    const { dtype, n, k } = problem;
    const done = groups.length;
    const report = async (share: number): Promise<void> => {
      await breathe();
      if (watch.signal?.aborted) throw new AbortedError("tuning");
      watch.onProgress?.((done + share) / plan.problems.length, `${dtype} ${n} x ${k}, GPU`);
    };
    const group = await tuneGroup(plan, problem, await openGpu(), report);
    groups.push(group);
    watch.onGroup?.(group);
  }
  return groups;
}

async function tuneGroup(
  { tokens, rounds, streamBytes }: GpuTunePlan,
  problem: MatmulProblem,
  gpu: GpuDevice,
  report: (share: number) => Promise<void>,
): Promise<TuneGroup> {
  const { facts } = gpu;
  const bytes = facts.isSoftware ? Math.min(streamBytes, SOFTWARE_BYTES) : streamBytes;
  const bench = await GpuMatmulBench.open(gpu, problem, Math.max(...tokens), bytes);
  const profiles = gpuTuneProfiles();
  const best = tokens.map(() => profiles.map((): number | undefined => undefined));
  // A type without such kernels has only one way.
  const hasShapes = laneDotOf(weightOf(problem), facts.workgroupStorageBytes) !== undefined;
  const refused = new Set(hasShapes ? [] : profiles.map((_, index) => index).slice(1));
  try {
    for (let round = 0; round < rounds; round++) {
      for (const [index, { variant }] of profiles.entries()) {
        if (refused.has(index)) continue;
        await report((round + index / profiles.length) / rounds);
        if (!(await bench.take(variantTuning(variant, facts)))) refused.add(index);
        else await timeAll(bench, tokens, index, best);
      }
    }
  } finally {
    bench.dispose();
  }
  const timesOf = (us: number | undefined): StageTimes | undefined =>
    us === undefined ? undefined : { init: 0, compute: us };
  const lines = tokens.map((m, line) => ({ m, times: best[line]!.map(timesOf) }));
  return { ...problem, threads: 1, lines };
}

function weightOf({ dtype, n, k }: MatmulProblem): Weight {
  return { name: "weight", shape: [n, k], dtype: dtypeByName(dtype)! };
}

/** With more tokens than a gemv kernel takes, all of them compute the same way. */
async function timeAll(
  bench: GpuMatmulBench,
  tokens: readonly number[],
  profile: number,
  best: readonly (number | undefined)[][],
): Promise<void> {
  for (const [line, m] of tokens.entries()) {
    if (profile > 0 && m > MATVEC_TOKENS) continue;
    const us = await bench.measure(m);
    best[line]![profile] = Math.min(best[line]![profile] ?? us, us);
  }
}

/** The default, or one kernel shape for everything. */
function variantTuning(variant: string, facts: GpuFacts): Tuning {
  const usual = tuningFor(facts);
  const shape = matmulShapes.get(variant);
  return shape ? { ...usual, shapeFor: () => shape } : usual;
}

/** Copies of a matmul, one after the other, as a backend runs them. */
class GpuMatmulBench {
  readonly #gpu: GpuDevice;
  readonly #backend: Backend & GpuTuningControls;
  readonly #copies: number;
  readonly #limits: { maxTokens: number; maxOutputs: number };

  private constructor(gpu: GpuDevice, copies: number, maxTokens: number) {
    this.#gpu = gpu;
    const request = { level: 3, threads: 1, startThread: undefined, gpu } as const;
    this.#backend = backendByName("webgpu")!.create(request) as Backend & GpuTuningControls;
    this.#copies = copies;
    this.#limits = { maxTokens, maxOutputs: maxTokens };
  }

  static async open(
    gpu: GpuDevice,
    { dtype, n, k }: MatmulProblem,
    maxTokens: number,
    bytes: number,
  ): Promise<GpuMatmulBench> {
    const type = dtypeByName(dtype)!;
    const size = n * bytesFor(type, k);
    const copies = Math.min(MOST_COPIES, Math.max(1, Math.ceil(bytes / size)));
    const bench = new GpuMatmulBench(gpu, copies, maxTokens);
    try {
      const graph = matmulGraph(type, n, k, copies);
      const plan = makePlan(graph, bench.#limits);
      await bench.#backend.prepare(plan, evenRoom(1, floats));
      for (const weight of graph.weights) await uploadSample(bench.#backend, weight);
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

  /** Microseconds of one matmul. */
  async measure(m: number): Promise<number> {
    const ms = await this.#backend.timeBatch(matmulBatch(m, this.#limits));
    return (Math.max(0, ms) * 1000) / this.#copies;
  }

  dispose(): void {
    this.#backend.dispose();
  }
}
