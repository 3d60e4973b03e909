// The public types of the package. index.ts exports them; open.ts makes the objects.
//
// This file has models: the options that open them and their descriptions. The other files of api/ have the types for each use of a model. All other code
// imports these types from here.

import type { MetadataPreview } from "../base/metadata.ts";
import type { RenderedPrompt } from "../base/rendered-prompt.ts";
import type { HeldType } from "../dtypes/held-types.ts";
import type { KvType, KvTypePair } from "../dtypes/kv-types.ts";
import type { OpenRowOptions } from "../options/open.ts";
import type { AnswerFormat } from "./answer-format.ts";
import type { Chat, ChatOptions } from "./chat.ts";
import type {
  AdapterScale,
  ChatMessage,
  ComputedAgain,
  GenerateOptions,
  Generation,
  GrammarOptions,
  Priority,
  SpeculateOptions,
} from "./generate.ts";
import type { Isa } from "./machine.ts";
import type { ProfileOptions, ProfileReport } from "./profile.ts";
import type {
  Embedding,
  EmbedOptions,
  InputSums,
  LogitsOptions,
  LogitsResult,
  Pooling,
  RerankOptions,
  RerankResult,
  ScoreOptions,
  ScoreResult,
} from "./read.ts";
import type { LoadedState, LoadStateOptions, SavedState, SaveStateOptions } from "./state.ts";

export type * from "./chat.ts";
export type * from "./generate.ts";
export type * from "./machine.ts";
export type * from "./profile.ts";
export type {
  CachedReads,
  MachineMeasurement,
  PhaseWork,
  RatePoint,
  SpeedLimit,
  SpeedLimits,
  Work,
} from "./rates.ts";
export type * from "./read.ts";
export type * from "./state.ts";
export type * from "./tools.ts";

/**
 * Names a model: a path (GGUF file, Hugging Face folder, llama2.c .bin), an http(s) URL, browser Files, or a catalog
 * name.
 */
export type ModelLocation = string | URL | File | readonly File[];

export interface OpenOptions extends OpenRowOptions {
  /** Type of the KV cache (default "f16"): one for keys and values, or one each. */
  kvType?: KvType | KvTypePair | undefined;
  /**
   * "f16": F32 and BF16 matrices are held as F16, as in a file that quantize() wrote as F16 (default: as in the file). Matrices with values that F16 cannot
   * hold keep their type; ModelInfo.heldAs names them, and so does a warning. The matrices are read twice.
   */
  weights?: HeldType | undefined;
  /** Binds the compute threads to CPUs (default: the system places them). Linux only, with node:ffi. */
  binding?: CpuBinding | undefined;
  /** The instruction set of the kernels: one that this processor has; "wasm": as `native: false` (default: the best). */
  isa?: Isa | undefined;
  /**
   * A file that sparsify() made for this model, with `sparse` "predict" (default with this). Default there: the predictors among the
   * tensors of the model (PowerInfer).
   */
  predictors?: ModelLocation | undefined;
  /**
   * Whether tokens are drafted and verified several at a time, where that is faster (docs/use/speculation.md); the text is the same.
   * Default: true, but false on a GPU that is not `exact`: batches of other sizes are rounded otherwise there, which can change a text.
   */
  speculate?: boolean | SpeculateOptions | undefined;
  /**
   * Tensors on another device than their layer, as llama.cpp's --override-tensor: "PATTERN=cpu" or "PATTERN=gpu", where PATTERN is a
   * regular expression for tensor names. The first match counts. An op that reads a tensor is computed on the tensor's device, and values
   * are copied between the two (docs/use/experts.md). gpuLayers is "auto" by default then.
   */
  overrideTensors?: readonly string[] | undefined;
  /**
   * Experts of each layer on the GPU that lie in GPU memory at a time, by recent use; all of them are in the host's, and are copied
   * when a token needs one (docs/use/experts.md). Below 1: the share of a layer's experts. The text does not depend on it. Default: all are in GPU memory.
   */
  expertSlots?: number | undefined;
  /**
   * A small model that drafts tokens, which this one verifies several at a time (docs/use/speculation.md): the text is the same,
   * and sooner there. Named like the model itself. Its vocabulary must have at least half of its tokens in common with this one.
   */
  draftModel?: ModelLocation | undefined;
  /**
   * A file from "lantern tune --file" to use instead of this machine's stored one: a path, a URL or a File. A file of another machine or engine is refused.
   */
  tuneFile?: string | URL | File | undefined;
  /** Numbers of tokens for which `info.backend.notes` has estimates of each kernel that was tuned (default: 1 and a full batch). */
  explainTokens?: readonly number[] | undefined;
  /**
   * LoRA adapters in GGUF, at most 16, named like models; requests choose among them, and one batch may use different ones (docs/use/lora.md).
   * Weights of the model are not changed. With a scale: how strongly requests apply it that do not say (default 1; 0: not at all).
   */
  adapters?: readonly (ModelLocation | AdapterFile)[] | undefined;
  signal?: AbortSignal | undefined;
  /** Called while weights are read. */
  onProgress?: ((progress: LoadProgress) => void) | undefined;
  /**
   * Called with warnings that appear only while the model computes, each sentence once: values that leave the range of F16. ModelInfo.warnings has it from
   * then on.
   */
  onWarning?: ((warning: string) => void) | undefined;
}

/** An adapter to open beside a model. */
export interface AdapterFile {
  location: ModelLocation;
  /** Default 1. */
  scale?: number | undefined;
}

/** An adapter of an open model. */
export interface AdapterInfo {
  /** Its number, by which requests name it. */
  id: number;
  name: string;
  /** The path it was read from. */
  path: string;
  /** The scale for requests that do not name the adapter's. */
  scale: number;
  /** The largest rank of its factors, and the alpha of its file. */
  rank: number;
  alpha: number;
  /** The task and prompt prefix that its file names: adapter.lora.task_name and adapter.lora.prompt_prefix; "" if it names none. */
  taskName: string;
  promptPrefix: string;
  /** An activated adapter (aLoRA): it applies from the last occurrence of these tokens in a prompt on. Absent: it always applies. */
  invocationTokens?: number[];
}

/** Which CPUs compute threads are bound to, as llama.cpp's --cpu-mask, --cpu-range, --cpu-strict and --numa. */
export interface CpuBinding {
  /** Hexadecimal digits, a bit for each CPU: "0x5" is CPUs 0 and 2. */
  mask?: string | undefined;
  /** The first and the last CPU, "0-3"; with `mask`, both together. */
  range?: string | undefined;
  /** One CPU for each thread, in order, instead of all of them for every thread. */
  strict?: boolean | undefined;
  /**
   * "distribute": threads are spread over the NUMA nodes, round-robin; "isolate": all stay on the node that loads the model; "numactl": on the CPUs that the
   * process was started with. Not together with the others.
   */
  numa?: "distribute" | "isolate" | "numactl" | undefined;
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
  /** The file's type, for display: "q4_k_m". If the file names none: the type of most bytes in the layers. */
  weightType: string;
  weightBytes: number;
  /**
   * A name of the weights as they are held, with adapters and vocabulary, made from samples of them: 64 hexadecimal digits. Models with
   * the same one compute the same, wherever their files are.
   */
  fingerprint?: string;
  /** Weights that stay on disk, where memory does not hold all of them (docs/use/memory.md). */
  disk?: DiskInfo;
  /** The adapters that it was opened with; absent: none. Their scales are the ones given to open(); Model.adapters() has the present ones. */
  adapters?: AdapterInfo[];
  /** The effect of the option `weights`, if it was given. */
  heldAs?: HeldWeights;
  /** The type of the KV cache: "f16"; "q8_0/q4_0" where keys and values have different ones. */
  kvType: string;
  /** Bytes that a token adds to the KV cache while no window of a layer is full. */
  kvBytesPerToken: number;
  /** Most bytes that the state of all sequences (KV cache, recurrent state) takes. */
  stateBytes: number;
  /** Bytes of it that a GPU holds from the start. Absent: memory is taken when it is written to. */
  firstStateBytes?: number;
  contextSize: number;
  /** Tokens that the KV cache holds: of all generations and of cached sequences. */
  cacheTokens: number;
  trainedContext: number;
  vocabSize: number;
  layers: number;
  hasChatTemplate: boolean;
  /** Tokens that end a generation (end of text, end of turn). */
  endTokens: number[];
  /** The texts of the BOS and EOS tokens; "" where there is none. */
  bosToken: string;
  eosToken: string;
  /** The source of the chat template, if there is one. */
  chatTemplate?: string;
  /**
   * No token stands for more UTF-16 units of text than this, so a text has at least length / longestToken tokens.
   * undefined where the tokenizer gives no such guarantee.
   */
  longestToken: number | undefined;
  /** For a model that can fill in the middle: the tokens before the prefix, the suffix, the middle, and before files. */
  fillTokens?: {
    prefix: number;
    suffix: number;
    middle: number;
    repository?: number;
    separator?: number;
  };
  /** Whether generate() and chat() work: encoders only make embeddings. */
  generates: boolean;
  /**
   * Whether tokens are drafted (OpenOptions.speculate), the drafters ("ngram", "draft-model", "mtp"), and how, or why not: a clause. Absent: it does not
   * generate.
   */
  speculation?: { isOn: boolean; drafters: string[]; text: string };
  /** Why the context cannot shift (contextShift, cacheReuse): a clause; absent: it can. */
  noContextShift?: string;
  /** The result of embed() for a text; undefined: the model has no hidden states to read. */
  embedding?: EmbeddingInfo;
  backend: BackendInfo;
  /** Requests that were only partly honoured, one sentence each: for example, a context above the trained one. */
  warnings?: string[];
  /** Hints that would make it faster, one sentence each: for example, a GPU whose package is not installed. Absent: none are known. */
  hints?: string[];
}

/** Weights that stay in the model's file: weights that are read for every batch, and experts that are read on demand. */
export interface DiskInfo {
  /** Bytes of weights, as in the file: in memory, and not in memory. */
  memoryBytes: number;
  diskBytes: number;
  /** Of the latter: the bytes that every batch reads, and the bytes that a single token reads if every expert is used equally often. */
  batchBytes: number;
  tokenBytes: number;
  /** Experts of a layer: all, the ones that a token uses, and the ones that memory holds. Absent: none are read on demand. */
  experts?: { all: number; used: number; slots: number };
  /** The measured read speed of the disk, and the tokens/s of a single generation that it allows. */
  bytesPerSecond?: number;
  tokensPerSecond?: number;
  /** The system's cache of files is bypassed. */
  isDirect: boolean;
}

export interface EmbeddingInfo {
  /** Values of a vector. */
  size: number;
  /** The pooling of hidden states, unless embed() is given another. */
  pooling: Pooling;
  /** For a model with a classifier ("rank"): the meaning of its scores, as far as the file says. undefined: it has none. */
  labels?: string[];
}

/** Matrices that are held in another type than the file's. */
export interface HeldWeights {
  type: HeldType;
  /** The number of matrices that have that type instead of their own. */
  matrices: number;
  /** The matrices that the type cannot hold, which keep their own. */
  kept: { name: string; dtype: string; problem: string }[];
}

/** Layers firstLayer ... firstLayer + layers - 1, their weights and their cache. */
export interface LayerPlacement {
  backend: string;
  firstLayer: number;
  layers: number;
  /** The last norm and the output matrix, too. */
  hasOutput: boolean;
  /** Bytes of the weights of these layers. */
  weightBytes: number;
  /** Whether they are on a GPU. */
  isDevice: boolean;
  /** The GPU by the name in its measurement: see gpuMeasurement(). */
  adapter?: string;
  /** It computes only prompts, or only generated tokens, and another device the rest (gpuFor). Default: both. */
  phase?: "prompt" | "generation";
}

/** The backend that computes the model. */
export interface BackendInfo {
  /** "cpu", "webgpu", "reference"; "cpu+webgpu": some layers here, some there. */
  name: string;
  /** Number of compute threads: fewer than requested where there is no shared memory; `notes` says so. */
  threads: number;
  /**
   * The target of the matmul kernels: "x64-amx", "x64-avx512", ... (machine code), or "wasm: " and the reason.
   * Absent if there are none.
   */
  kernels?: string;
  /** The device of each layer, in order: one entry, or two if the model is split (gpuLayers). */
  placement: LayerPlacement[];
  /** Notes about the backend's choices and their reasons: one line each. */
  notes: string[];
  /** All types of the weights that matter were tuned on this machine's processor; absent: they were not. */
  isTuned?: boolean;
}

/** The current state of an engine. */
export interface EngineStatus {
  /** Generations running, and generations waiting for space in the KV cache. */
  running: number;
  waiting: number;
  /** Blocks that the KV cache may grow to, and blocks it has memory for now. */
  kvBlocks: number;
  kvBlocksHeld: number;
  /** Blocks in use by running generations and cached sequences. */
  kvBlocksUsed: number;
  /** Blocks that running generations may use: no other generation can have them. Cached sequences give theirs up when needed. */
  kvBlocksReserved: number;
  kvBlockTokens: number;
  /** Bytes that the state of sequences (KV cache, recurrent state) may grow to, and bytes it has memory for now. */
  stateBytes: number;
  stateBytesHeld: number;
  /** The memory that the backend has allocated for this model. */
  memory: MemoryHeld;
  /** Time that the threads (on average) or the GPU computed; only where the model was opened with a profile. */
  busyMs?: number | undefined;
  /** Cached sequences: a prompt that starts like one of them reuses its state. */
  cachedSequences: number;
  /** The origin of the state of prompts since the model was opened, and the contents of its copies. */
  cache: CacheStatus;
  /** Experts that were read on demand since the model was opened (docs/use/memory.md). Absent: none are. */
  experts?: ExpertReads;
  /** Batches that a GPU began before their tokens were known, and the wasted ones among them (docs/inside/gpu-tokens.md). Absent: none are. */
  lookahead?: { submitted: number; dropped: number };
  /** Batches computed since the model was opened, and the sum over them of the sequences in each. */
  batches: number;
  batchSequences: number;
}

/** Experts that are read on demand, counted by matrix. */
export interface ExpertReads {
  /** Uses that found their expert in memory, and experts that were read from disk: their number, and the bytes. */
  hits: number;
  misses: number;
  readBytes: number;
  /** The time that the threads waited for them, all together. */
  waitMs: number;
  /** The experts that were read before the layer's routes were known, and the ones of them that the layer used. */
  guessed: number;
  guessedRight: number;
}

/** The contents of the KV cache and its copies, and their counters since the model was opened (docs/use/cache.md). */
export interface CacheStatus {
  /** Copies in the host's memory, of this model; budgets of 0: none are kept. */
  ram: { bytes: number; budgetBytes: number };
  /** Copies on disk, of all models. */
  disk: { bytes: number; budgetBytes: number };
  /** Bytes of a token in layers that keep all tokens: in the KV cache, and in each copy. */
  bytesPerToken: number;
  /**
   * Checkpoints, at which state of layers with a window, and recurrent state, is copied: the tokens between two, and `why` not fewer; the bytes of one; the
   * measured times of copying one, and of computing the tokens from one to the next. undefined: no such layers, or no copies.
   */
  checkpoints?: { tokens: number; bytes: number; why: string; computeMs?: number; copyMs?: number };
  /**
   * The times of computing and copying 1,000 tokens, if a GPU computes so fast that copies do not pay, and none are made. undefined: copies are made, or
   * nothing was measured yet.
   */
  dear?: { computeMs: number; copyMs: number };
  /** Tokens of prompts, by where their state came from. */
  tokens: { kv: number; ram: number; disk: number; computed: number };
  /** Tokens that were computed although they were known once, by reason. */
  computedAgain: Partial<Record<ComputedAgain["reason"], number>>;
  restoredBytes: { ram: number; disk: number };
  writtenBytes: number;
  /** Sequences that left the KV cache, units that left memory, files that were removed. */
  evicted: { kv: number; ram: number; disk: number };
  /** Damaged pieces of files, which were not used. */
  damaged: number;
}

/** Memory of a backend, in bytes: weights as it stores them, state of sequences, and everything else that batches need. */
export interface MemoryHeld {
  weightBytes: number;
  kvBytes: number;
  workBytes: number;
}

export interface TemplateOptions {
  /** End with the start of the assistant's turn (default true). */
  addGenerationPrompt?: boolean | undefined;
  /** Functions offered to the model in the prompt, in the form of OpenAI's `tools`. */
  tools?: readonly unknown[] | undefined;
  /** More variables for the template, such as enable_thinking. */
  variables?: Readonly<Record<string, unknown>> | undefined;
  /** As for generate(). */
  priority?: Priority | undefined;
  /** Stops the work: an AbortedError. */
  signal?: AbortSignal | undefined;
}

export interface TokenizeOptions {
  /** As for generate(). */
  priority?: Priority | undefined;
  /** Stops the work: an AbortedError. */
  signal?: AbortSignal | undefined;
  /** Add BOS (and EOS) as the model's metadata says (default true). */
  addBos?: boolean | undefined;
  /** Recognise special tokens in a string (default true; use false for untrusted text). The ones of a rendered prompt are its template's. */
  parseSpecial?: boolean | undefined;
  /**
   * A text with more tokens is refused with a ContextError, without tokenizing it where its length already shows
   * that (default: no limit).
   */
  maxTokens?: number | undefined;
}

/** Whether a model's engine answers. */
export interface ModelHealth {
  /** "loading": it was lost and is being restarted; "error": it gives no sign of life. */
  status: "ok" | "loading" | "error";
  /** The number of restarts. */
  restarts: number;
  /** Its memory was freed (unload()): the next request loads it again. */
  unloaded?: true;
  /** Of a model of a cluster: the number of workers that announce its name, by the identity of their model (docs/use/cluster.md). */
  workers?: WorkerCount[];
}

export interface WorkerCount {
  fingerprint: string;
  count: number;
  /** Whether they get requests. */
  isServed: boolean;
}

export interface Model {
  readonly info: ModelInfo;
  status(): Promise<EngineStatus>;
  /** Forgets the state of ended generations: in the KV cache, in memory and on disk. Running ones continue. */
  clearCache(): Promise<void>;
  /**
   * Asks the engine itself. An engine that is busy with something long reports that it is making progress. One that
   * gives no sign of life within `timeoutMs` (default 2000) counts as not answering.
   */
  health(options?: { timeoutMs?: number | undefined }): Promise<ModelHealth>;
  /** Special tokens in a string count: it is a raw prompt. Text of people, tools and documents belongs in a chat, or in applyTemplate(). */
  generate(
    prompt: string | RenderedPrompt | readonly number[],
    options?: GenerateOptions,
  ): Generation;
  chat(options?: ChatOptions): Chat;
  /** Large texts are tokenized on a separate thread, so that no generation waits for them. */
  tokenize(text: string | RenderedPrompt, options?: TokenizeOptions): Promise<number[]>;
  /** The number of tokens of a text, without the tokens themselves. */
  countTokens(text: string | RenderedPrompt, options?: TokenizeOptions): Promise<number>;
  detokenize(ids: readonly number[], options?: { special?: boolean | undefined }): Promise<string>;
  /** The bytes that each of these tokens adds to a text. One character may be spread over several tokens. */
  tokenPieces(ids: readonly number[]): Promise<Uint8Array[]>;
  logits(
    prompt: string | RenderedPrompt | readonly number[],
    options?: LogitsOptions,
  ): Promise<LogitsResult>;
  /** Scores the model's prediction of these tokens, each from the tokens before it. See perplexity() for whole texts. */
  score(tokens: readonly number[], options?: ScoreOptions): Promise<ScoreResult>;
  /**
   * The size of the inputs of the model's matrices while it reads a window of text, from which an importance matrix is made. The model must be idle
   * otherwise.
   */
  inputSums(
    tokens: readonly number[],
    options?: { firstIsBos?: boolean | undefined; signal?: AbortSignal | undefined },
  ): Promise<InputSums[]>;
  /** One vector for each text: the model's last hidden states, pooled. Texts share batches. Special tokens in a text are words. */
  embed(
    texts: readonly (string | readonly number[])[],
    options?: EmbedOptions,
  ): Promise<Embedding[]>;
  /** Ranks documents by their answer to a query, the best first: for models with a classifier, which score both together. */
  rerank(
    query: string,
    documents: readonly string[],
    options?: RerankOptions,
  ): Promise<RerankResult>;
  /**
   * Saves the model's state of a text, so that it continues from there after a restart, or on another machine: KV cache, windows and recurrent state, with
   * checksums (docs/use/cache.md). The file holds the conversation: only this user can read it. An existing one is replaced when the new one is complete.
   */
  saveState(path: string, options: SaveStateOptions): Promise<SavedState>;
  /** The same as bytes, for a browser. */
  stateBytes(options: SaveStateOptions): Promise<Uint8Array>;
  /** Loads it again, from a path, a File, or its bytes. State of another model or type of KV cache, and a damaged file, are refused without any change. */
  loadState(from: string | File | Uint8Array, options?: LoadStateOptions): Promise<LoadedState>;
  /** Drops the state of a text from the KV cache, as far as no other text needs it. Copies (cacheRamBytes) stay. */
  forgetState(tokens: readonly number[]): Promise<void>;
  /**
   * Removes all that this model, while it is loaded, keeps of a conversation (GenerateOptions.conversation), in the KV cache, in memory and on disk; state
   * that other texts begin with as well stays. None of its generations may be running. forgetStoredConversations() removes the state on disk for any model.
   */
  forgetConversation(conversation: string): Promise<void>;
  /** The adapters that it was opened with, and how strongly requests apply them that do not say. */
  adapters(): AdapterInfo[];
  /** From now on, requests that name no adapters apply these; adapters that are not named are not applied. Running requests continue as they began. */
  setAdapters(adapters: readonly AdapterScale[]): Promise<void>;
  /**
   * Compiles a grammar, which a later generation with the same one need not do. An error names the keyword that is wrong or not supported; the result lists
   * constraints that are mentioned but not enforced, such as a format that no standard defines.
   */
  checkGrammar(options: GrammarOptions): Promise<readonly string[]>;
  /** The model's notation of reasoning and tool calls, derived from its chat template: for an AnswerReader. undefined if it has no template. */
  answerFormat(): Promise<AnswerFormat | undefined>;
  /**
   * The prompt that the model's chat template makes of these messages, for generate() and tokenize(): the template's text may become special tokens and gets
   * one BOS, the messages' text never does.
   */
  applyTemplate(
    messages: readonly ChatMessage[],
    options?: TemplateOptions,
  ): Promise<RenderedPrompt>;
  /**
   * Frees the model's memory, once all state to be kept on disk was written (cacheDiskBytes); state that was only in the KV cache and in cacheRamBytes is
   * lost. The next request loads it again, and waits for that; `info` stays, and status() reports no memory. false: it is computing, and nothing has
   * changed.
   */
  unload(): Promise<boolean>;
  /** Loads it after unload(), before a request does. */
  load(): Promise<void>;
  /** The profile of the time since the model was opened. It must have been opened with `profile: true`. */
  profile(options?: ProfileOptions): Promise<ProfileReport>;
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** The context and KV type for which `inspect()` computes the memory. */
export interface InspectOptions {
  /** Default: as trained, at most 4096. A context above the trained one is reduced to it, as by open(). */
  contextSize?: number | undefined;
  /** Default: f16. */
  kvType?: KvType | KvTypePair | undefined;
  /** As the option of open(), for a model with values that F16 can hold: only open() reads them. */
  weights?: HeldType | undefined;
}

/** `inspect()`: the contents of a model file, without loading weights. */
export interface ModelInspection {
  name: string;
  format: string;
  totalBytes: number;
  architecture: string | undefined;
  parameters: number;
  /** The parameters that a token reads, of a model with experts. */
  activeParameters?: number;
  metadata: { key: string; preview: MetadataPreview }[];
  tensors: { name: string; dtype: string; shape: readonly number[]; bytes: number }[];
  types: { dtype: string; tensors: number; bytes: number }[];
  /** The pooling of embed(), if the file names one. */
  pooling?: Pooling;
  /** Of a LoRA adapter: the largest rank of its factors, the number of matrices, and the tokens that activate it (aLoRA). */
  adapter?: {
    kind: string;
    matrices: number;
    rank: number;
    alpha: number;
    invocationTokens?: readonly number[];
  };
  /** The memory that running it takes; undefined where the architecture is unknown, and of adapters. */
  memory: MemoryEstimate | undefined;
}

export interface MemoryEstimate {
  weightBytes: number;
  /** Bytes that a token adds to the KV cache while no window of a layer is full. */
  kvBytesPerToken: number;
  contextSize: number;
  /** KV cache and recurrent state of one sequence that fills the context. */
  kvBytes: number;
  activationBytes: number;
  totalBytes: number;
}

/** A tokenizer without a model: also works on vocabulary-only files. */
export interface TextTokenizer {
  readonly kind: string;
  readonly vocabSize: number;
  encode(
    text: string | RenderedPrompt,
    options?: { addSpecial?: boolean | undefined; parseSpecial?: boolean | undefined },
  ): number[];
  decode(ids: readonly number[], options?: { special?: boolean | undefined }): string;
  tokenText(id: number): string;
}
