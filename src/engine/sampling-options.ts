// Turns the sampling options of the public API into SamplerSettings: defaults and checks of all values, by the rows of
// src/options/sampling.ts. A wrong value is an OptionError; no value is clamped silently.

import type { SamplingOptions } from "../api/api.ts";
import { OptionError } from "../base/errors.ts";
import { checkOptionNames, type OptionNames } from "../base/options.ts";
import { isInRange } from "../options/range.ts";
import { expectedOf } from "../options/row.ts";
import {
  type SamplingName,
  type SamplingNumber,
  samplingNumbers,
  samplingRows,
  samplingTable,
} from "../options/sampling.ts";
import { readSamplers } from "./sampler-names.ts";
import type { SamplerSettings } from "./sampling.ts";

/** The names that resolveSampling knows, for callers that split them off a larger set of options. */
const samplingOptions: OptionNames<SamplingOptions> = {
  ...(Object.fromEntries(Object.keys(samplingRows).map((name) => [name, true])) as Record<
    SamplingName,
    true
  >),
  samplers: true,
  logitBias: true,
};
export const samplingOptionNames = Object.keys(
  samplingOptions,
) as readonly (keyof SamplingOptions)[];

/** Fills in defaults; an option that is undefined counts as not given. Banned tokens are never chosen, even with a logitBias. */
export function resolveSampling(
  options: SamplingOptions,
  banned: Iterable<number> = [],
): SamplerSettings {
  checkOptionNames("sampling", options, samplingOptions);
  const numbers = Object.fromEntries(
    (Object.keys(samplingNumbers) as SamplingNumber[]).map((name) => [
      name,
      resolveNumber(name, options[name]),
    ]),
  ) as Record<SamplingNumber, number>;
  const logitBias = resolveLogitBias(options.logitBias);
  for (const id of banned) logitBias.set(id, Number.NEGATIVE_INFINITY);
  return {
    ...numbers,
    drySequenceBreakers: resolveBreakers(options.drySequenceBreakers),
    samplers: readSamplers(options.samplers),
    logitBias,
  };
}

/** Without a default (a seed), the number is a random one. */
function resolveNumber(name: SamplingNumber, value: unknown): number {
  const row = samplingNumbers[name];
  if (value === undefined) return row.default ?? Math.floor(Math.random() * 2 ** 32);
  if (isInRange(value, row.range)) return value;
  throw new OptionError(name, value, expectedOf(row));
}

function resolveBreakers(value: unknown): readonly string[] {
  const row = samplingTable.drySequenceBreakers;
  if (value === undefined) return row.default;
  const isText = (one: unknown): boolean =>
    typeof one === "string" && one !== "" && one.length <= row.longest;
  if (Array.isArray(value) && value.length <= row.most && value.every(isText)) {
    return value as string[];
  }
  throw new OptionError("drySequenceBreakers", value, expectedOf(row));
}

function resolveLogitBias(value: SamplingOptions["logitBias"]): Map<number, number> {
  const biases = new Map<number, number>();
  if (value === undefined) return biases;
  if (typeof value !== "object" || value === null) {
    throw new OptionError("logitBias", value, "a map or an object from token id to number");
  }
  const entries: Iterable<[unknown, unknown]> =
    value instanceof Map ? value : Object.entries(value);
  for (const [key, bias] of entries) {
    const id = typeof key === "string" && key.trim() !== "" ? Number(key) : key;
    if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 0) {
      throw new OptionError("logitBias", key, "token ids (whole numbers, 0 or more) as keys");
    }
    if (typeof bias !== "number" || Number.isNaN(bias) || bias === Number.POSITIVE_INFINITY) {
      throw new OptionError("logitBias", bias, "a finite number, or -Infinity (never)", `[${id}]`);
    }
    biases.set(id, bias);
  }
  return biases;
}
