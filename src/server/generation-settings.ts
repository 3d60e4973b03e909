// llama.cpp's `generation_settings`: the options of a generation with all defaults filled in, under that server's
// names. Also the `params` of /props and /slots, which leave out the texts.

import { byName } from "../base/by-name.ts";
import type { GenerateOptions, ModelInfo } from "../index.ts";

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

/** Who drafts under llama.cpp's names: our lookup of n-grams is its simple one. */
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

export function generationParams(
  options: GenerateOptions,
  info: ModelInfo,
  more: SettingsMore = {},
): object {
  const maxTokens = options.maxTokens ?? -1;
  return {
    seed: options.seed ?? randomSeed,
    temperature: options.temperature ?? 0.8,
    dynatemp_range: options.dynatempRange ?? 0,
    dynatemp_exponent: options.dynatempExponent ?? 1,
    top_k: options.topK ?? 40,
    top_p: options.topP ?? 0.95,
    min_p: options.minP ?? 0.05,
    top_n_sigma: options.topNSigma ?? -1,
    xtc_probability: options.xtcProbability ?? 0,
    xtc_threshold: options.xtcThreshold ?? 0.1,
    typical_p: options.typicalP ?? 1,
    repeat_last_n: options.repeatLastN ?? 64,
    repeat_penalty: options.repeatPenalty ?? 1,
    presence_penalty: options.presencePenalty ?? 0,
    frequency_penalty: options.frequencyPenalty ?? 0,
    dry_multiplier: options.dryMultiplier ?? 0,
    dry_base: options.dryBase ?? 1.75,
    dry_allowed_length: options.dryAllowedLength ?? 2,
    dry_penalty_last_n: options.dryPenaltyLastN ?? 64,
    mirostat: options.mirostat ?? 0,
    mirostat_tau: options.mirostatTau ?? 5,
    mirostat_eta: options.mirostatEta ?? 0.1,
    adaptive_target: -1,
    adaptive_decay: 0.9,
    max_tokens: maxTokens,
    n_predict: maxTokens,
    n_keep: options.keepTokens ?? 0,
    n_discard: options.discardTokens ?? 0,
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

/** In GBNF; another kind of grammar as JSON. */
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
    dry_sequence_breakers: options.drySequenceBreakers ?? ["\n", ":", '"', "*"],
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
