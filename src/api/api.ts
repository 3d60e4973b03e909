// The public types: what a user of the package sees. index.ts exports them; open.ts makes the objects.
//
// Here: models, how they are opened and what they say of themselves. The files of api/ have the types of what is done with
// them, by topic; everybody else imports all of them from here.

import type { MetadataPreview } from "../base/metadata.ts";
import type { Chat, ChatMessage, ChatOptions, GenerateOptions, Generation } from "./generate.ts";
import type { OptLevel } from "./machine.ts";
import type { ProfileOptions, ProfileReport } from "./profile.ts";
import type {
  Embedding,
  EmbedOptions,
  InputSums,
  LogitsOptions,
  LogitsResult,
  ScoreOptions,
  ScoreResult,
} from "./read.ts";

export type { CachedReads, MachineMeasurement, RatePoint } from "../limits/device.ts";
export type { PhaseWork, SpeedLimit, SpeedLimits } from "../limits/phase.ts";
export type { Work } from "../limits/roofline.ts";
export type * from "./generate.ts";
export type * from "./machine.ts";
export type * from "./profile.ts";
export type * from "./read.ts";

/** What names a model: a path (GGUF file, Hugging Face folder, llama2.c .bin), an http(s) URL, browser Files, or a catalog name. */
export type ModelLocation = string | URL | File | readonly File[];

export interface OpenOptions {
  /** Tokens the context holds, at most as many as the model was trained for; default: the model's own, at most 4096. */
  contextSize?: number;
  /**
   * Generations for which the KV cache has room at once, each with a whole context (default 1; fewer where memory does
   * not allow it). Those that do not fit beside the running ones wait.
   */
  parallel?: number;
  /** Type of the KV cache (default "f16"). */
  kvType?: "f32" | "f16" | "q8_0";
  /** Compute threads; default: the machine's cores. */
  threads?: number;
  /** Default: 4 where this machine can, otherwise 3. */
  level?: OptLevel;
  /** false: no machine code, as opt level 3 (default true; docs/native.md). */
  native?: boolean;
  /** What computes: "cpu" (default), "webgpu" (a GPU; docs/gpu.md) or "reference" (plain TypeScript). */
  backend?: string;
  /**
   * How much of the model is on the GPU, the rest on the processor: the output and the last layers, the output counted as
   * one, as llama.cpp's -ngl. "all", or one more than the model has layers: everything. "auto": what its memory holds, and
   * the processor where there is no GPU. Default: everything with backend "webgpu", nothing otherwise.
   */
  gpuLayers?: number | "all" | "auto";
  /**
   * When the engine's thread dies or hangs, start another and open the model there (default false: the model is of no use
   * any more, and says so). What was running is rejected with a WorkerError either way.
   */
  restart?: boolean;
  /** Seconds without a sign of life after which the engine's thread hangs, and is ended (default 60; 0: it never is). */
  hangSeconds?: number;
  /** A built-in chat template by name (chatml, llama2, llama3, zephyr, command-r) or a Jinja source; default: the model's own. */
  chatTemplate?: string;
  /** Record where the time goes, for model.profile(). Costs less than 2% of the speed; off (default), nothing. */
  profile?: boolean;
  /** Choose kernels and threads by what "lantern tune" measured on this machine, where it did (default true). */
  tuned?: boolean;
  signal?: AbortSignal;
  /** Called while weights are read. */
  onProgress?: (progress: LoadProgress) => void;
}

export interface LoadProgress {
  loadedBytes: number;
  totalBytes: number;
}

export interface ModelInfo {
  name: string;
  format: string;
  architecture: string;
  parameters: number;
  /** Most common weight type by bytes, for display: "q4_0". */
  weightType: string;
  weightBytes: number;
  kvBytesPerToken: number;
  contextSize: number;
  /** Tokens that the KV cache holds, for all generations together and what is remembered of earlier ones. */
  cacheTokens: number;
  trainedContext: number;
  vocabSize: number;
  layers: number;
  hasChatTemplate: boolean;
  /** Tokens that end a generation (end of text, end of turn). */
  endTokens: number[];
  /** The texts of the tokens that begin and end a text; "" where there is none. */
  bosToken: string;
  eosToken: string;
  /** The source of the chat template, where there is one. */
  chatTemplate?: string;
  /**
   * No token stands for more UTF-16 units of a text than this: a text has at least length / longestToken tokens. undefined
   * where the tokenizer gives no such promise.
   */
  longestToken: number | undefined;
  /** Of a model that can fill a gap in a text: the tokens before its two sides, before the filling, and before files. */
  fillTokens?: {
    prefix: number;
    suffix: number;
    middle: number;
    repository?: number;
    separator?: number;
  };
  backend: BackendInfo;
  /** What was asked for and is not so, one sentence each: a context above the trained one. */
  warnings?: string[];
}

/** Layers firstLayer ... firstLayer + layers - 1, their weights and their cache. */
export interface LayerPlacement {
  backend: string;
  firstLayer: number;
  layers: number;
  /** The last norm and the output matrix, too. */
  hasOutput: boolean;
  /** Of its weights. */
  weightBytes: number;
  /** On a GPU. */
  isDevice: boolean;
  /** That GPU, as its measurement names it: see gpuMeasurement(). */
  adapter?: string;
}

/** What computes the model. */
export interface BackendInfo {
  /** "cpu", "webgpu", "reference"; "cpu+webgpu": some layers here, some there. */
  name: string;
  /** Threads that compute: fewer than asked for where there is no shared memory; `notes` says so. */
  threads: number;
  /** What the kernels of matmuls are: "x64-amx", "x64-avx512", ... (machine code), or "wasm: " and why. Absent: there are none. */
  kernels?: string;
  /** Where each layer is, in order: one entry, or two where the model is split (gpuLayers). */
  placement: LayerPlacement[];
  /** What computes what, and why: one line each. */
  notes: string[];
}

/** What an engine is doing. */
export interface EngineStatus {
  /** Generations under way, and those that wait for room in the KV cache. */
  running: number;
  waiting: number;
  /** Blocks that the KV cache may grow to, and those that it has memory for now. */
  kvBlocks: number;
  kvBlocksHeld: number;
  /** By running generations and by what is remembered of earlier ones. */
  kvBlocksUsed: number;
  kvBlockTokens: number;
  /** Bytes that the state of sequences (KV cache, recurrent state) may grow to, and those that it has memory for now. */
  stateBytes: number;
  stateBytesHeld: number;
  /** Sequences that are remembered: a prompt that begins as one of them does is not computed again. */
  cachedSequences: number;
  /** Batches computed since the model was opened, and the sum over them of the sequences in each. */
  batches: number;
  batchSequences: number;
}

export interface TemplateOptions {
  /** End with the beginning of the assistant's answer (default true). */
  addGenerationPrompt?: boolean;
  /** Functions that the prompt offers to the model, as OpenAI's `tools`. */
  tools?: readonly unknown[];
  /** Further variables of the template, such as enable_thinking. */
  variables?: Readonly<Record<string, unknown>>;
  /** Stops the work: an AbortedError. */
  signal?: AbortSignal | undefined;
}

export interface TokenizeOptions {
  /** Stops the work: an AbortedError. */
  signal?: AbortSignal | undefined;
  /** Put BOS (and EOS) around the text as the model's rules say (default true). */
  addBos?: boolean;
  /** Recognise special tokens written in the text (default true; false for text that is not trusted). */
  parseSpecial?: boolean;
  /**
   * A text with more tokens is refused with a ContextError; one that is too long in any case, before any work
   * (default: no limit).
   */
  maxTokens?: number;
}

/** Whether a model's engine answers. */
export interface ModelHealth {
  /** "loading": it was lost and is being started again; "error": it gives no sign of life. */
  status: "ok" | "loading" | "error";
  /** How often it was started again. */
  restarts: number;
}

export interface Model {
  readonly info: ModelInfo;
  status(): Promise<EngineStatus>;
  /**
   * Asks the engine itself. One that is in the middle of something long says that it goes on with it; one that gives no
   * sign of life within `timeoutMs` (default 2000) does not answer.
   */
  health(options?: { timeoutMs?: number }): Promise<ModelHealth>;
  generate(prompt: string | readonly number[], options?: GenerateOptions): Generation;
  chat(options?: ChatOptions): Chat;
  /** Large texts are worked on by a thread of their own: no generation waits for them. */
  tokenize(text: string, options?: TokenizeOptions): Promise<number[]>;
  /** How many tokens a text has, without the tokens themselves. */
  countTokens(text: string, options?: TokenizeOptions): Promise<number>;
  detokenize(ids: readonly number[], options?: { special?: boolean }): Promise<string>;
  /** The bytes that each of these tokens adds to a text: a character may be spread over several of them. */
  tokenPieces(ids: readonly number[]): Promise<Uint8Array[]>;
  logits(prompt: string | readonly number[], options?: LogitsOptions): Promise<LogitsResult>;
  /** How well the model foresees these tokens, each from those before it. See perplexity() for whole texts. */
  score(tokens: readonly number[], options?: ScoreOptions): Promise<ScoreResult>;
  /**
   * How large the inputs of the model's matrices are while it reads a window of text: what an importance matrix is made
   * of. For a model that does nothing else meanwhile.
   */
  inputSums(
    tokens: readonly number[],
    options?: { firstIsBos?: boolean; signal?: AbortSignal },
  ): Promise<InputSums[]>;
  /** Each text as a vector: the model's last hidden states, pooled. */
  embed(
    texts: readonly (string | readonly number[])[],
    options?: EmbedOptions,
  ): Promise<Embedding[]>;
  /** The prompt text that the model's chat template makes of these messages. */
  applyTemplate(messages: readonly ChatMessage[], options?: TemplateOptions): Promise<string>;
  /** Where the time went since the model was opened, which must have been with `profile: true`. */
  profile(options?: ProfileOptions): Promise<ProfileReport>;
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** `inspect()`: what a model file says of itself, without loading weights. */
export interface ModelInspection {
  name: string;
  format: string;
  totalBytes: number;
  architecture: string | undefined;
  parameters: number;
  metadata: { key: string; preview: MetadataPreview }[];
  tensors: { name: string; dtype: string; shape: readonly number[]; bytes: number }[];
  types: { dtype: string; tensors: number; bytes: number }[];
  /** What running it needs, for its default context; undefined where the architecture is unknown. */
  memory:
    | {
        weightBytes: number;
        kvBytesPerToken: number;
        contextSize: number;
        kvBytes: number;
        activationBytes: number;
        totalBytes: number;
      }
    | undefined;
}

/** A tokenizer alone: works on vocabulary-only files too. */
export interface TextTokenizer {
  readonly kind: string;
  readonly vocabSize: number;
  encode(text: string, options?: { addSpecial?: boolean; parseSpecial?: boolean }): number[];
  decode(ids: readonly number[], options?: { special?: boolean }): string;
  tokenText(id: number): string;
}
