// Public types: text that a model writes. Options of sampling and of a generation, what comes back token by token and in
// the end, and conversations. Part of api.ts.

import type { PhaseWork, SpeedLimits } from "../limits/phase.ts";

export interface SamplingOptions {
  /** 0 = greedy. Default 0.8. */
  temperature?: number;
  /** Keep the k most likely tokens; 0 = all. Default 40. */
  topK?: number;
  /** Keep the smallest set of tokens whose probability reaches p; 1 = all. Default 0.95. */
  topP?: number;
  /** Drop tokens less likely than minP x the most likely one; 0 = none. Default 0.05. */
  minP?: number;
  /** Locally typical sampling; 1 = off (default). */
  typicalP?: number;
  /** Drop tokens whose logit is more than this many standard deviations below the best one; 0 or less = off (default -1). */
  topNSigma?: number;
  /** XTC: how often the most likely tokens are left out, so that less likely ones are chosen; 0 = off (default). */
  xtcProbability?: number;
  /** XTC: a token is one of the most likely from this probability on; above 0.5 = off. Default 0.1. */
  xtcThreshold?: number;
  /** Let the temperature vary by this much around its value, with the entropy of the choice; 0 = off (default). */
  dynatempRange?: number;
  /** How entropy becomes temperature. Default 1. */
  dynatempExponent?: number;
  /** 1 or 2: keep the surprise of the text at mirostatTau, instead of all filters and penalties; 0 = off (default). */
  mirostat?: number;
  /** The surprise that mirostat aims at, in bits. Default 5. */
  mirostatTau?: number;
  /** How fast mirostat follows. Default 0.1. */
  mirostatEta?: number;
  /** Divide (multiply, if negative) the logit of tokens seen lately; 1 = off (default). */
  repeatPenalty?: number;
  /** How many tokens back the penalties look; -1 = all, 0 = off. Default 64. */
  repeatLastN?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  /** DRY: how strongly tokens are penalised that would go on with a repetition; 0 = off (default). */
  dryMultiplier?: number;
  /** DRY: the penalty grows by this factor with every token of the repetition. Default 1.75. */
  dryBase?: number;
  /** DRY: repetitions up to this length are fine. Default 2. */
  dryAllowedLength?: number;
  /** DRY: how many tokens back repetitions are looked for; -1 = all, 0 = off. Default 64. */
  dryPenaltyLastN?: number;
  /** DRY: texts that end a repetition. Default: a line break, ":", '"' and "*". */
  drySequenceBreakers?: readonly string[];
  /**
   * The steps of sampling and their order, as llama.cpp's: names ("penalties", "dry", "top_n_sigma", "top_k", "typ_p",
   * "top_p", "min_p", "xtc", "temperature": the default), or a string of their letters ("edskypmxt"). What is left out is
   * not done.
   */
  samplers?: string | readonly string[];
  /** Added to the logits of these token ids; -Infinity forbids a token. */
  logitBias?: Readonly<Record<number, number>> | ReadonlyMap<number, number>;
  /** Same seed, same options, same text. Default: random. */
  seed?: number;
}

export interface GenerateOptions extends SamplingOptions {
  /** Default: until the model ends or the context is full. */
  maxTokens?: number;
  /** Generation ends before the first of these; they are not part of the text. */
  stop?: readonly string[];
  /** Report log-probabilities: of the chosen token and of this many best alternatives. */
  logprobs?: number;
  /** Whose log-probabilities: the model's own (default), or those that the sampler drew from, after all its steps. */
  logprobsOf?: "model" | "sampler";
  /** Let the model go on past its end-of-text token. */
  ignoreEos?: boolean;
  /** Report how much of the prompt is computed, in events without text before the first token. */
  progress?: boolean;
  /** Put BOS before the prompt as the model's rules say (default true). */
  addBos?: boolean;
  /** Stops within one token; the iterator ends and `result` has stopReason "aborted". */
  signal?: AbortSignal;
}

export type StopReason = "end" | "stop" | "length" | "context" | "aborted";

export interface TokenLogprob {
  id: number;
  text: string;
  /** Of the token alone: where it is part of a character, `text` cannot show it. */
  bytes: number[];
  logprob: number;
}

/** How far the prompt is computed. */
export interface PromptProgress {
  /** Tokens of the prompt. */
  total: number;
  /** Of them, those that were still in the cache. */
  cached: number;
  /** Of them, those that are computed or were in the cache. */
  processed: number;
  /** Time since the prompt was begun. */
  ms: number;
}

/** One generated token, as `generation.tokens()` yields it. */
export interface TokenEvent {
  /** -1 for text that was held back (it might have become a stop string) and is certain now that generation ended. */
  id: number;
  /** Text that became certain with this token; may be empty in the middle of a character or a possible stop string. */
  text: string;
  logprob?: number;
  top?: TokenLogprob[];
  /** The token's own text and bytes, where log-probabilities are reported. */
  token?: string;
  bytes?: number[];
  /** With `progress: true`: no token, only how far the prompt is; `id` is -1 and `text` is empty. */
  progress?: PromptProgress;
}

export interface Timings {
  loadMs: number;
  promptTokens: number;
  /** Of the prompt tokens, those whose keys and values were still in the cache. */
  cachedTokens: number;
  promptMs: number;
  generatedTokens: number;
  generatedMs: number;
  /** What had to be moved and computed at least. */
  work: PhaseWork;
  /** How close that came to what this machine allows; absent where what computes was never measured: see
   * machineMeasurement() and, for layers on a GPU, gpuMeasurement(). */
  limits?: SpeedLimits;
}

export interface GenerationResult {
  text: string;
  promptTokenIds: number[];
  tokenIds: number[];
  stopReason: StopReason;
  /** The stop string that ended it, if one did. */
  stopString?: string;
  timings: Timings;
}

/** A running generation: iterate it for text, or await `result` (which consumes it). Starts at once. */
export interface Generation extends AsyncIterable<string> {
  tokens(): AsyncIterable<TokenEvent>;
  readonly result: Promise<GenerationResult>;
}

export type ChatRole = "system" | "user" | "assistant" | "tool";

export interface ChatMessage {
  role: ChatRole;
  content: string;
}

export interface ChatOptions extends GenerateOptions {
  system?: string;
  /** A conversation to continue. */
  messages?: readonly ChatMessage[];
}

/** A conversation. Its past stays in the KV cache: only what is new is computed. */
export interface Chat {
  readonly messages: readonly ChatMessage[];
  /**
   * Sends a user message; the answer joins `messages` when it has ended (also when it was aborted). A message that fails
   * (it does not fit, the template refuses it, an answer is still under way), or whose answer was aborted before its
   * first word, leaves the conversation as it was.
   */
  send(text: string, options?: GenerateOptions): Generation;
  /** Drops the last exchange; false when there is none. */
  undo(): boolean;
  /** Answers the last user message anew. */
  regenerate(options?: GenerateOptions): Generation;
  /** Replaces (or, with "", removes) the system message. */
  setSystem(text: string): void;
  dispose(): void;
}
