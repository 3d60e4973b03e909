// The sampling fields of OpenAI's and llama.cpp's requests: names, types, ranges, and their options in the public API.
// Ollama's and Anthropic's have other names and also end up in `generateOptions`.

import * as z from "zod";
import type { AdapterScale, GenerateOptions, SpeculateOptions } from "../../src/index.ts";
import { type GenerationRowFields, generationRows } from "../../src/options/generation.ts";
import type { OptionRow } from "../../src/options/row.ts";
import {
  type AnthropicField,
  type SamplingRowFields,
  samplingRows,
} from "../../src/options/sampling.ts";
import { numberInput, rowInput } from "../sessions/option-input.ts";
import { biasInput, type LogitBias } from "./inputs.ts";
import type { ServedModel } from "./served-model.ts";

/** Fields under llama.cpp's names, which include OpenAI's. */
export interface SamplingFields extends SamplingRowFields, GenerationRowFields {
  samplers?: string | string[] | undefined;
  logit_bias?: LogitBias | undefined;
  lora?: AdapterScale[] | undefined;
  "speculative.n_max"?: number | undefined;
  "speculative.n_min"?: number | undefined;
  "speculative.p_min"?: number | undefined;
}

type Shape<T> = { readonly [K in keyof T]-?: z.ZodType<T[K]> };

/** Of adapters that a request may name, also more than once. */
const MOST_LISTED = 256;
/** The scale of an adapter in llama.cpp's form: without a scale, it is not applied. */
export const adapterScale: z.ZodType<AdapterScale> = z.object({
  id: z.int().min(0),
  scale: z.number().default(0),
});
/** SpeculateOptions.maxDepth. */
const MOST_DRAFTED = 31;
const maxSamplers = 64;

const rows = Object.entries<OptionRow>({ ...samplingRows, ...generationRows });

const rowShape = Object.fromEntries(
  rows.flatMap(([, row]) =>
    row.field === undefined ? [] : [[row.field, rowInput(row).optional()]],
  ),
) as unknown as Shape<SamplingRowFields & GenerationRowFields>;

export const samplingShape: Shape<SamplingFields> = {
  ...rowShape,
  samplers: z
    .union(
      [z.string().max(maxSamplers), z.array(z.string().max(40)).max(maxSamplers)],
      "expected a list of names, or a string of letters",
    )
    .optional(),
  logit_bias: biasInput.optional(),
  lora: z.array(adapterScale).max(MOST_LISTED).optional(),
  "speculative.n_max": z.int().min(0).optional(),
  "speculative.n_min": z.int().min(0).optional(),
  "speculative.p_min": z.number().min(0).max(1).optional(),
};

/** Of Anthropic's requests, which have few and with their own ranges. */
export const anthropicShape = Object.fromEntries(
  rows.flatMap(([, row]) =>
    row.type === "number" && row.field !== undefined && row.anthropic
      ? [[row.field, numberInput(row.anthropic).optional()]]
      : [],
  ),
) as unknown as Readonly<Record<AnthropicField, z.ZodType<number | undefined>>>;

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
    samplers: fields.samplers,
    logitBias: fields.logit_bias && biasMap(fields.logit_bias),
    adapters: fields.lora,
    speculate: speculateOf(fields),
  };
  const all = { ...rowOptions(fields), ...options };
  const given = Object.entries(all).filter(([, value]) => value !== undefined);
  return { ...defaults, ...(Object.fromEntries(given) as GenerateOptions) };
}

/** The options of the rows, by their names in the API. */
function rowOptions(fields: SamplingRowFields & GenerationRowFields): GenerateOptions {
  const options = rows.flatMap(([name, row]): [string, unknown][] => {
    const value = row.field && (fields as Readonly<Record<string, unknown>>)[row.field];
    if (row.type === "number" && value === row.none) return [];
    return [[name, row.type === "texts" && typeof value === "string" ? [value] : value]];
  });
  return Object.fromEntries(options) as GenerateOptions;
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
