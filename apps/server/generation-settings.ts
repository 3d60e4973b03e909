// llama.cpp's `generation_settings`: the options of a generation with all defaults filled in, under that server's
// names. Also the `params` of /props and /slots, which leave out the texts.

import { byName } from "../../src/base/by-name.ts";
import type { GenerateOptions, ModelInfo } from "../../src/index.ts";
import { generationRows } from "../../src/options/generation.ts";
import type { OptionRow } from "../../src/options/row.ts";
import { samplingRows, samplingTable } from "../../src/options/sampling.ts";

/** Request fields that are not options of a generation. */
export interface SettingsMore {
  stream?: boolean | undefined;
  timingsPerToken?: boolean | undefined;
  postSamplingProbs?: boolean | undefined;
}

/** llama.cpp's value for a random seed. */
const randomSeed = 4294967295;

const usualSamplers = "penalties dry top_n_sigma top_k typ_p top_p min_p xtc temperature".split(
  " ",
);

/** Drafters under llama.cpp's names: our lookup of n-grams is its simple one. */
const draftTypes: Readonly<Record<string, string>> = byName({
  ngram: "ngram-simple",
  "draft-model": "draft-simple",
  mtp: "draft-mtp",
});

/** "ngram-simple,draft-simple", or "none". */
function speculativeTypes({ speculate }: GenerateOptions, { speculation }: ModelInfo): string {
  const isOn = speculate === undefined ? speculation?.isOn : speculate !== false;
  const { maxDepth, drafters } = typeof speculate === "object" ? speculate : {};
  if (!speculation || !isOn || maxDepth === 0) return "none";
  const names = speculation.drafters.filter((name) => drafters?.includes(name) ?? true);
  return names.map((name) => draftTypes[name] ?? name).join(",") || "none";
}

/** The rows that are numbers with a default, under their fields. */
function numberParams(options: GenerateOptions): object {
  const rows = Object.entries<OptionRow>({ ...samplingRows, ...generationRows });
  return Object.fromEntries(
    rows.flatMap(([name, row]) => {
      if (row.type !== "number" || row.field === undefined || row.default === undefined) return [];
      return [[row.field, options[name as keyof GenerateOptions] ?? row.default]];
    }),
  );
}

export function generationParams(
  options: GenerateOptions,
  info: ModelInfo,
  more: SettingsMore = {},
): object {
  const maxTokens = options.maxTokens ?? -1;
  return {
    seed: options.seed ?? randomSeed,
    ...numberParams(options),
    adaptive_target: -1,
    adaptive_decay: 0.9,
    max_tokens: maxTokens,
    n_predict: maxTokens,
    ignore_eos: options.ignoreEos ?? false,
    stream: more.stream ?? false,
    n_probs: options.logprobs ?? 0,
    min_keep: 0,
    chat_format: "Content-only",
    reasoning_format: "none",
    reasoning_in_content: false,
    generation_prompt: "",
    samplers: options.samplers ?? usualSamplers,
    "speculative.types": speculativeTypes(options, info),
    timings_per_token: more.timingsPerToken ?? false,
    post_sampling_probs: more.postSamplingProbs ?? false,
    backend_sampling: false,
    lora: options.adapters ?? [],
  };
}

/** Text in GBNF; another kind of grammar as JSON. */
function grammarText(grammar: GenerateOptions["grammar"] = ""): string {
  if (typeof grammar === "string") return grammar;
  return "gbnf" in grammar ? grammar.gbnf : JSON.stringify(grammar);
}

/** The same including fields that may be long: stop strings, biases. */
export function generationSettings(
  options: GenerateOptions,
  info: ModelInfo,
  more: SettingsMore = {},
): object {
  const asked =
    options.logitBias instanceof Map
      ? [...options.logitBias]
      : Object.entries(options.logitBias ?? {}).map(([id, bias]) => [Number(id), bias]);
  const ends = options.ignoreEos ? info.endTokens.map((id) => [id, -Infinity]) : [];
  return {
    ...generationParams(options, info, more),
    stop: options.stop ?? [],
    dry_sequence_breakers: options.drySequenceBreakers ?? samplingTable.drySequenceBreakers.default,
    // JSON has no -Infinity: it becomes null, which llama.cpp uses for "never".
    logit_bias: [...asked, ...ends].map(([token, bias]) => ({ bias, token })),
    grammar: grammarText(options.grammar),
    grammar_lazy: options.grammarTriggers !== undefined,
    grammar_triggers: (options.grammarTriggers ?? []).map((trigger) => {
      if ("token" in trigger) return { type: 0, value: "", token: trigger.token };
      return "text" in trigger
        ? { type: 1, value: trigger.text }
        : { type: 2, value: trigger.pattern };
    }),
    preserved_tokens: [],
  };
}
