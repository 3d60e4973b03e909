// The sampling fields of OpenAI's and llama.cpp's requests: names, types, ranges, and their options in the public API.
// Ollama's and Anthropic's have other names and also end up in `generateOptions`.

import * as z from "zod";
import type { AdapterScale, GenerateOptions, SpeculateOptions } from "../index.ts";
import { biasInput, type LogitBias } from "./inputs.ts";
import type { ServedModel } from "./served-model.ts";

/** Fields under llama.cpp's names, which include OpenAI's. */
export interface SamplingFields {
  temperature?: number | undefined;
  top_k?: number | undefined;
  top_p?: number | undefined;
  min_p?: number | undefined;
  typical_p?: number | undefined;
  top_n_sigma?: number | undefined;
  xtc_probability?: number | undefined;
  xtc_threshold?: number | undefined;
  dynatemp_range?: number | undefined;
  dynatemp_exponent?: number | undefined;
  mirostat?: number | undefined;
  mirostat_tau?: number | undefined;
  mirostat_eta?: number | undefined;
  dry_multiplier?: number | undefined;
  dry_base?: number | undefined;
  dry_allowed_length?: number | undefined;
  dry_penalty_last_n?: number | undefined;
  dry_sequence_breakers?: string[] | undefined;
  samplers?: string | string[] | undefined;
  repeat_penalty?: number | undefined;
  repeat_last_n?: number | undefined;
  frequency_penalty?: number | undefined;
  presence_penalty?: number | undefined;
  logit_bias?: LogitBias | undefined;
  seed?: number | undefined;
  stop?: string | string[] | undefined;
  ignore_eos?: boolean | undefined;
  cache_prompt?: boolean | undefined;
  cache_disk?: boolean | undefined;
  n_keep?: number | undefined;
  n_discard?: number | undefined;
  n_cache_reuse?: number | undefined;
  lora?: AdapterScale[] | undefined;
  "speculative.n_max"?: number | undefined;
  "speculative.n_min"?: number | undefined;
  "speculative.p_min"?: number | undefined;
}

type Shape<T> = { readonly [K in keyof T]-?: z.ZodType<T[K]> };

const share = z.number().min(0).max(1).optional();
const penalty = z.number().min(-100).max(100).optional();
const positive = z.number().min(0).max(1000).optional();
/** Of adapters that a request may name, also more than once. */
const MOST_LISTED = 256;
/** How strongly an adapter is applied, as llama.cpp has it: without a scale, not at all. */
export const adapterScale: z.ZodType<AdapterScale> = z.object({
  id: z.int().min(0),
  scale: z.number().default(0),
});
/** SpeculateOptions.maxDepth. */
const MOST_DRAFTED = 31;
const maxSamplers = 64;
const maxStops = 32;
/** Every token is matched against all of them: megabytes of stop strings would slow everybody's answers. */
const maxStopLength = 1000;
export const stopString: z.ZodType<string> = z.string().min(1).max(maxStopLength);

export const samplingShape: Shape<SamplingFields> = {
  temperature: z.number().min(0).max(100).optional(),
  top_k: z.int().min(0).optional(),
  top_p: share,
  min_p: share,
  typical_p: share,
  top_n_sigma: z.number().min(-100).max(1000).optional(),
  xtc_probability: share,
  xtc_threshold: share,
  dynatemp_range: positive,
  dynatemp_exponent: positive,
  mirostat: z.int().min(0).max(2).optional(),
  mirostat_tau: positive,
  mirostat_eta: positive,
  dry_multiplier: positive,
  dry_base: positive,
  dry_allowed_length: z.int().min(0).optional(),
  dry_penalty_last_n: z.int().min(-1).optional(),
  dry_sequence_breakers: z.array(stopString).max(16).optional(),
  samplers: z
    .union(
      [z.string().max(maxSamplers), z.array(z.string().max(40)).max(maxSamplers)],
      "expected a list of names, or a string of letters",
    )
    .optional(),
  repeat_penalty: z.number().gt(0).max(100).optional(),
  repeat_last_n: z.int().min(-1).optional(),
  frequency_penalty: penalty,
  presence_penalty: penalty,
  logit_bias: biasInput.optional(),
  seed: z.int().min(-1).optional(),
  stop: z
    .union(
      [stopString, z.array(stopString).max(maxStops)],
      `expected a string or at most ${maxStops} of them, each of 1 to ${maxStopLength} characters`,
    )
    .optional(),
  ignore_eos: z.boolean().optional(),
  cache_prompt: z.boolean().optional(),
  cache_disk: z.boolean().optional(),
  n_keep: z.int().min(-1).optional(),
  n_discard: z.int().min(0).optional(),
  n_cache_reuse: z.int().min(0).optional(),
  lora: z.array(adapterScale).max(MOST_LISTED).optional(),
  "speculative.n_max": z.int().min(0).optional(),
  "speculative.n_min": z.int().min(0).optional(),
  "speculative.p_min": share,
};

/** What a generation of this model is asked with, where its request says nothing: the model's preset, over the server's flags. */
export function samplingOf(
  { settings }: { readonly settings: { readonly sampling: GenerateOptions } },
  { preset }: ServedModel,
): GenerateOptions {
  return preset?.sampling ? { ...settings.sampling, ...preset.sampling } : settings.sampling;
}

/** The options of a generation: the request's, over the defaults. */
export function generateOptions(
  fields: SamplingFields,
  more: { maxTokens?: number | undefined; logprobs?: number | undefined },
  defaults: GenerateOptions,
): GenerateOptions {
  const options: { [K in keyof GenerateOptions]: GenerateOptions[K] | undefined } = {
    maxTokens: more.maxTokens,
    logprobs: more.logprobs,
    temperature: fields.temperature,
    topK: fields.top_k,
    topP: fields.top_p,
    minP: fields.min_p,
    typicalP: fields.typical_p,
    topNSigma: fields.top_n_sigma,
    xtcProbability: fields.xtc_probability,
    xtcThreshold: fields.xtc_threshold,
    dynatempRange: fields.dynatemp_range,
    dynatempExponent: fields.dynatemp_exponent,
    mirostat: fields.mirostat,
    mirostatTau: fields.mirostat_tau,
    mirostatEta: fields.mirostat_eta,
    dryMultiplier: fields.dry_multiplier,
    dryBase: fields.dry_base,
    dryAllowedLength: fields.dry_allowed_length,
    dryPenaltyLastN: fields.dry_penalty_last_n,
    drySequenceBreakers: fields.dry_sequence_breakers,
    samplers: fields.samplers,
    repeatPenalty: fields.repeat_penalty,
    repeatLastN: fields.repeat_last_n,
    frequencyPenalty: fields.frequency_penalty,
    presencePenalty: fields.presence_penalty,
    logitBias: fields.logit_bias && biasMap(fields.logit_bias),
    seed: fields.seed === -1 ? undefined : fields.seed,
    stop: typeof fields.stop === "string" ? [fields.stop] : fields.stop,
    ignoreEos: fields.ignore_eos,
    cachePrompt: fields.cache_prompt,
    cacheDisk: fields.cache_disk,
    keepTokens: fields.n_keep,
    discardTokens: fields.n_discard,
    cacheReuse: fields.n_cache_reuse,
    adapters: fields.lora,
    speculate: speculateOf(fields),
  };
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return { ...defaults, ...(Object.fromEntries(given) as GenerateOptions) };
}

/** More than can be drafted is no error in llama.cpp, and means as many as possible; undefined: the server's default. */
function speculateOf(fields: SamplingFields): SpeculateOptions | undefined {
  const {
    "speculative.n_max": max,
    "speculative.n_min": min,
    "speculative.p_min": chance,
  } = fields;
  if (max === undefined && min === undefined && chance === undefined) return undefined;
  return {
    ...(max !== undefined && { maxDepth: Math.min(max, MOST_DRAFTED) }),
    ...(min !== undefined && { minDepth: Math.min(min, MOST_DRAFTED) }),
    ...(chance !== undefined && { minChance: chance }),
  };
}

/** Texts are already replaced by ids (logit-bias.ts). */
function biasMap(bias: LogitBias): Map<number, number> {
  const pairs = Array.isArray(bias) ? bias : Object.entries(bias);
  return new Map(pairs.map(([id, value]) => [Number(id), value === false ? -Infinity : value]));
}

/** The n-th choice of one request: with another seed, if one was given, or all would be the same. */
export function choiceOptions(options: GenerateOptions, index: number): GenerateOptions {
  if (options.seed === undefined || index === 0) return options;
  return { ...options, seed: options.seed + index };
}
