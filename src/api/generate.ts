// Public types for text generation: options of sampling and of a generation, its tokens and result, and messages. Part of
// api.ts.

import type { GrammarSource } from "../grammar/source.ts";
import type { PhaseWork, SpeedLimits } from "../limits/phase.ts";

export type { GrammarSource, StructuralTag } from "../grammar/source.ts";

/** Whose turn it is: background work gets what foreground work leaves, and its text is the same. */
export type Priority = "foreground" | "background";

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
  /** XTC: the probability of dropping the most likely tokens, so that a less likely one is chosen; 0 = off (default). */
  xtcProbability?: number;
  /** XTC: tokens with at least this probability may be dropped; above 0.5 = off. Default 0.1. */
  xtcThreshold?: number;
  /** Vary the temperature by up to this much around its value, by the entropy of the distribution; 0 = off (default). */
  dynatempRange?: number;
  /** Exponent that maps entropy to temperature. Default 1. */
  dynatempExponent?: number;
  /**
   * Mirostat 1 or 2: keep the surprise of the text at mirostatTau. Replaces all filters and penalties; 0 = off
   * (default).
   */
  mirostat?: number;
  /** Target surprise of mirostat, in bits. Default 5. */
  mirostatTau?: number;
  /** Learning rate of mirostat. Default 0.1. */
  mirostatEta?: number;
  /** Divide (multiply, if negative) the logits of recent tokens by this; 1 = off (default). */
  repeatPenalty?: number;
  /** How many tokens back the penalties look; -1 = all, 0 = off. Default 64. */
  repeatLastN?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
  /** DRY: strength of the penalty on tokens that would extend a repetition; 0 = off (default). */
  dryMultiplier?: number;
  /** DRY: the penalty grows by this factor with each token of the repetition. Default 1.75. */
  dryBase?: number;
  /** DRY: repetitions up to this length are not penalised. Default 2. */
  dryAllowedLength?: number;
  /** DRY: how many tokens back to look for repetitions; -1 = all, 0 = off. Default 64. */
  dryPenaltyLastN?: number;
  /** DRY: texts that end a repetition. Default: a line break, ":", '"' and "*". */
  drySequenceBreakers?: readonly string[];
  /**
   * The samplers and their order, as in llama.cpp: names ("penalties", "dry", "top_n_sigma", "top_k", "typ_p",
   * "top_p", "min_p", "xtc", "temperature": the default), or a string of their letters ("edskypmxt"). A sampler that
   * is left out is not run.
   */
  samplers?: string | readonly string[];
  /** Added to the logits of these token ids; -Infinity forbids a token. */
  logitBias?: Readonly<Record<number, number>> | ReadonlyMap<number, number>;
  /** The same seed with the same options gives the same text. Default: random. */
  seed?: number;
}

/** Which texts are allowed; at most one of these. docs/grammar.md */
export interface GrammarOptions {
  /**
   * Only texts of this grammar, in llama.cpp's GBNF or as a GrammarSource. The generation ends when nothing can follow.
   */
  grammar?: string | GrammarSource;
  /** Only JSON texts that this JSON schema allows; a schema of Zod is one too. `{}` allows any value. */
  schema?: object | boolean;
  /** Only texts that match as a whole; ECMAScript's syntax. */
  regex?: string | RegExp;
  /** Only one of these texts. */
  choices?: readonly string[];
}

export interface GenerateOptions extends SamplingOptions, GrammarOptions {
  /** Default: until the model ends or the context is full. */
  maxTokens?: number;
  /** Generation ends before the first of these strings; none of it is part of the text. */
  stop?: readonly string[];
  /** Report log-probabilities of the chosen token and of this many best alternatives. */
  logprobs?: number;
  /** The distribution they are taken from: the model's own (default), or the sampler's, after all its steps. */
  logprobsOf?: "model" | "sampler";
  /** No token that ends the text is ever chosen: it goes on until a limit, or until a grammar allows nothing more (default false). */
  ignoreEos?: boolean;
  /** false: compute the whole prompt, whatever is known of it (default true). */
  cachePrompt?: boolean;
  /** false: what is computed of it stays in memory, and no copy of it is written to disk (default true). */
  cacheDisk?: boolean;
  /** The conversation that it belongs to, a name of the caller's: Model.forgetConversation() removes what is kept of it. */
  conversation?: string;
  /**
   * When the context is full, drop half of its tokens and go on (default false: it ends with stopReason "context"). What is written
   * after that differs from what the model would write of the tokens that are left: docs/cache.md. Refused where the model cannot.
   */
  contextShift?: boolean;
  /** With contextShift: tokens at the beginning that are never dropped, BOS not counted; -1: the whole prompt. Default 0. */
  keepTokens?: number;
  /** With contextShift: how many tokens are dropped at a time; 0: half of those that may be (default). */
  discardTokens?: number;
  /**
   * Pieces of the prompt of at least so many tokens that were computed at another position are moved instead of computed (default 0:
   * none), where the model allows that: docs/cache.md.
   */
  cacheReuse?: number;
  /** Control tokens are part of the text, such as the marks around tool calls (default false). */
  special?: boolean;
  /** Report prompt progress, in events without text before the first token. */
  progress?: boolean;
  /** Add BOS before the prompt as the model's metadata says (default true). */
  addBos?: boolean;
  /** Recognise special tokens in a prompt that is a string (default true). Those of a rendered prompt are its template's. */
  parseSpecial?: boolean;
  /** The grammar applies only from the first of these on; until then the text is free. Default: from the start. */
  grammarTriggers?: readonly GrammarTrigger[];
  /** false: also tokens to which the grammar leaves no alternative are computed one by one; the text is the same (default true). */
  forceTokens?: boolean;
  /**
   * Whether tokens are drafted and verified several at a time, where that is faster (docs/speculation.md). The text is the same.
   * Default: as open() says.
   */
  speculate?: boolean | SpeculateOptions;
  /**
   * The first tokens of the answer, which an earlier generation with the same prompt and options has written, here or elsewhere. They are
   * not written again, and count for maxTokens; what follows is what that generation would have written, for the same seed. The result
   * has the whole answer.
   */
  resumeTokens?: readonly number[];
  /** Ends reasoning after so many tokens, by its own mark. */
  reasoningBudget?: ReasoningBudgetOptions;
  /**
   * The adapters that are applied, by their numbers in ModelInfo.adapters, and how strongly; those that are not named are not applied.
   * Default: as Model.setAdapters() says, or else as open() was told (docs/lora.md).
   */
  adapters?: readonly AdapterScale[];
  /** "background": it may take longer, and others do not wait for it (docs/batch.md). Default: "foreground". */
  priority?: Priority;
  /** Stops within one token; the iterator ends and `result` has stopReason "aborted". */
  signal?: AbortSignal | undefined;
}

/** How strongly an adapter is applied: its product is multiplied by `scale`; 0: not at all. */
export interface AdapterScale {
  /** Its number in ModelInfo.adapters. */
  id: number;
  scale: number;
}

/** How tokens are drafted. */
export interface SpeculateOptions {
  /** Who drafts, of those that ModelInfo.speculation names: "ngram", "draft-model" (default: all). */
  drafters?: string[];
  /** The most tokens that are drafted at a time, 0 to 31 (default 16); 0: none. What pays is drafted, not always as many. */
  maxDepth?: number;
  /** Fewer are not drafted (default 1). */
  minDepth?: number;
  /** A draft ends before a token that is right less probably than this, from 0 to 1 (default 0). */
  minChance?: number;
}

/** Marks are those of answerFormat(). */
export interface ReasoningBudgetOptions {
  /** Tokens of reasoning; 0: it ends at once. */
  tokens: number;
  /** The mark that opens reasoning; it may be left out if reasoning is open. */
  start?: string;
  /** The mark that ends it, which is forced. */
  end: string;
  /** The prompt ends within reasoning (default false). */
  isOpen?: boolean;
  /** Text that is forced before the mark. */
  message?: string;
}

/** Where a grammar begins to apply: at this text or token; `after`: behind it (default false). */
export type GrammarTrigger =
  | (({ text: string } | { token: number }) & { after?: boolean })
  /**
   * A regular expression that finds a match in the answer so far. As in llama.cpp, the grammar begins with the first group that matched
   * some text; without one, with the match.
   */
  | { pattern: string };

export type StopReason = "end" | "stop" | "length" | "context" | "aborted";

export interface TokenLogprob {
  id: number;
  text: string;
  /** Bytes of the token alone: where it is part of a character, `text` cannot show it. */
  bytes: number[];
  logprob: number;
}

/** How much of the prompt is computed. */
export interface PromptProgress {
  /** Tokens in the prompt. */
  total: number;
  /** Prompt tokens that were already in the cache. */
  cached: number;
  /** Prompt tokens that are done: computed or cached. */
  processed: number;
  /** Time since the prompt was started. */
  ms: number;
}

/** One generated token, as `generation.tokens()` yields it. */
export interface TokenEvent {
  /** -1 for held-back text (it might have become a stop string) that is released when generation ends. */
  id: number;
  /**
   * The text that is certain after this token; may be empty in the middle of a character or of a possible stop
   * string.
   */
  text: string;
  logprob?: number;
  top?: TokenLogprob[];
  /** The token's own text and bytes, where log-probabilities are reported. */
  token?: string;
  bytes?: number[];
  /** With `progress: true`: an event without a token, only with prompt progress; `id` is -1 and `text` is empty. */
  progress?: PromptProgress;
}

/** Tokens whose state came from copies outside of the KV cache (docs/cache.md). */
export interface RestoredTokens {
  ramTokens: number;
  diskTokens: number;
  ms: number;
}

/** Why prompt tokens were computed although they were known once (docs/cache.md). */
export interface ComputedAgain {
  /**
   * room: they left the KV cache, and there is no copy; budget: the copy was evicted; removed, damaged: its file; checkpoint: windowed
   * or recurrent state was not kept at that place; changed: a token before them is another; settings: the model was computed otherwise.
   */
  reason: "room" | "budget" | "removed" | "damaged" | "checkpoint" | "changed" | "settings";
  /** How many, about. */
  tokens: number;
  /** The first token that is computed again; for "changed": the first that differs. */
  at: number;
  /** A sentence for people. */
  text: string;
}

/** The context was full and lost tokens. */
export interface ContextShift {
  /** The first tokens, which stayed. */
  kept: number;
  /** Those after them, which were dropped. */
  discarded: number;
}

/** What speculation did in a generation. */
export interface SpeculationReport {
  /** Tokens that were drafted and computed; those of them that became part of the text. */
  drafted: number;
  accepted: number;
  /** Batches with drafted tokens, and all batches of the generation. */
  draftedBatches: number;
  batches: number;
  /**
   * How much faster its batches were than as many tokens one by one, estimated from what batches of each size take here: 1.8; and the
   * milliseconds that this saved.
   */
  gain: number;
  savedMs: number;
}

/** Experts, by matrix: uses that found theirs in memory, those that were read, and the bytes for the prompt and for the rest. */
export interface ExpertTimings {
  hits: number;
  misses: number;
  promptBytes: number;
  generatedBytes: number;
}

export interface Timings {
  loadMs: number;
  promptTokens: number;
  /** Prompt tokens whose keys and values were already in the cache. */
  cachedTokens: number;
  /** Of cachedTokens: those copied back from memory or disk outside of the KV cache, and the time that it took; absent: none. */
  restored?: RestoredTokens;
  /** Absent: nothing that was known is computed again. */
  computedAgain?: ComputedAgain;
  /** Of cachedTokens: those that were moved from another position (cacheReuse); absent: none. */
  movedTokens?: number;
  /** What contextShift dropped, in order; absent: nothing. */
  contextShifts?: ContextShift[];
  /** Absent: nothing was drafted. */
  speculation?: SpeculationReport;
  /** Experts that were read on demand meanwhile, also for other generations; absent: none are. */
  experts?: ExpertTimings;
  promptMs: number;
  generatedTokens: number;
  generatedMs: number;
  /** Tokens that were sampled: one more than were generated where the last one ended the text. */
  sampledTokens: number;
  /** Of generatedMs: choosing tokens from logits. */
  sampleMs: number;
  /** From the request's arrival to its end, with the time that it waited for room; loading is not in it. */
  totalMs: number;
  /** The least work that had to be done: bytes moved and operations computed. */
  work: PhaseWork;
  /**
   * How close the speed came to what this machine allows; absent where the device was never measured: see
   * machineMeasurement() and, for layers on a GPU, gpuMeasurement().
   */
  limits?: SpeedLimits;
  /**
   * What other programs took of the machine meanwhile, which made it slower; absent where the system does not say
   * (a browser).
   */
  others?: OthersLoad;
}

/** Use of the machine by other processes, on average. */
export interface OthersLoad {
  /** Cores that they used: 1.8. 0 where the time was too short to tell. */
  cores: number;
  /** Of so many. */
  ofCores: number;
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
  /** Of an answer: what the model thought before it. */
  reasoning_content?: string;
  /** Of an answer: the functions that it calls. */
  tool_calls?: readonly ChatToolCall[];
  /** Of a tool's result: the call that it is for, and the function's name. */
  tool_call_id?: string;
  name?: string;
}

/** A call in a conversation, in OpenAI's form; templates expect the arguments as an object. */
export interface ChatToolCall {
  id?: string;
  type: "function";
  function: { name: string; arguments: unknown };
}
