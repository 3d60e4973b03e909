// Fit of models to this machine: whether a model fits in its memory, the tokens per second that the machine allows, and the speed
// to expect. A composition root: it combines headers and shapes, this machine's limits, and the speeds of earlier runs. It takes no
// measurements.

import type { MachineMeasurement } from "../../api/api.ts";
import { LanternError } from "../../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../../base/options.ts";
import { shapeNamed } from "../../limits/configs.ts";
import { shapeState, stateBytes } from "../../limits/memory.ts";
import type { LimitsReport } from "../../limits/report.ts";
import { parameterCounts } from "../../limits/shape.ts";
import { rememberedMachine } from "../../machine/machine.ts";
import { rememberedSpeeds, type SpeedRecord } from "../../machine/speeds.ts";
import { currentPlatform } from "../../platform/current.ts";
import { inspect } from "../inspect/api.ts";
import { type LimitsOptions, limits } from "./api.ts";

/** A model that is here (`path`), or one of known shape and file size. */
export interface FitQuestion {
  path?: string | undefined;
  /** A built-in configuration of limits(): "qwen3-4b". */
  shape?: string | undefined;
  /** Size of its file. */
  bytes: number;
  /** The type of most of its weights, if there is no file: "q4_k". */
  type?: string | undefined;
}

export interface FitOptions {
  /** Overrides for this machine: its measurement, its memory, the speeds of earlier runs. */
  machine?: MachineMeasurement | undefined;
  memoryBytes?: number | undefined;
  freeBytes?: number | undefined;
  speeds?: readonly SpeedRecord[] | undefined;
}

/** The origin of the expected fraction of the limit: runs with this type of weights here, any runs here, or other machines. */
export type ShareBasis = "this type" | "this machine" | "other machines";

export interface ModelFit {
  /** now: in available memory. tight: in this machine's memory, if other programs release some. no: not at all. */
  fits: "now" | "tight" | "no" | "unknown";
  /** Weights, KV cache for `contextSize` tokens, buffers; undefined: not known. */
  needBytes: number | undefined;
  contextSize: number | undefined;
  /** Tokens per second that this machine allows; undefined: it was never measured, or the model is not known. */
  limit: number | undefined;
  /** The expected speed: the limit times `share`. */
  expected: number | undefined;
  share: number | undefined;
  basis: ShareBasis | undefined;
  /** Whether its file has a chat template; undefined: there is no file. */
  hasChatTemplate: boolean | undefined;
  /** The number of runs with `share` as their upper quartile; 0: it is from other machines. */
  runs: number;
}

/** A model trained for 128k tokens is opened with a context of 4096 by default. */
const usualContext = 4096;
/** f16 */
const usualKvBits = 16;
/** Speeds hold for this many tokens of text: reading the KV cache takes time, too. */
const textTokens = 512;
/** The most memory that the CPU backend can use: 64-bit WebAssembly. */
const processorBytes = 16 * 2 ** 30;
/** The fraction of memory that no program can use. */
const systemShare = 0.1;
/** docs/journal/cpu.md: from 38 to 80 %, depending on threads and type. */
const usualShare = 0.6;
/** Size of buffers if only the shape of a model is known. */
const bufferBytes = 100e6;

const chatTemplateKey = "tokenizer.chat_template";

const knownOptions: OptionNames<FitOptions> = {
  machine: true,
  memoryBytes: true,
  freeBytes: true,
  speeds: true,
};

/** Answers for several models, in order. */
export async function modelFits(
  questions: readonly FitQuestion[],
  options: FitOptions = {},
): Promise<ModelFit[]> {
  checkOptionNames("modelFits()", options, knownOptions);
  const platform = await currentPlatform();
  const machine = options.machine ?? (await rememberedMachine());
  const facts: Facts = {
    machine,
    memoryBytes: options.memoryBytes ?? platform.totalMemory(),
    freeBytes: options.freeBytes ?? platform.availableMemory(),
    speeds: options.speeds ?? (await rememberedSpeeds()),
  };
  return await Promise.all(questions.map((question) => fitOf(question, facts)));
}

interface Facts {
  machine: MachineMeasurement | undefined;
  memoryBytes: number | undefined;
  freeBytes: number | undefined;
  speeds: readonly SpeedRecord[];
}

async function fitOf(question: FitQuestion, facts: Facts): Promise<ModelFit> {
  const need = await needOf(question);
  const limit = facts.machine && (await limitOf(question, facts.machine));
  const type = need?.type ?? question.type;
  const { share, basis, runs } = probableShare(facts.speeds, { type, bytes: question.bytes });
  return {
    fits: fitting(need?.bytes, facts),
    needBytes: need?.bytes,
    contextSize: need?.contextSize,
    hasChatTemplate: need?.hasChatTemplate,
    limit,
    expected: limit === undefined ? undefined : limit * share,
    share: limit === undefined ? undefined : share,
    basis: limit === undefined ? undefined : basis,
    runs: limit === undefined ? 0 : runs,
  };
}

interface Need {
  bytes: number;
  contextSize: number;
  type: string | undefined;
  hasChatTemplate?: boolean;
}

async function needOf(question: FitQuestion): Promise<Need | undefined> {
  if (question.path !== undefined) {
    const inspection = await quietly(() => inspect(question.path!));
    if (!inspection?.memory) return undefined; // not a model that this build can run
    const { totalBytes, contextSize } = inspection.memory;
    const [common] = inspection.types.toSorted((a, b) => b.bytes - a.bytes);
    const hasChatTemplate = inspection.metadata.some(({ key }) => key === chatTemplateKey);
    return { bytes: totalBytes, contextSize, type: common?.dtype, hasChatTemplate };
  }
  const named = question.shape === undefined ? undefined : shapeNamed(question.shape);
  if (!named) return undefined;
  const kvBytes = stateBytes(shapeState(named.shape, usualKvBits), usualContext);
  const bytes = question.bytes + kvBytes + bufferBytes;
  return { bytes, contextSize: usualContext, type: question.type };
}

function fitting(need: number | undefined, facts: Facts): ModelFit["fits"] {
  const { memoryBytes = Number.POSITIVE_INFINITY, freeBytes = memoryBytes } = facts;
  if (need === undefined) return "unknown";
  if (need <= Math.min(freeBytes, processorBytes)) return "now";
  return need <= Math.min(memoryBytes * (1 - systemShare), processorBytes) ? "tight" : "no";
}

async function limitOf(
  question: FitQuestion,
  machine: MachineMeasurement,
): Promise<number | undefined> {
  const report =
    question.path === undefined
      ? await shapeReport(question, machine)
      : await quietly(() => limits(question.path!, onMachine(machine)));
  return report?.decode.rows.findLast(({ token }) => token <= textTokens)?.tokensPerSecond;
}

function onMachine(machine: MachineMeasurement): LimitsOptions {
  return { context: textTokens, machine: async () => machine };
}

/** A shape with weights of the width that follows from its file size. */
async function shapeReport(
  { shape, bytes }: FitQuestion,
  machine: MachineMeasurement,
): Promise<LimitsReport | undefined> {
  const named = shape === undefined ? undefined : shapeNamed(shape);
  if (!named) return undefined;
  const { total, norms } = parameterCounts(named.shape);
  const weights = Math.min(64, (bytes * 8) / (total + norms));
  return await quietly(() => limits(named.id, { weights, ...onMachine(machine) }));
}

/** A damaged file or an unknown architecture must not prevent the list. */
async function quietly<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof LanternError) return undefined;
    throw error;
  }
}

/** From this size on, models reach about the same fraction of their limit. */
const largeBytes = 300e6;
/** Below it, models with sizes that differ by less than this factor are comparable. */
const alike = 4;

/**
 * The fraction that runs with the same type of weights reached here, or else with any type: only of models of
 * comparable size. The upper quartile, because other programs can only slow a run down.
 */
export function probableShare(
  speeds: readonly SpeedRecord[],
  { type, bytes }: { type: string | undefined; bytes: number },
): { share: number; basis: ShareBasis; runs: number } {
  const isAlike = (run: SpeedRecord): boolean =>
    Math.min(run.bytes, bytes) >= largeBytes ||
    Math.max(run.bytes, bytes) < alike * Math.min(run.bytes, bytes);
  const comparable = speeds.filter(isAlike);
  const same = comparable.filter((run) => run.type === type);
  const [runs, basis]: [readonly SpeedRecord[], ShareBasis] =
    same.length > 0 ? [same, "this type"] : [comparable, "this machine"];
  if (runs.length === 0) return { share: usualShare, basis: "other machines", runs: 0 };
  const shares = runs.map(({ share }) => share).sort((a, b) => a - b);
  const quartile = Math.floor((shares.length * 3) / 4);
  return { share: shares[quartile]!, basis, runs: runs.length };
}
