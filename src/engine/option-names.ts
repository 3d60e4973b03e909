// The names of all options of a model's methods: any other name is refused (base/options.ts). The engine checks those
// of generate() and chat(), because it knows the sampling options (sampling-options.ts).

import type {
  EmbedOptions,
  GrammarOptions,
  LoadStateOptions,
  LogitsOptions,
  ProfileOptions,
  RerankOptions,
  SaveStateOptions,
  ScoreOptions,
  TemplateOptions,
  TokenizeOptions,
} from "../api/api.ts";
import type { OptionNames } from "../base/options.ts";

interface ModelOptionNames {
  readonly tokenize: OptionNames<TokenizeOptions>;
  readonly detokenize: OptionNames<{ special?: unknown }>;
  readonly logits: OptionNames<LogitsOptions>;
  readonly score: OptionNames<ScoreOptions>;
  readonly inputSums: OptionNames<{ firstIsBos?: unknown; signal?: unknown }>;
  readonly embed: OptionNames<EmbedOptions>;
  readonly rerank: OptionNames<RerankOptions>;
  readonly checkGrammar: OptionNames<GrammarOptions>;
  readonly applyTemplate: OptionNames<TemplateOptions>;
  readonly profile: OptionNames<ProfileOptions>;
  readonly saveState: OptionNames<SaveStateOptions>;
  readonly loadState: OptionNames<LoadStateOptions>;
}

export const optionNames: ModelOptionNames = {
  tokenize: { addBos: true, parseSpecial: true, maxTokens: true, priority: true, signal: true },
  detokenize: { special: true },
  logits: { top: true, greedy: true, addBos: true, parseSpecial: true, signal: true },
  score: { from: true, firstIsBos: true, rows: true, base: true, signal: true },
  inputSums: { firstIsBos: true, signal: true },
  embed: {
    pooling: true,
    normalize: true,
    as: true,
    dimensions: true,
    addBos: true,
    priority: true,
    signal: true,
    onProgress: true,
  },
  rerank: { topN: true, signal: true, onProgress: true },
  checkGrammar: { grammar: true, schema: true, regex: true, choices: true },
  applyTemplate: {
    addGenerationPrompt: true,
    tools: true,
    variables: true,
    priority: true,
    signal: true,
  },
  profile: { trace: true, reset: true },
  saveState: { tokens: true, signal: true },
  loadState: { signal: true },
};
