// All limits of one model on one device, as one record: `lantern limits` prints it, its --json is this record, plot.ts
// draws it. This file does no arithmetic or formatting of its own.

import type { Device } from "../api/rates.ts";
import { UsageError } from "../base/errors.ts";
import { decodeLimit, decodeLine, decodeTotalMs } from "./decode.ts";
import { deviceAtRate, type Rate, withMatrixUnits } from "./devices.ts";
import type { DiskReport } from "./disk.ts";
import { type Effect, effectsOf } from "./effects.ts";
import type { LimitsModel } from "./limits-model.ts";
import { type Measured, type MeasuredSpeed, measuredAgainst } from "./measured.ts";
import { kvBytesPerToken, stateBytes, tokensThatFit } from "./memory.ts";
import { type Counting, type ModelCost, weightBytesFor } from "./model-cost.ts";
import { prefillCountOf, prefillLimit, type TurningPoints, turningPoints } from "./prefill.ts";
import type { Limit } from "./roofline.ts";
import {
  type MeasuredLoad,
  type ServingOptions,
  type ServingReport,
  servingReport,
} from "./serving-report.ts";
import { type ParameterCounts, parameterCounts } from "./shape.ts";
import type { SpeculationHere } from "./speculation-here.ts";
import {
  bestDraftTokens,
  type Speculation,
  type SpeculationLimit,
  speculationLimit,
} from "./speculative.ts";

export interface ReportOptions {
  /** Default: "best". */
  readonly counting?: Counting | undefined;
  /** The longest prompt and generation in the tables. */
  readonly context: number;
  /** Memory to use instead of the device's own. */
  readonly memoryBytes?: number | undefined;
  /** Use this peak rate for all arithmetic. */
  readonly rate?: Rate | undefined;
  /** Without draftTokens: the best number. */
  readonly speculation?: (Omit<Speculation, "draftTokens"> & { draftTokens?: number }) | undefined;
  readonly measured?: readonly Measured[] | undefined;
  /** Many users at once. */
  readonly serving?: ServingOptions | undefined;
  /** Measurements of `lantern bench serve` with this model on this device. */
  readonly servedLoads?: readonly MeasuredLoad[] | undefined;
}

export interface LimitsReport {
  readonly model: Omit<LimitsModel, "cost">;
  readonly device: Device;
  readonly counting: Counting;
  readonly context: number;
  readonly cost: ModelCost;
  readonly parameters: ParameterCounts;
  readonly memory: MemoryReport;
  /** Present if the model is larger than its memory limit. */
  readonly disk?: DiskReport;
  readonly prefill: PrefillReport;
  readonly decode: DecodeReport;
  /** The effect of other widths and of GQA; the first entry is the model as it is. */
  readonly effects: readonly Effect[];
  readonly speculation?: SpeculationReport;
  readonly measured: readonly MeasuredSpeed[];
  readonly serving?: ServingReport;
}

export interface MemoryReport {
  /** Memory of the device; undefined if it is not known. */
  readonly bytes: number | undefined;
  /** Read for every token. */
  readonly weightBytes: number;
  /** Including the embedding table. */
  readonly storedBytes: number;
  readonly kvParametersPerToken: number;
  /** Bytes that a token adds while no window is full. */
  readonly kvBytesPerToken: number;
  /** KV cache and recurrent state of one sequence that fills the context. */
  readonly stateBytes: number;
  /**
   * undefined: the weights alone do not fit, or the memory is not known. Infinity (null in JSON): the state stops growing
   * before the memory is full.
   */
  readonly tokensThatFit: number | undefined;
  /** The same with the embedding table in the device's memory. */
  readonly tokensThatFitWithEmbedding: number | undefined;
}

export interface PrefillReport {
  readonly rows: readonly PrefillRow[];
  /** Prompt lengths at which the bottleneck changes, in this report's counting: `shared`, or `exact` in the article's. */
  readonly turns: TurningPoints;
  readonly rough: TurningPoints;
  readonly exact: TurningPoints;
  readonly shared: TurningPoints;
}

export interface PrefillRow {
  readonly tokens: number;
  readonly readMs: number;
  readonly computeMs: number;
  /** With logits of every token. */
  readonly roughComputeMs: number;
  /** With one read of the KV cache for all tokens. */
  readonly sharedReadMs: number;
  /** The longer of readMs and computeMs. */
  readonly firstTokenMs: number;
  readonly tokensPerSecond: number;
  readonly resource: Limit["resource"];
}

export interface DecodeReport {
  /** W: tokens that add one millisecond of latency. */
  readonly tokensPerMs: number;
  /** B: milliseconds of the first token. */
  readonly firstMs: number;
  readonly rows: readonly DecodeRow[];
}

export interface DecodeRow {
  /** Number of the token, from 1. */
  readonly token: number;
  readonly ms: number;
  readonly tokensPerSecond: number;
  readonly resource: Limit["resource"];
  /** Time of all tokens up to this one. */
  readonly totalMs: number;
}

export interface SpeculationReport extends SpeculationLimit {
  readonly acceptance: number;
  /** Tokens in the cache. */
  readonly context: number;
  /** The best number of drafted tokens here, and its speedup. */
  readonly bestDraftTokens: number;
  readonly bestSpeedup: number;
  /** The gain by the number of drafted tokens, from 0. */
  readonly curve: readonly SpeculationLimit[];
  /** Of a file on this machine: the same by measured times of batches, and measured gains; a string: why there are none. */
  readonly here?: SpeculationHere | string;
}

export function limitsReport(
  model: LimitsModel,
  device: Device,
  options: ReportOptions,
): LimitsReport {
  const { context, rate, speculation, counting = "best" } = options;
  if (!(Number.isSafeInteger(context) && context >= 1)) {
    throw new UsageError(`context: got ${String(context)}, expected a whole number above 0`);
  }
  const rated = ratedDevice(device, counting, rate);
  const { cost, ...facts } = model;
  const memoryBytes = options.memoryBytes ?? device.memoryBytes;
  return {
    model: facts,
    device: rated,
    counting,
    context,
    cost,
    parameters: model.parameters ?? parameterCounts(model.shape),
    memory: memoryReport(model, memoryBytes, context),
    prefill: prefillReport(cost, rated, context, counting),
    decode: decodeReport(cost, rated, context),
    effects: effectsOf(model, rated, { memoryBytes, context, counting }),
    ...(speculation && { speculation: speculationReport(cost, rated, context, speculation) }),
    measured: (options.measured ?? []).map((speed) => measuredAgainst(speed, cost, rated)),
    ...(options.serving && {
      serving: servingReport(
        { model, device: rated, counting, memoryBytes },
        options.serving,
        options.servedLoads,
      ),
    }),
  };
}

/** The device with the rates that this report uses. */
function ratedDevice(device: Device, counting: Counting, rate: Rate | undefined): Device {
  if (rate !== undefined) return deviceAtRate(device, rate);
  return counting === "best" ? withMatrixUnits(device) : device;
}

function memoryReport(
  { cost, state, bits }: LimitsModel,
  bytes: number | undefined,
  context: number,
): MemoryReport {
  const fitting = (weightBytes: number): number | undefined =>
    bytes === undefined ? undefined : tokensThatFit(bytes, weightBytes, state);
  return {
    bytes,
    weightBytes: cost.weightBytes,
    storedBytes: cost.storedBytes,
    kvParametersPerToken: (kvBytesPerToken(state) * 8) / bits.kv,
    kvBytesPerToken: kvBytesPerToken(state),
    stateBytes: stateBytes(state, context),
    tokensThatFit: fitting(weightBytesFor(cost, Number.POSITIVE_INFINITY)),
    tokensThatFitWithEmbedding: fitting(cost.storedBytes),
  };
}

function prefillReport(
  cost: ModelCost,
  device: Device,
  context: number,
  counting: Counting,
): PrefillReport {
  const count = prefillCountOf[counting];
  const rows = lengthsUpTo(context).map((tokens) => {
    const limit = prefillLimit(cost, device, tokens, count);
    return {
      tokens,
      readMs: limit.bandwidthSeconds * 1000,
      computeMs: limit.arithmeticSeconds * 1000,
      roughComputeMs: prefillLimit(cost, device, tokens, "rough").arithmeticSeconds * 1000,
      sharedReadMs: prefillLimit(cost, device, tokens, "shared").bandwidthSeconds * 1000,
      firstTokenMs: limit.seconds * 1000,
      tokensPerSecond: tokens / limit.seconds,
      resource: limit.resource,
    };
  });
  return {
    rows,
    turns: turningPoints(cost, device, count),
    rough: turningPoints(cost, device, "rough"),
    exact: turningPoints(cost, device, "exact"),
    shared: turningPoints(cost, device, "shared"),
  };
}

function decodeReport(cost: ModelCost, device: Device, context: number): DecodeReport {
  const rows = lengthsUpTo(context).map((token) => {
    const { seconds, resource } = decodeLimit(cost, device, token);
    return {
      token,
      ms: seconds * 1000,
      tokensPerSecond: 1 / seconds,
      resource,
      totalMs: decodeTotalMs(cost, device, 0, token),
    };
  });
  return { ...decodeLine(cost, device), rows };
}

function speculationReport(
  cost: ModelCost,
  device: Device,
  context: number,
  { draftTokens, ...speculation }: NonNullable<ReportOptions["speculation"]>,
): SpeculationReport {
  const best = bestDraftTokens(cost, device, context, speculation);
  const limit =
    draftTokens === undefined
      ? best
      : speculationLimit(cost, device, context, { ...speculation, draftTokens });
  return {
    ...limit,
    acceptance: speculation.acceptance,
    context,
    bestDraftTokens: best.draftTokens,
    bestSpeedup: best.speedup,
    curve: Array.from({ length: curveEnd(limit.draftTokens, best.draftTokens) + 1 }, (_, count) =>
      speculationLimit(cost, device, context, { ...speculation, draftTokens: count }),
    ),
  };
}

/** The curve continues after the highest point, so that readers see it fall. */
function curveEnd(...interesting: number[]): number {
  return Math.min(64, Math.max(8, ...interesting.map((count) => 2 * count)));
}

const shortLengths = [1, 32, 128, 512] as const;
const longStep = 2048;
const mostSteps = 8;

/** Lengths for a table: a few short ones, then up to eight equal steps of a multiple of 2048, and the last one. */
export function lengthsUpTo(context: number): number[] {
  const step = longStep * Math.ceil(context / (longStep * mostSteps));
  const long = Array.from({ length: mostSteps }, (_, i) => (i + 1) * step);
  return [...shortLengths, ...long].filter((length) => length < context).concat(context);
}
