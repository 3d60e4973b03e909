// Public types for text generation: options of sampling and of a generation, its tokens and result, and messages. Part of
// api.ts.

import type { GenerationRowOptions } from "../options/generation.ts";
import type { SamplingRowOptions } from "../options/sampling.ts";
import type { GrammarSource } from "./grammar-source.ts";
import type { PhaseWork, SpeedLimits } from "./rates.ts";

export type { GrammarSource, JsonSchemaOptions, StructuralTag } from "./grammar-source.ts";

/** Whose turn it is: background work gets the capacity that foreground work leaves, and its text is the same. */
export type Priority = "foreground" | "background";

export interface SamplingOptions extends SamplingRowOptions {
  /**
   * The samplers and their order, as in llama.cpp: names ("penalties", "dry", "top_n_sigma", "top_k", "typ_p",
   * "top_p", "min_p", "xtc", "temperature": the default), or a string of their letters ("edskypmxt"). A sampler that
   * is left out is not run.
   */
  samplers?: string | readonly string[] | undefined;
  /** Added to the logits of these token ids; -Infinity forbids a token. */
  logitBias?: Readonly<Record<number, number>> | ReadonlyMap<number, number> | undefined;
}

/** Which texts are allowed; at most one of these. docs/use/grammar.md */
export interface GrammarOptions {
  /** Only texts of this grammar, in llama.cpp's GBNF or as a GrammarSource. The generation ends when no token can follow. */
  grammar?: string | GrammarSource | undefined;
  /** Only JSON texts that this JSON schema allows; a schema of Zod is one too. `{}` allows any value. */
  schema?: object | boolean | undefined;
  /** Only texts that match as a whole; ECMAScript's syntax. */
  regex?: string | RegExp | undefined;
  /** Only one of these texts. */
  choices?: readonly string[] | undefined;
}

export interface GenerateOptions extends SamplingOptions, GenerationRowOptions, GrammarOptions {
  /** Report log-probabilities of the chosen token and of this many best alternatives. */
  logprobs?: number | undefined;
  /** The distribution they are taken from: the model's own (default), or the sampler's, after all its steps. */
  logprobsOf?: "model" | "sampler" | undefined;
  /** The conversation that it belongs to, a name of the caller's: Model.forgetConversation() removes its state. */
  conversation?: string | undefined;
  /** Control tokens are part of the text, such as the marks around tool calls (default false). */
  special?: boolean | undefined;
  /** Report prompt progress, in events without text before the first token. */
  progress?: boolean | undefined;
  /** Add BOS before the prompt as the model's metadata says (default true). */
  addBos?: boolean | undefined;
  /** Recognise special tokens in a prompt that is a string (default true). The ones of a rendered prompt are its template's. */
  parseSpecial?: boolean | undefined;
  /** The grammar applies only from the first of these on; until then the text is free. Default: from the start. */
  grammarTriggers?: readonly GrammarTrigger[] | undefined;
  /** false: also tokens to which the grammar leaves no alternative are computed one by one; the text is the same (default true). */
  forceTokens?: boolean | undefined;
  /**
   * Whether tokens are drafted and verified several at a time, where that is faster (docs/use/speculation.md). The text is the same.
   * Default: as open() says.
   */
  speculate?: boolean | SpeculateOptions | undefined;
  /**
   * The first tokens of the answer, which an earlier generation with the same prompt and options has written, here or elsewhere. They are
   * not written again, and count for maxTokens; the continuation is the one that that generation would have written, for the same seed.
   * The result has the whole answer.
   */
  resumeTokens?: readonly number[] | undefined;
  /** Ends reasoning after a number of tokens, by its own mark. */
  reasoningBudget?: ReasoningBudgetOptions | undefined;
  /**
   * The adapters that are applied, by their numbers in ModelInfo.adapters, with their scales; adapters that are not named are not
   * applied. Default: the ones of Model.setAdapters(), or else of open() (docs/use/lora.md).
   */
  adapters?: readonly AdapterScale[] | undefined;
  /** "background": it may take longer, and others do not wait for it (docs/use/batch.md). Default: "foreground". */
  priority?: Priority | undefined;
  /** Stops within one token; the iterator ends and `result` has stopReason "aborted". */
  signal?: AbortSignal | undefined;
}

/** The strength of an adapter: its matmul is multiplied by `scale`; 0: not at all. */
export interface AdapterScale {
  /** Its number in ModelInfo.adapters. */
  id: number;
  scale: number;
}

/** Options of speculation. */
export interface SpeculateOptions {
  /** The drafters to use, of the ones that ModelInfo.speculation names: "ngram", "draft-model" (default: all). */
  drafters?: string[] | undefined;
  /** The most tokens that are drafted at a time, 0 to 31 (default 16); 0: none. Fewer are drafted if more do not pay. */
  maxDepth?: number | undefined;
  /** Fewer are not drafted (default 1). */
  minDepth?: number | undefined;
  /** A draft ends before a token that is right less probably than this, from 0 to 1 (default 0). */
  minChance?: number | undefined;
}

/** Marks are answerFormat()'s. */
export interface ReasoningBudgetOptions {
  /** Tokens of reasoning; 0: it ends at once. */
  tokens: number;
  /** The mark that opens reasoning; it may be left out if reasoning is open. */
  start?: string | undefined;
  /** The mark that ends it, which is forced. */
  end: string;
  /** The prompt ends within reasoning (default false). */
  isOpen?: boolean | undefined;
  /** Text that is forced before the mark. */
  message?: string | undefined;
}

/** The trigger of a grammar: it begins to apply at this text or token; `after`: after it (default false). */
export type GrammarTrigger =
  | (({ text: string } | { token: number }) & { after?: boolean | undefined })
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

/** The progress of a prompt's computation. */
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

/** Tokens with state that came from copies outside of the KV cache (docs/use/cache.md). */
export interface RestoredTokens {
  ramTokens: number;
  diskTokens: number;
  ms: number;
}

/** Why prompt tokens were computed although they were known once (docs/use/cache.md). */
export interface ComputedAgain {
  /**
   * room: they left the KV cache, and there is no copy; budget: the copy was evicted; removed, damaged: its file; checkpoint: windowed or
   * recurrent state was not kept at that position; changed: an earlier token differs; settings: the model was computed with other
   * settings.
   */
  reason: "room" | "budget" | "removed" | "damaged" | "checkpoint" | "changed" | "settings";
  /** Their approximate number. */
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
  /** The number of tokens after them, which were dropped. */
  discarded: number;
}

/** The report of speculation in a generation. */
export interface SpeculationReport {
  /** Tokens that were drafted and computed, and the accepted ones among them. */
  drafted: number;
  accepted: number;
  /** Batches with drafted tokens, and all batches of the generation. */
  draftedBatches: number;
  batches: number;
  /**
   * The speedup of its batches over the same tokens one by one, estimated from the times of batches of each size here: 1.8; and the
   * milliseconds that this saved.
   */
  gain: number;
  savedMs: number;
}

/** Experts, by matrix: cache hits in memory, reads, and the bytes read for the prompt and for the rest. */
export interface ExpertTimings {
  hits: number;
  misses: number;
  promptBytes: number;
  generatedBytes: number;
}

export interface Timings {
  loadMs: number;
  promptTokens: number;
  /** Prompt tokens with keys and values that were already in the cache. */
  cachedTokens: number;
  /** Of cachedTokens: the ones copied back from memory or disk outside of the KV cache, and the time of that; absent: none. */
  restored?: RestoredTokens;
  /** Absent: no known state is computed again. */
  computedAgain?: ComputedAgain;
  /** Of cachedTokens: the ones that were moved from another position (cacheReuse); absent: none. */
  movedTokens?: number;
  /** The tokens that contextShift dropped, in order; absent: none. */
  contextShifts?: ContextShift[];
  /** Absent: no tokens were drafted. */
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
   * The speed relative to this machine's limits; absent if the device was never measured: see machineMeasurement() and, for layers on a
   * GPU, gpuMeasurement().
   */
  limits?: SpeedLimits;
  /** Other programs' share of the machine meanwhile, which made it slower; absent if the system does not report it (a browser). */
  others?: OthersLoad;
}

/** Use of the machine by other processes, on average. */
export interface OthersLoad {
  /** Cores that they used: 1.8. 0 where the time was too short to tell. */
  cores: number;
  /** The number of cores that these are a part of. */
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
  /** Of an answer: the model's reasoning before it. */
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
