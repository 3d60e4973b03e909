// The sampling options, a row each, with llama.cpp's names, meanings and defaults. Biases and the order of the samplers are no
// numbers or texts, and are read where they are used.

import type { FieldsOf, NumberRow, OptionRow, OptionsOf } from "./row.ts";

export const samplingTable = {
  /** 0 = greedy. Default 0.8. */
  temperature: {
    type: "number",
    label: "Temperature",
    flag: "--temp <x>",
    field: "temperature",
    help: "temperature",
    note: "0: always the most likely token",
    range: { min: 0 },
    requests: { min: 0, max: 100 },
    default: 0.8,
    anthropic: { min: 0, max: 1 },
    slider: {
      why: "Low: the most likely tokens. High: more variety, and more mistakes. 0: always the same answer.",
      min: 0,
      max: 2,
      step: 0.05,
    },
  },
  /** Keep the k most likely tokens; 0 = all. Default 40. */
  topK: {
    type: "number",
    label: "Top-k",
    flag: "--top-k <k>",
    field: "top_k",
    help: "keep the k most likely tokens",
    note: "0: all",
    range: { integer: true, min: 0 },
    default: 40,
    anthropic: { integer: true, min: 0 },
    slider: {
      why: "Keep this many of the most likely tokens; 0: all of them.",
      min: 0,
      max: 200,
      step: 1,
    },
  },
  /** Keep the smallest set of tokens whose probability reaches p; 1 = all. Default 0.95. */
  topP: {
    type: "number",
    label: "Top-p",
    flag: "--top-p <p>",
    field: "top_p",
    help: "keep the most likely tokens whose probabilities add up to this",
    note: "1: all",
    range: { min: 0, max: 1 },
    default: 0.95,
    anthropic: { min: 0, max: 1 },
    slider: {
      why: "Keep the most likely tokens whose probabilities add up to this.",
      min: 0.05,
      max: 1,
      step: 0.05,
    },
  },
  /** Drop tokens less likely than minP x the most likely one; 0 = none. Default 0.05. */
  minP: {
    type: "number",
    label: "Min-p",
    flag: "--min-p <p>",
    field: "min_p",
    help: "drop tokens whose probability is below this fraction of the highest one",
    note: "0: none",
    range: { min: 0, max: 1 },
    default: 0.05,
    slider: {
      why: "Drop tokens whose probability is below this fraction of the highest one.",
      min: 0,
      max: 0.5,
      step: 0.01,
    },
  },
  /** Locally typical sampling; 1 = off (default). */
  typicalP: {
    type: "number",
    label: "Typical-p",
    flag: "--typical <p>",
    field: "typical_p",
    help: "locally typical sampling",
    note: "1: off",
    range: { min: 0, max: 1 },
    default: 1,
  },
  /** Drop tokens whose logit is more than this many standard deviations below the best one; 0 or less = off (default -1). */
  topNSigma: {
    type: "number",
    label: "Top-n-sigma",
    flag: "--top-nsigma <n>",
    field: "top_n_sigma",
    help: "drop tokens whose logit is this many standard deviations below the highest one",
    note: "0 or less: off",
    range: {},
    requests: { min: -100, max: 1000 },
    default: -1,
  },
  /** XTC: the probability of dropping the most likely tokens, so that a less likely one is chosen; 0 = off (default). */
  xtcProbability: {
    type: "number",
    label: "XTC probability",
    flag: "--xtc-probability <p>",
    field: "xtc_probability",
    help: "XTC: probability of leaving out the most likely tokens",
    note: "0: off",
    range: { min: 0, max: 1 },
    default: 0,
  },
  /** XTC: tokens with at least this probability may be dropped; above 0.5 = off. Default 0.1. */
  xtcThreshold: {
    type: "number",
    label: "XTC threshold",
    flag: "--xtc-threshold <p>",
    field: "xtc_threshold",
    help: "XTC: tokens from this probability up can be left out",
    note: "above 0.5: off",
    range: { min: 0, max: 1 },
    default: 0.1,
  },
  /** Vary the temperature by up to this much around its value, by the entropy of the distribution; 0 = off (default). */
  dynatempRange: {
    type: "number",
    label: "Temperature range",
    flag: "--dynatemp-range <x>",
    field: "dynatemp_range",
    help: "dynamic temperature: how far it may vary",
    note: "0: off",
    range: { min: 0 },
    requests: { min: 0, max: 1000 },
    default: 0,
  },
  /** Exponent that maps entropy to temperature. Default 1. */
  dynatempExponent: {
    type: "number",
    label: "Temperature exponent",
    flag: "--dynatemp-exp <x>",
    field: "dynatemp_exponent",
    help: "dynamic temperature: exponent that maps entropy to temperature",
    range: { min: 0 },
    requests: { min: 0, max: 1000 },
    default: 1,
  },
  /** Mirostat 1 or 2: keep the surprise of the text at mirostatTau. Replaces all filters and penalties; 0 = off (default). */
  mirostat: {
    type: "number",
    label: "Mirostat",
    flag: "--mirostat <n>",
    field: "mirostat",
    help: "use version 1 or 2 of mirostat in place of the other samplers",
    note: "0: off",
    range: { integer: true, min: 0, max: 2 },
    default: 0,
  },
  /** Target surprise of mirostat, in bits. Default 5. */
  mirostatTau: {
    type: "number",
    label: "Mirostat tau",
    flag: "--mirostat-ent <x>",
    field: "mirostat_tau",
    help: "mirostat: target entropy (tau)",
    range: { min: 0 },
    requests: { min: 0, max: 1000 },
    default: 5,
  },
  /** Learning rate of mirostat. Default 0.1. */
  mirostatEta: {
    type: "number",
    label: "Mirostat eta",
    flag: "--mirostat-lr <x>",
    field: "mirostat_eta",
    help: "mirostat: learning rate (eta)",
    range: { min: 0 },
    requests: { min: 0, max: 1000 },
    default: 0.1,
  },
  /** Divide (multiply, if negative) the logits of recent tokens by this; 1 = off (default). */
  repeatPenalty: {
    type: "number",
    label: "Repeat penalty",
    flag: "--repeat-penalty <x>",
    field: "repeat_penalty",
    help: "make recent tokens less likely",
    note: "1: off",
    range: { above: 0 },
    requests: { above: 0, max: 100 },
    default: 1,
    slider: {
      why: "Above 1, recent tokens become less likely; too much makes the text odd.",
      min: 1,
      max: 2,
      step: 0.05,
    },
  },
  /** How many tokens back the penalties look; -1 = all, 0 = off. Default 64. */
  repeatLastN: {
    type: "number",
    label: "Repeat window",
    flag: "--repeat-last-n <n>",
    field: "repeat_last_n",
    help: "how many recent tokens the penalties look at",
    note: "0: off, -1: all",
    range: { integer: true, min: 0, also: -1 },
    default: 64,
  },
  /** Subtracted from a token's logit for each time that it has occurred; 0 = off (default). */
  frequencyPenalty: {
    type: "number",
    label: "Frequency penalty",
    flag: "--frequency-penalty <x>",
    field: "frequency_penalty",
    help: "penalty for each earlier occurrence of a token",
    note: "0: off",
    range: {},
    requests: { min: -100, max: 100 },
    default: 0,
  },
  /** Subtracted from the logits of tokens that have occurred; 0 = off (default). */
  presencePenalty: {
    type: "number",
    label: "Presence penalty",
    flag: "--presence-penalty <x>",
    field: "presence_penalty",
    help: "penalty for tokens that have occurred at all",
    note: "0: off",
    range: {},
    requests: { min: -100, max: 100 },
    default: 0,
  },
  /** DRY: strength of the penalty on tokens that would extend a repetition; 0 = off (default). */
  dryMultiplier: {
    type: "number",
    label: "DRY multiplier",
    flag: "--dry-multiplier <x>",
    field: "dry_multiplier",
    help: "DRY: penalty for continuing a repetition",
    note: "0: off",
    range: { min: 0 },
    requests: { min: 0, max: 1000 },
    default: 0,
  },
  /** DRY: the penalty grows by this factor with each token of the repetition. Default 1.75. */
  dryBase: {
    type: "number",
    label: "DRY base",
    flag: "--dry-base <x>",
    field: "dry_base",
    help: "DRY: growth of the penalty with each token of the repetition",
    note: "below 1: off",
    range: { min: 0 },
    requests: { min: 0, max: 1000 },
    default: 1.75,
  },
  /** DRY: repetitions up to this length are not penalised. Default 2. */
  dryAllowedLength: {
    type: "number",
    label: "DRY length",
    flag: "--dry-allowed-length <n>",
    field: "dry_allowed_length",
    help: "DRY: longest repetition without a penalty",
    range: { integer: true, min: 0 },
    default: 2,
  },
  /** DRY: how many tokens back to look for repetitions; -1 = all, 0 = off. Default 64. */
  dryPenaltyLastN: {
    type: "number",
    label: "DRY window",
    flag: "--dry-penalty-last-n <n>",
    field: "dry_penalty_last_n",
    help: "DRY: how many recent tokens are searched for repetitions",
    note: "0: off, -1: all",
    range: { integer: true, min: 0, also: -1 },
    default: 64,
  },
  /** DRY: texts that end a repetition. Default: a line break, ":", '"' and "*". */
  drySequenceBreakers: {
    type: "texts",
    label: "DRY breakers",
    flag: "--dry-sequence-breaker <text>",
    field: "dry_sequence_breakers",
    help: 'DRY: text that ends a repetition, in place of a line break, ":", quotes and "*"',
    note: "none: no text does; repeatable",
    most: 16, // each is searched in all tokens of the vocabulary
    longest: 1000,
    default: ["\n", ":", '"', "*"],
    none: "none",
    escapes: true,
  },
  /** The same seed with the same options gives the same text. Default: random. */
  seed: {
    type: "number",
    label: "Seed",
    flag: "-s, --seed <n>",
    field: "seed",
    help: "seed; the same seed gives the same text",
    note: "-1: a random one",
    range: { integer: true, min: 0 },
    none: -1,
  },
} as const;

type Table = typeof samplingTable;
export type SamplingName = keyof Table;

export type SamplingNumber = {
  [Name in SamplingName]: Table[Name]["type"] extends "number" ? Name : never;
}[SamplingName];

/** The rows for code that reads any of them. */
export const samplingRows: Readonly<Record<SamplingName, OptionRow>> = samplingTable;

/** Those that are numbers. */
export const samplingNumbers = Object.fromEntries(
  Object.entries(samplingRows).filter(([, { type }]) => type === "number"),
) as Readonly<Record<SamplingNumber, NumberRow>>;

export type SamplingRowOptions = OptionsOf<Table>;
export type SamplingRowFields = FieldsOf<Table>;

/** Anthropic's requests have few of them. */
export type AnthropicField = {
  [Name in SamplingNumber]: Table[Name] extends { readonly anthropic: object }
    ? Table[Name]["field"]
    : never;
}[SamplingNumber];
