// Measures layers in one dispatch (backends/webgpu/layers.ts) on a GPU: a token of the whole model, for several numbers of workgroups,
// alternating with a dispatch for each op. Part of `lantern tune --backend webgpu`.
//
// No device tells how many workgroups run at the same time, so candidates are tried. A candidate whose workgroups give up, whose results
// have other bits or which the GPU refuses is out, with its reason, and the next one is tried over the same weights. One that seems
// faster is measured again, alternating with the dispatch for each op (challenge.ts), and is used only if that confirms it.

import { type Backend, evenCapacity, type KvCacheOptions } from "../backends/backend.ts";
import type { GpuDevice, GpuFacts } from "../backends/webgpu/device.ts";
import { layerBytes, layerShape } from "../backends/webgpu/layer-shape.ts";
import {
  type GpuTuningControls,
  LAYER_REVISION,
  type LayerDispatch,
  type Tuning,
  tuningFor,
} from "../backends/webgpu/tuning.ts";
import { defaultKvType, kvDTypeOf } from "../dtypes/kv-types.ts";
import { Batch, KV_BLOCK_TOKENS } from "../graph/batch.ts";
import { type Graph, kvGroups } from "../graph/graph.ts";
import { CHALLENGERS, challengeDefault } from "./challenge.ts";
import { clearlyFaster } from "./choose.ts";
import { total } from "./confirm.ts";
import {
  type ContextTimes,
  dispatchName,
  type LayerRefusal,
  type TunedDispatch,
  type TunedLayers,
} from "./layer-lines.ts";
import type { StageTimes } from "./tune-file.ts";

/** Numbers of workgroups, and of lanes in each. */
export type LayerCandidate = Pick<TunedDispatch, "groups" | "lanes">;

/** A model on the GPU, and how thoroughly it is measured. */
export interface LayerTunePlan {
  readonly graph: Graph;
  /** Has the model's weights, with the room of layerCapacity(). Not disposed of. */
  readonly backend: Backend & GpuTuningControls;
  readonly gpu: GpuDevice;
  /** The tuning of the model without layers in one dispatch. */
  readonly tuning: Tuning;
  readonly contexts: readonly [number, number];
  readonly rounds: number;
  /** Default: those for GPUs like this one. */
  readonly candidates?: readonly LayerCandidate[];
  /** Called before every measurement with the part that is done; throws if the work should stop. */
  report(share: number): Promise<void>;
}

/** Only one token at a time is measured. */
export const layerLimits = { maxTokens: 1, maxOutputs: 1 };
/** Positions that kernels are made for, as by default; the cache has room for those that are used. */
const POSITIONS = 4096;

/** The part of the KV cache that these contexts need. */
export function layerCapacity(graph: Graph, [, long]: readonly [number, number]): KvCacheOptions {
  const blocks = Math.ceil((long + 1) / KV_BLOCK_TOKENS);
  const room = evenCapacity(blocks, kvDTypeOf(defaultKvType), kvGroups(graph).length);
  return { ...room, tableLength: Math.max(blocks, POSITIONS / KV_BLOCK_TOKENS) };
}

/** Workgroups that GPUs may run at the same time: from 16 small cores to two for each of an H200's 132. */
const GROUPS: readonly number[] = [16, 32, 48, 64, 96, 128, 132, 176, 264];
/** The most workgroups of a matmul that are tried as well. */
const MOST_GROUPS = 512;
const LANES: readonly number[] = [256, 512];

/** In ascending order for each number of lanes. `own`: workgroups that the largest matmul of a layer makes. */
export function layerCandidates(
  { isSoftware, workgroupLanes }: GpuFacts,
  own: number,
): LayerCandidate[] {
  if (isSoftware) return [1, 2, 4].map((groups) => ({ groups })); // a few cores
  const more = own >= 1 && own <= MOST_GROUPS ? [own] : [];
  const groups = [...new Set([...GROUPS, ...more])].sort((a, b) => a - b);
  return LANES.filter((lanes) => lanes <= workgroupLanes).flatMap((lanes) =>
    groups.map((count) => ({ groups: count, lanes })),
  );
}

/**
 * Looks of a workgroup before it gives up: a failing candidate ends within a second even if a look takes several times as long as on an H200. A
 * processor that emulates a GPU looks for one lane after the other.
 */
const POLLS = { hardware: 2 ** 18, software: 2 ** 16 } as const;
/** Milliseconds that each context is measured, at least: a GPU's clocks are low after a pause. */
const LEAST_MS: readonly [number, number] = [200, 100];
/** A candidate whose first time is more than this times the best is not measured again. */
const HOPELESS = 1.15;
/** Rounds of a confirmation, besides those of the plan. */
const MORE_ROUNDS = 2;
/** Parts of the time: all candidates once, further rounds, and the rest for the confirmation. */
const FIRST_SHARE = 0.4;
const ROUNDS_SHARE = 0.3;

const apart: LayerCandidate = { groups: 0 };

export async function runLayerTune(plan: LayerTunePlan): Promise<TunedLayers> {
  const { graph, contexts, rounds, report, gpu } = plan;
  const bench = new LayerBench(plan);
  await bench.begin();
  const candidates = plan.candidates ?? layerCandidates(gpu.facts, bench.ownGroups());
  const out = new Map<LayerCandidate, LayerRefusal>();
  const known = new Map<LayerCandidate, StageTimes>();
  const measure = async (one: LayerCandidate): Promise<StageTimes | undefined> => {
    const result = await bench.measure(one);
    if (typeof result !== "string") return stagesOf(result);
    out.set(one, result);
    known.delete(one);
    return undefined;
  };
  const all = [apart, ...candidates];
  for (const [i, one] of all.entries()) {
    await report((FIRST_SHARE * i) / all.length);
    const before = candidates.filter(({ lanes }) => lanes === one.lanes).map((c) => out.get(c));
    const inherited = inheritedRefusal(one, before);
    if (inherited) out.set(one, inherited);
    else {
      const times = await measure(one);
      if (times) known.set(one, times);
    }
  }
  const best = Math.min(...[...known.values()].map(total));
  const hopeful = [...known.keys()].filter(
    (one) => one === apart || total(known.get(one)!) <= HOPELESS * best,
  );
  for (let round = 1; round < rounds; round++) {
    for (const [i, one] of hopeful.entries()) {
      const done = (round - 1 + i / hopeful.length) / (rounds - 1);
      await report(FIRST_SHARE + ROUNDS_SHARE * done);
      const times = known.has(one) ? await measure(one) : undefined;
      if (times && total(times) < total(known.get(one)!)) known.set(one, times);
    }
  }
  const turns = (CHALLENGERS + 2) * (rounds + MORE_ROUNDS);
  let turn = 0;
  const { spinning, noise } = await challengeDefault({
    known: new Map([...known].filter(([one]) => hopeful.includes(one))),
    usual: apart,
    rounds: rounds + MORE_ROUNDS,
    canSleep: () => false,
    notifyUs: 0,
    measure: async (one) => {
      const before = FIRST_SHARE + ROUNDS_SHARE;
      await report(before + ((1 - before) * turn++) / turns);
      return (await measure(one)) ?? NEVER;
    },
  });
  for (const [one, times] of spinning) if (known.has(one)) known.set(one, times);
  const least = clearlyFaster(noise) * total(known.get(apart)!);
  const faster = [...spinning].filter(([one, times]) => known.has(one) && total(times) <= least);
  const [used = apart] = faster.sort(([, a], [, b]) => total(a) - total(b))[0] ?? [];
  return {
    shape: layerShape(graph),
    use: dispatchName(used),
    bytes: layerBytes(graph),
    contexts,
    revision: LAYER_REVISION,
    ...(noise !== undefined && { noise }),
    dispatches: all.map((one) => ({ ...one, result: out.get(one) ?? timesOf(known.get(one)!) })),
  };
}

/** The times of a candidate that failed while it was confirmed. */
const NEVER: StageTimes = { init: 0, compute: Number.POSITIVE_INFINITY };

/** Two contexts in the form of a matmul's stages, whose sum is compared. */
function stagesOf([short, long]: ContextTimes): StageTimes {
  return { init: short, compute: long };
}

function timesOf({ init, compute }: StageTimes): ContextTimes {
  return [init, compute];
}

/** Why a candidate need not be tried, after those with fewer workgroups of as many lanes. */
function inheritedRefusal(
  { groups }: LayerCandidate,
  before: readonly (LayerRefusal | undefined)[],
): LayerRefusal | undefined {
  if (groups === 0) return undefined;
  if (before.includes("gave-up")) return "untried";
  return before.find((reason) => reason === "not-merged" || reason === "refused");
}

/** Computes and times tokens of the model in one way after the other. */
class LayerBench {
  readonly #plan: LayerTunePlan;
  readonly #usual: Tuning;
  readonly #batch = new Batch(layerLimits);
  readonly #sequence: { blocks: Int32Array };
  readonly #logits: Float32Array;
  /** Positions whose logits are compared; behind the last ones the timed tokens are. */
  readonly #positions: readonly number[];
  /** The bits of the logits at these positions, by a dispatch for each op. */
  readonly #wanted = new Map<number, Uint32Array>();

  constructor(plan: LayerTunePlan) {
    const { graph, contexts, gpu } = plan;
    const [short, long] = contexts;
    this.#plan = plan;
    this.#usual = tuningFor(gpu.facts);
    this.#logits = new Float32Array(graph.outputs.logits!.cols);
    const blocks = Math.ceil((long + 1) / KV_BLOCK_TOKENS);
    this.#sequence = { blocks: Int32Array.from({ length: blocks }, (_, i) => i) };
    // The cache between the two contexts is empty: a token takes as long.
    const first = Array.from({ length: short + 1 }, (_, i) => i);
    this.#positions = [...new Set([...first, Math.max(0, long - 1), long])];
  }

  /** Computes the results that the others are compared with. */
  async begin(): Promise<void> {
    await this.#plan.backend.retune({ ...this.#usual, layerDispatch: undefined });
    for (const position of this.#positions) {
      await this.#run(position);
      this.#wanted.set(position, bitsOf(this.#logits));
    }
  }

  /** The most workgroups that a matmul of a layer makes by itself. */
  ownGroups(): number {
    const { graph, backend } = this.#plan;
    this.#fill(0);
    const isOfLayer: Parameters<GpuTuningControls["kernelsOf"]>[1] = (kernel, nodes) =>
      kernel.inLayer !== undefined && !nodes.some(({ out }) => out === graph.outputs.logits);
    const grids = backend.kernelsOf(this.#batch, isOfLayer).map(({ grid }) => grid(1));
    return Math.max(0, ...grids.map(([x, y, z]) => x * y * z));
  }

  /** Microseconds of a token after each context, or why there are none. */
  async measure(one: LayerCandidate): Promise<ContextTimes | LayerRefusal> {
    if (one.groups === 0) {
      await this.#plan.backend.retune({ ...this.#plan.tuning, layerDispatch: undefined });
      return await this.#time();
    }
    if (!(await this.#take(one))) return "refused";
    if (!this.#isMerged()) return "not-merged";
    const wrong = await this.#check(this.#positions);
    if (wrong) return wrong;
    const times = await this.#time();
    // Once workgroups have given up, no workgroup waits any more, which is fast.
    return (await this.#check(this.#plan.contexts)) ?? times;
  }

  /** Switches to layers in one dispatch; false: the GPU refuses it. */
  async #take({ groups, lanes }: LayerCandidate): Promise<boolean> {
    const { backend, gpu } = this.#plan;
    const polls = POLLS[gpu.facts.isSoftware ? "software" : "hardware"];
    const layerDispatch: LayerDispatch = { groups, lanes, polls };
    gpu.device.pushErrorScope("validation");
    const taken = await backend.retune({ ...this.#usual, layerDispatch }).then(
      () => true,
      () => false,
    );
    return (await gpu.device.popErrorScope()) === null && taken;
  }

  #isMerged(): boolean {
    this.#fill(0);
    const isLayer = ({ name }: { name: string }) => name.startsWith("layer of");
    return this.#plan.backend.kernelsOf(this.#batch, isLayer).length > 0;
  }

  /** The error in the tokens at these positions; undefined: none. */
  async #check(positions: readonly number[]): Promise<LayerRefusal | undefined> {
    for (const position of positions) {
      if (!(await this.#run(position))) return "gave-up";
      const wanted = this.#wanted.get(position)!;
      if (bitsOf(this.#logits).some((word, i) => word !== wanted[i])) return "other-bits";
    }
    return undefined;
  }

  async #time(): Promise<ContextTimes> {
    const { backend, contexts, gpu } = this.#plan;
    const us: number[] = [];
    for (const [i, context] of contexts.entries()) {
      const leastMs = gpu.facts.isSoftware ? 0 : LEAST_MS[i]!;
      const since = performance.now();
      let best = Number.POSITIVE_INFINITY;
      this.#fill(context);
      do best = Math.min(best, await backend.timeBatch(this.#batch));
      while (performance.now() - since < leastMs);
      us.push(best * 1000);
    }
    return [us[0]!, us[1]!];
  }

  async #run(position: number): Promise<boolean> {
    this.#fill(position);
    const isRight = await this.#plan.backend.tryBatch(this.#batch);
    await this.#plan.backend.read("logits", 0, this.#logits);
    return isRight;
  }

  #fill(position: number): void {
    this.#batch.clear();
    this.#batch.add((position * 37 + 1) % this.#logits.length, position, this.#sequence, true);
  }
}

function bitsOf({ buffer }: Float32Array): Uint32Array {
  return new Uint32Array(buffer.slice(0));
}
