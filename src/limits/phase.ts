// The two phases of a generation against their limits: the least that prefill and decode must move and compute (from
// the model's own graph), and how close a measured time is to the least time that a device allows.
//
// The work is computed by prefill.ts and decode.ts, which `lantern limits` and the Limits page also show: a speed and
// its limit are the same numbers everywhere. Weights count with the bytes of their file, however a backend packs them.
// Activations do not count: they are small and stay in caches. Everything is computed once per phase.

import type { Device, PhaseWork, SpeedLimit, SpeedLimits, Work } from "../api/rates.ts";
import type { KvDType } from "../dtypes/kv-types.ts";
import type { Graph } from "../graph/graph.ts";
import { decodeTotalWork } from "./decode.ts";
import { graphModelCost } from "./model-cost.ts";
import { prefillWork } from "./prefill.ts";
import { limitOf, noOps, opsSum } from "./roofline.ts";

/** A graph with the type of its KV cache. */
export interface PhaseModel {
  readonly graph: Graph;
  readonly kvType: KvDType;
}

/** Prefill of `tokens` tokens after `cached` ones, up to the logits of the last: weights and cache are read once. */
export function promptWork({ graph, kvType }: PhaseModel, cached: number, tokens: number): Work {
  if (tokens === 0) return noWork;
  return prefillWork(graphModelCost(graph, kvType, 0), tokens, "shared", cached);
}

/**
 * Decoding in `batches` batches, the first after `context` tokens: everything is read once for each batch, and operations are those
 * of `tokens` tokens. There are more tokens than batches if some were drafted (accepted or not) or known beforehand.
 */
export function generationWork(
  { graph, kvType }: PhaseModel,
  context: number,
  batches: number,
  tokens: number = batches,
): Work {
  if (batches === 0) return noWork;
  const work = decodeTotalWork(graphModelCost(graph, kvType, 0), context, batches);
  if (tokens === batches) return work;
  return { bytes: work.bytes, ...opsSum([tokens / batches, work]) };
}

/** Counts of a generation: `tokens` in `batches` batches after the prompt, one token in each by default. */
interface GenerationCounts {
  readonly cached: number;
  readonly read: number;
  readonly batches: number;
  readonly tokens?: number;
}

/**
 * The work of a generation: `read` prompt tokens after `cached` ones, then those that were generated; also for the
 * model's parts, if it is split.
 */
export function phaseWork(
  model: PhaseModel,
  parts: readonly PhaseModel[],
  { cached, read, batches, tokens }: GenerationCounts,
): PhaseWork {
  const of = (part: PhaseModel): PhaseWork => ({
    prompt: promptWork(part, cached, read),
    generation: generationWork(part, cached + read, batches, tokens),
  });
  return { ...of(model), ...(parts.length > 1 && { parts: parts.map(of) }) };
}

const noWork: Work = { bytes: 0, ...noOps };

/** Measurements of a generation. */
export interface PhaseTimes {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly promptMs: number;
  readonly generatedTokens: number;
  readonly generatedMs: number;
  readonly work: PhaseWork;
}

/** A device that computes all of the model, or a part of it, or all of it in one phase. */
export interface PhaseDevice extends Device {
  /** Default: both. */
  readonly phase?: "prompt" | "generation";
}

/**
 * For one device, or one for each part of the model: parts run one after the other, so their least times add up. Or one for each phase, which
 * then does all of that phase's work.
 */
export function speedLimits(times: PhaseTimes, ...devices: PhaseDevice[]): SpeedLimits {
  const { promptTokens, cachedTokens, promptMs, generatedTokens, generatedMs, work } = times;
  const isByPhase = devices.some(({ phase }) => phase !== undefined);
  const parts = devices.length > 1 && !isByPhase ? work.parts : devices.map(() => work);
  if (parts?.length !== devices.length) return { prompt: undefined, generation: undefined };
  const pieces = (phase: "prompt" | "generation"): Piece[] =>
    devices
      .map((device, i) => ({ work: parts[i]![phase], device }))
      .filter(({ device }) => (device.phase ?? phase) === phase);
  const read = { tokens: promptTokens - cachedTokens, seconds: promptMs / 1000 };
  const generated = { tokens: generatedTokens, seconds: generatedMs / 1000 };
  return {
    prompt: limitOfPieces(pieces("prompt"), read),
    generation: limitOfPieces(pieces("generation"), generated),
    ...(devices.some(({ quick }) => quick) && { quick: true }),
  };
}

/** undefined if nothing was computed or no time passed. */
export function speedLimit(
  work: Work,
  device: Device,
  measured: { tokens: number; seconds: number },
): SpeedLimit | undefined {
  return limitOfPieces([{ work, device }], measured);
}

/** Work, and the device that does it. */
interface Piece {
  readonly work: Work;
  readonly device: Device;
}

function limitOfPieces(
  pieces: readonly Piece[],
  measured: { tokens: number; seconds: number },
): SpeedLimit | undefined {
  const bound = { bandwidth: 0, arithmetic: 0 };
  const amounts = { bandwidth: 0, arithmetic: 0 };
  for (const { work, device } of pieces) {
    const limit = limitOf(work, device);
    bound[limit.resource] += limit.seconds;
    amounts.bandwidth += work.bytes;
    amounts.arithmetic += work.floatOps + work.halfOps + work.int8Ops;
  }
  const seconds = bound.bandwidth + bound.arithmetic;
  if (!(seconds > 0 && measured.seconds > 0)) return undefined;
  const resource = bound.bandwidth >= bound.arithmetic ? "bandwidth" : "arithmetic";
  const amount = amounts[resource];
  return {
    resource,
    tokensPerSecond: measured.tokens / seconds,
    fraction: seconds / measured.seconds,
    achievedPerSecond: amount / measured.seconds,
    possiblePerSecond: amount / seconds,
  };
}
