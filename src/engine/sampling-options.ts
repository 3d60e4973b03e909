// From the sampling options of the public API to SamplerSettings: defaults and checks of all values.
//
// The rules are one table. An unknown name or a value outside its range is a UsageError that says which option, what
// it got and what it expects; nothing is clamped silently.

import type { SamplingOptions } from "../api/api.ts";
import { UsageError } from "../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../base/options.ts";
import { show } from "../base/show.ts";
import { readSamplers } from "./sampler-names.ts";
import type { SamplerSettings } from "./sampling.ts";

interface NumberRule {
  initial: number;
  accepts: (value: number) => boolean;
  expected: string;
}

type OtherOption = "logitBias" | "seed" | "samplers" | "drySequenceBreakers";
type NumberOption = Exclude<keyof SamplingOptions, OtherOption>;

const fraction = (value: number): boolean => value >= 0 && value <= 1;

const numberRules: Readonly<Record<NumberOption, NumberRule>> = {
  temperature: {
    initial: 0.8,
    accepts: (value) => value >= 0 && Number.isFinite(value),
    expected: "a finite number, 0 (greedy) or more",
  },
  topK: {
    initial: 40,
    accepts: (value) => Number.isSafeInteger(value) && value >= 0,
    expected: "a whole number, 0 (all tokens) or more",
  },
  topP: { initial: 0.95, accepts: fraction, expected: "a number from 0 to 1 (1 = off)" },
  minP: { initial: 0.05, accepts: fraction, expected: "a number from 0 (off) to 1" },
  typicalP: { initial: 1, accepts: fraction, expected: "a number from 0 to 1 (1 = off)" },
  topNSigma: {
    initial: -1,
    accepts: Number.isFinite,
    expected: "a finite number (0 or less = off)",
  },
  xtcProbability: { initial: 0, accepts: fraction, expected: "a number from 0 (off) to 1" },
  xtcThreshold: {
    initial: 0.1,
    accepts: fraction,
    expected: "a number from 0 to 1 (above 0.5 = off)",
  },
  dynatempRange: {
    initial: 0,
    accepts: (value) => value >= 0 && Number.isFinite(value),
    expected: "a finite number, 0 (off) or more",
  },
  dynatempExponent: {
    initial: 1,
    accepts: (value) => value >= 0 && Number.isFinite(value),
    expected: "a finite number, 0 or more",
  },
  mirostat: {
    initial: 0,
    accepts: (value) => value === 0 || value === 1 || value === 2,
    expected: "0 (off), 1 or 2",
  },
  mirostatTau: {
    initial: 5,
    accepts: (value) => value >= 0 && Number.isFinite(value),
    expected: "a finite number, 0 or more",
  },
  mirostatEta: {
    initial: 0.1,
    accepts: (value) => value >= 0 && Number.isFinite(value),
    expected: "a finite number, 0 or more",
  },
  repeatPenalty: {
    initial: 1,
    accepts: (value) => value > 0 && Number.isFinite(value),
    expected: "a finite number above 0 (1 = off)",
  },
  repeatLastN: {
    initial: 64,
    accepts: (value) => Number.isSafeInteger(value) && value >= -1,
    expected: "a whole number: tokens to look back, 0 (off) or -1 (all)",
  },
  frequencyPenalty: { initial: 0, accepts: Number.isFinite, expected: "a finite number (0 = off)" },
  presencePenalty: { initial: 0, accepts: Number.isFinite, expected: "a finite number (0 = off)" },
  dryMultiplier: {
    initial: 0,
    accepts: (value) => value >= 0 && Number.isFinite(value),
    expected: "a finite number, 0 (off) or more",
  },
  dryBase: {
    initial: 1.75,
    accepts: (value) => value >= 0 && Number.isFinite(value),
    expected: "a finite number, 0 or more (below 1 = off)",
  },
  dryAllowedLength: {
    initial: 2,
    accepts: (value) => Number.isSafeInteger(value) && value >= 0,
    expected: "a whole number, 0 or more",
  },
  dryPenaltyLastN: {
    initial: 64,
    accepts: (value) => Number.isSafeInteger(value) && value >= -1,
    expected: "a whole number: tokens to look back, 0 (off) or -1 (all)",
  },
};

const numberOptions = Object.keys(numberRules) as NumberOption[];

/** The names that resolveSampling knows, for callers that split them off a larger set of options. */
const samplingOptions: OptionNames<SamplingOptions> = {
  ...(Object.fromEntries(numberOptions.map((name) => [name, true])) as OptionNames<
    Pick<SamplingOptions, NumberOption>
  >),
  drySequenceBreakers: true,
  samplers: true,
  logitBias: true,
  seed: true,
};
export const samplingOptionNames = Object.keys(
  samplingOptions,
) as readonly (keyof SamplingOptions)[];

/** As in llama.cpp. */
const defaultBreakers: readonly string[] = ["\n", ":", '"', "*"];
/** Each is searched in all tokens of the vocabulary. */
const maxBreakers = 16;
const maxBreakerLength = 1000;

/** Fills in defaults; an option that is undefined counts as not given. Banned tokens are never chosen, whatever logitBias says. */
export function resolveSampling(
  options: SamplingOptions,
  banned: Iterable<number> = [],
): SamplerSettings {
  checkOptionNames("sampling", options, samplingOptions);
  const numbers = Object.fromEntries(
    numberOptions.map((name) => [name, resolveNumber(name, options[name])]),
  ) as Record<NumberOption, number>;
  const logitBias = resolveLogitBias(options.logitBias);
  for (const id of banned) logitBias.set(id, Number.NEGATIVE_INFINITY);
  return {
    ...numbers,
    drySequenceBreakers: resolveBreakers(options.drySequenceBreakers),
    samplers: readSamplers(options.samplers),
    logitBias,
    seed: resolveSeed(options.seed),
  };
}

function resolveNumber(name: NumberOption, value: unknown): number {
  const rule = numberRules[name];
  if (value === undefined) return rule.initial;
  if (typeof value !== "number" || !rule.accepts(value)) {
    throw optionError(name, value, rule.expected);
  }
  return value;
}

function resolveBreakers(value: unknown): readonly string[] {
  if (value === undefined) return defaultBreakers;
  const isText = (one: unknown): boolean =>
    typeof one === "string" && one !== "" && one.length <= maxBreakerLength;
  if (!Array.isArray(value) || value.length > maxBreakers || !value.every(isText)) {
    throw optionError("drySequenceBreakers", value, `a list of at most ${maxBreakers} texts`);
  }
  return value as string[];
}

function resolveSeed(value: unknown): number {
  if (value === undefined) return Math.floor(Math.random() * 2 ** 32);
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    throw optionError("seed", value, `a whole number from 0 to ${Number.MAX_SAFE_INTEGER}`);
  }
  return value as number;
}

function resolveLogitBias(value: SamplingOptions["logitBias"]): Map<number, number> {
  const biases = new Map<number, number>();
  if (value === undefined) return biases;
  if (typeof value !== "object" || value === null) {
    throw optionError("logitBias", value, "a map or an object from token id to number");
  }
  const entries: Iterable<[unknown, unknown]> =
    value instanceof Map ? value : Object.entries(value);
  for (const [key, bias] of entries) {
    const id = typeof key === "string" && key.trim() !== "" ? Number(key) : key;
    if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 0) {
      throw optionError("logitBias", key, "token ids (whole numbers, 0 or more) as keys");
    }
    if (typeof bias !== "number" || Number.isNaN(bias) || bias === Number.POSITIVE_INFINITY) {
      throw optionError(`logitBias[${id}]`, bias, "a finite number, or -Infinity (never)");
    }
    biases.set(id, bias);
  }
  return biases;
}

function optionError(name: string, got: unknown, expected: string): UsageError {
  return new UsageError(`sampling: option "${name}": got ${show(got)}, expected ${expected}`);
}
