// The public types: what a user of the package sees. index.ts exports them; open.ts makes the objects.
//
// This file has models: how they are opened and how they describe themselves. The other files of api/ have the types
// for each use of a model. Everybody else imports all of these types from here.

import type { MetadataPreview } from "../base/metadata.ts";
import type { RenderedPrompt } from "../base/rendered-prompt.ts";
import type { AnswerFormat } from "../chat/answer/format.ts";
import type { HeldType } from "../dtypes/held-types.ts";
import type { KvType, KvTypePair } from "../dtypes/kv-types.ts";
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
import type { OptLevel } from "./machine.ts";
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

export type { CachedReads, MachineMeasurement, RatePoint } from "../limits/device.ts";
export type { PhaseWork, SpeedLimit, SpeedLimits } from "../limits/phase.ts";
export type { Work } from "../limits/roofline.ts";
export type * from "./chat.ts";
export type * from "./generate.ts";
export type * from "./machine.ts";
export type * from "./profile.ts";
export type * from "./read.ts";
export type * from "./state.ts";
export type * from "./tools.ts";

/**
 * Names a model: a path (GGUF file, Hugging Face folder, llama2.c .bin), an http(s) URL, browser Files, or a catalog
 * name.
 */
export type ModelLocation = string | URL | File | readonly File[];

export interface OpenOptions {
  /** Context size in tokens, at most what the model was trained for; default: the trained size, at most 4096. */
  contextSize?: number;
  /**
   * How many generations the KV cache has room for at once, each with a full context (default 1; fewer if memory is
   * short). Generations that do not fit beside the running ones wait.
   */
  parallel?: number;
  /**
   * Bytes of memory for copies of state that left the KV cache, and of disk for copies that outlast the process (default 0:
   * none; docs/cache.md). A prompt that begins like an earlier one computes only what is new.
   */
  cacheRamBytes?: number;
  cacheDiskBytes?: number;
  /** Where copies on disk lie (default: "state" in the cache folder). They hold conversations: only this user can read them. */
  cacheFolder?: string;
  /** Type of the KV cache (default "f16"): one for keys and values, or one each. */
  kvType?: KvType | KvTypePair;
  /**
   * "f16": F32 and BF16 matrices are held as F16, as in a file that quantize() wrote as F16 (default: as in the file).
   * Those whose values F16 cannot hold keep their type; ModelInfo.heldAs names them, and a warning says so. The
   * matrices are read twice.
   */
  weights?: HeldType;
  /**
   * The most memory that the model may take, in bytes: weights, KV cache and working memory (default: what is free). Weights
   * beyond that stay in the file and are read for every batch (docs/memory.md).
   */
  ramBytes?: number;
  /** false: all weights are in memory, and a model that does not fit is refused (default true). */
  mmap?: boolean;
  /** Compute threads; default: the machine's cores. */
  threads?: number;
  /** Binds the compute threads to CPUs (default: the system places them). Linux only, with node:ffi. */
  binding?: CpuBinding;
  /** Default: 4 if this machine can run machine code, otherwise 3. */
  level?: OptLevel;
  /** false: no machine code, the same as opt level 3 (default true; docs/native.md). */
  native?: boolean;
  /** The backend: "cpu" (default), "webgpu" (a GPU; docs/gpu.md) or "reference" (plain TypeScript). */
  backend?: string;
  /**
   * How many layers are on the GPU, as llama.cpp's -ngl: the last ones, with the output counted as one; the rest are
   * on the processor. "all", or one more than the model has layers: everything. "auto": as many as GPU memory holds,
   * or none without a real GPU. A number without a GPU is a warning, and the processor computes them. Default: everything with
   * backend "webgpu", nothing otherwise; the command line's is "auto".
   */
  gpuLayers?: number | "all" | "auto";
  /**
   * Layers on a GPU compute the very bits that the processor would, so that the text is the same at every gpuLayers, also where two
   * tokens are all but equally likely (default false: as fast as the GPU can; docs/gpu.md). On the processor alone nothing changes.
   */
  exact?: boolean;
  /**
   * Neurons of ReLU networks that are zero are not computed, and their weights not read: the same text, faster to generate where
   * most are zero, and slower to read a prompt (docs/sparse.md). On the processor, for Q4_0, Q8_0, the K types and floats. "auto" (default): where it is
   * measured to be faster, when the file is opened for the first time on this machine; files of a URL are not measured. "predict":
   * those are left out that predictors expect to be zero, which changes the text a little and is faster.
   */
  sparse?: boolean | "auto" | "predict";
  /**
   * A file that sparsify() made for this model, with `sparse` "predict" (default with this). Default there: the predictors among the
   * tensors of the model (PowerInfer).
   */
  predictors?: ModelLocation;
  /**
   * Whether tokens are drafted and verified several at a time, where that is faster (docs/speculation.md); the text is the same.
   * Default: true, but false on a GPU that is not `exact`: batches of other sizes are rounded otherwise there, which can change a text.
   */
  speculate?: boolean | SpeculateOptions;
  /**
   * Let the layer of the file that predicts further tokens (nextn, multi-token prediction) draft, where that is faster; the text is the
   * same. It computes on the processor and takes memory of its own; a file without one is refused (default false).
   */
  mtp?: boolean;
  /**
   * What the GPU computes of a sequence, with all layers on the processor as well: "prompt" or "generation". "auto": what was
   * measured to be faster for this model (docs/tune.md), the cache's way from one to the other included. Default: the layers
   * decide (gpuLayers), which cannot be given as well.
   */
  gpuFor?: "prompt" | "generation" | "auto";
  /**
   * Once loaded, a GPU computes made-up batches, for at most about half a second, so that the first answers take no longer than later
   * ones (docs/gpu.md). Default: true. Not on adapters that compute on the processor, with a profile, and with expertSlots.
   */
  warmup?: boolean;
  /**
   * Tensors that are not where their layer is, as llama.cpp's --override-tensor: "PATTERN=cpu" or "PATTERN=gpu", where PATTERN is a
   * regular expression for tensor names. The first that matches counts. What reads a tensor is computed where it is, and values
   * pass from one to the other in between (docs/experts.md). gpuLayers is "auto" by default then.
   */
  overrideTensors?: readonly string[];
  /**
   * Layers, from the first on, whose experts are on the processor, while the rest of the layer is where gpuLayers puts it
   * (llama.cpp's --n-cpu-moe); "all": --cpu-moe. Default: 0. overrideTensors counts first.
   */
  cpuExperts?: number | "all";
  /**
   * Experts of each layer on the GPU that lie in GPU memory at a time, by recent use; all of them are in the host's, and are copied
   * when a token needs one (docs/experts.md). Below 1: the share of a layer's experts. The text does not depend on it. Default: all are in GPU memory.
   */
  expertSlots?: number;
  /**
   * A small model that drafts tokens, which this one verifies several at a time (docs/speculation.md): the text is the same,
   * and sooner there. Named like the model itself. Its vocabulary must have at least half of its tokens in common with this one.
   */
  draftModel?: ModelLocation;
  /** Compute threads of the draft model; default: one where it is small (8 MB), otherwise as many as the model has. */
  draftThreads?: number;
  /** Layers of the draft model on the GPU, as gpuLayers; default: all where this model has some there, otherwise none. */
  draftGpuLayers?: number | "all" | "auto";
  /**
   * When the engine's thread dies or hangs, start another and open the model there (default false: the model is
   * unusable from then on, and its methods say so). Work in progress is rejected with a WorkerError either way. After the GPU was
   * lost, the next request opens the model again, with or without this option; with it, that begins at once.
   */
  restart?: boolean;
  /**
   * Seconds without a sign of life after which the engine's thread counts as hung and is terminated (default 60; 0:
   * never).
   */
  hangSeconds?: number;
  /** A built-in chat template by name (chatml, llama2, llama3, zephyr, command-r) or a Jinja source; default: the model's own. */
  chatTemplate?: string;
  /**
   * Record where the time goes, for model.profile(). Costs less than 2% of the speed when on and nothing when off
   * (default).
   */
  profile?: boolean;
  /** Use the kernels and threads that "lantern tune" found best on this machine, if it has run (default true). */
  tuned?: boolean;
  /**
   * A file from "lantern tune --file" to use in place of this machine's stored one: a path, a URL or a File. One of
   * another machine or engine is refused.
   */
  tuneFile?: string | URL | File;
  /**
   * LoRA adapters in GGUF, at most 16, named like models; requests choose among them, and one batch may use different ones (docs/lora.md).
   * Weights of the model are not changed. With a scale: how strongly requests apply it that do not say (default 1; 0: not at all).
   */
  adapters?: readonly (ModelLocation | AdapterFile)[];
  signal?: AbortSignal | undefined;
  /** Called while weights are read. */
  onProgress?: (progress: LoadProgress) => void;
  /**
   * Called with what shows only while the model computes, each sentence once: values that leave the range of F16.
   * ModelInfo.warnings has it from then on.
   */
  onWarning?: (warning: string) => void;
}

/** An adapter to open beside a model. */
export interface AdapterFile {
  location: ModelLocation;
  /** Default 1. */
  scale?: number;
}

/** An adapter of an open model. */
export interface AdapterInfo {
  /** Its number, by which requests name it. */
  id: number;
  name: string;
  /** Where it was read from. */
  path: string;
  /** How strongly requests apply it that do not say. */
  scale: number;
  /** The largest rank of its factors, and the alpha of its file. */
  rank: number;
  alpha: number;
  /** What its file says that it is for: adapter.lora.task_name and adapter.lora.prompt_prefix; "" where it says nothing. */
  taskName: string;
  promptPrefix: string;
  /** An activated adapter (aLoRA): it applies from the last place on where a prompt has these tokens. Absent: it always applies. */
  invocationTokens?: number[];
}

/** Which CPUs compute threads are bound to, as llama.cpp's --cpu-mask, --cpu-range, --cpu-strict and --numa. */
export interface CpuBinding {
  /** Hexadecimal digits, a bit for each CPU: "0x5" is CPUs 0 and 2. */
  mask?: string | undefined;
  /** The first and the last CPU, "0-3"; with `mask`, both together. */
  range?: string | undefined;
  /** One CPU for each thread, in turn, instead of all of them for every thread. */
  strict?: boolean | undefined;
  /**
   * "distribute": threads take the NUMA nodes in turn; "isolate": all stay on the node that loads the model;
   * "numactl": on the CPUs that the process was started with. Not together with the others.
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
  /** The file's type, for display: "q4_k_m". Where the file names none: the type of most bytes in the layers. */
  weightType: string;
  weightBytes: number;
  /**
   * A name of the weights as they are held, with adapters and vocabulary, made from samples of them: 64 hexadecimal digits. Models with
   * the same one compute the same, wherever their files are.
   */
  fingerprint?: string;
  /** Weights that stay on disk, where memory does not hold all of them (docs/memory.md). */
  disk?: DiskInfo;
  /** The adapters that it was opened with; absent: none. Their scales are those of open(); Model.adapters() has the present ones. */
  adapters?: AdapterInfo[];
  /** Where the option `weights` was given: what it has changed. */
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
   * Whether tokens are drafted (OpenOptions.speculate), who can draft ("ngram", "draft-model", "mtp"), and how, or why not: a clause.
   * Absent: it does not generate.
   */
  speculation?: { isOn: boolean; drafters: string[]; text: string };
  /** Why the context cannot shift (contextShift, cacheReuse): a clause; absent: it can. */
  noContextShift?: string;
  /** What embed() makes of a text; undefined: the model has no hidden states to read. */
  embedding?: EmbeddingInfo;
  backend: BackendInfo;
  /** Requests that were only partly honoured, one sentence each: for example, a context above the trained one. */
  warnings?: string[];
  /** What would make it faster, one sentence each: for example, a GPU whose package is not installed. Absent: nothing that is known. */
  hints?: string[];
}

/** Weights that stay in the model's file: those that are read for every batch, and experts that are read on demand. */
export interface DiskInfo {
  /** Bytes of weights, as in the file, that are in memory, and of those that are not. */
  memoryBytes: number;
  diskBytes: number;
  /** Of those: what every batch reads, and what a single token reads if every expert is used equally often. */
  batchBytes: number;
  tokenBytes: number;
  /** Experts of a layer: all, those that a token uses, and those that memory holds. Absent: none are read on demand. */
  experts?: { all: number; used: number; slots: number };
  /** How fast the disk was measured to read, and what that allows: tokens/s of a single generation. */
  bytesPerSecond?: number;
  tokensPerSecond?: number;
  /** The system's cache of files is bypassed. */
  isDirect: boolean;
}

export interface EmbeddingInfo {
  /** Values of a vector. */
  size: number;
  /** How hidden states are pooled, unless embed() is told otherwise. */
  pooling: Pooling;
  /** For a model with a classifier ("rank"): what its scores are for, as far as the file says. undefined: it has none. */
  labels?: string[];
}

/** Matrices that are held in another type than the file's. */
export interface HeldWeights {
  type: HeldType;
  /** How many have that type instead of their own. */
  matrices: number;
  /** Those that the type cannot hold, which keep their own. */
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
  /** It computes only prompts, or only generated tokens, and another place the rest (gpuFor). Default: both. */
  phase?: "prompt" | "generation";
}

/** What computes the model. */
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
  /** Where each layer is, in order: one entry, or two where the model is split (gpuLayers). */
  placement: LayerPlacement[];
  /** What computes what, and why: one line each. */
  notes: string[];
}

/** What an engine is doing now. */
export interface EngineStatus {
  /** Generations running, and generations waiting for space in the KV cache. */
  running: number;
  waiting: number;
  /** Blocks that the KV cache may grow to, and blocks it has memory for now. */
  kvBlocks: number;
  kvBlocksHeld: number;
  /** Blocks in use by running generations and cached sequences. */
  kvBlocksUsed: number;
  /** Blocks that running generations may use: no other generation can have them. Cached sequences leave theirs to whoever needs them. */
  kvBlocksReserved: number;
  kvBlockTokens: number;
  /** Bytes that the state of sequences (KV cache, recurrent state) may grow to, and bytes it has memory for now. */
  stateBytes: number;
  stateBytesHeld: number;
  /** What the backend has allocated for this model. */
  memory: MemoryHeld;
  /** Time that the threads (on average) or the GPU computed; only where the model was opened with a profile. */
  busyMs?: number | undefined;
  /** Cached sequences: a prompt that starts like one of them reuses its state. */
  cachedSequences: number;
  /** Where the state of prompts came from since the model was opened, and what its copies hold. */
  cache: CacheStatus;
  /** Experts that were read on demand since the model was opened (docs/memory.md). Absent: none are. */
  experts?: ExpertReads;
  /** Batches that a GPU began before their tokens were known, and those of them that were in vain (docs/gpu.md). Absent: none are. */
  flight?: { submitted: number; dropped: number };
  /** Batches computed since the model was opened, and the sum over them of the sequences in each. */
  batches: number;
  batchSequences: number;
}

/** Experts that are read on demand, counted by matrix. */
export interface ExpertReads {
  /** Uses that found their expert in memory, and experts that were read from disk: how many, and the bytes. */
  hits: number;
  misses: number;
  readBytes: number;
  /** How long the threads waited for them, all together. */
  waitMs: number;
  /** Those that were read before the layer's routes were known, and how many of them the layer used. */
  guessed: number;
  guessedRight: number;
}

/** What the KV cache and its copies outside of it hold, and what they have done since the model was opened (docs/cache.md). */
export interface CacheStatus {
  /** Copies in the host's memory, of this model; budgets of 0: none are kept. */
  ram: { bytes: number; budgetBytes: number };
  /** Copies on disk, of all models. */
  disk: { bytes: number; budgetBytes: number };
  /** Bytes of a token in layers that keep all tokens: in the KV cache, and in each copy. */
  bytesPerToken: number;
  /**
   * Where state of layers with a window, and recurrent state, is copied: so many tokens apart, `why` not closer; the bytes of one;
   * how long copying one takes, and computing the tokens from one to the next, where that was measured. undefined: no such
   * layers, or no copies.
   */
  checkpoints?: { tokens: number; bytes: number; why: string; computeMs?: number; copyMs?: number };
  /**
   * Where a GPU computes so fast that copies do not pay, and none are made: how long computing and copying 1,000 tokens take.
   * undefined: copies are made, or nothing was measured yet.
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
  addGenerationPrompt?: boolean;
  /** Functions offered to the model in the prompt, in the form of OpenAI's `tools`. */
  tools?: readonly unknown[];
  /** More variables for the template, such as enable_thinking. */
  variables?: Readonly<Record<string, unknown>>;
  /** As for generate(). */
  priority?: Priority;
  /** Stops the work: an AbortedError. */
  signal?: AbortSignal | undefined;
}

export interface TokenizeOptions {
  /** As for generate(). */
  priority?: Priority;
  /** Stops the work: an AbortedError. */
  signal?: AbortSignal | undefined;
  /** Add BOS (and EOS) as the model's metadata says (default true). */
  addBos?: boolean;
  /** Recognise special tokens in a string (default true; use false for untrusted text). Those of a rendered prompt are its template's. */
  parseSpecial?: boolean;
  /**
   * A text with more tokens is refused with a ContextError, without tokenizing it where its length already shows
   * that (default: no limit).
   */
  maxTokens?: number;
}

/** Whether a model's engine answers. */
export interface ModelHealth {
  /** "loading": it was lost and is being restarted; "error": it gives no sign of life. */
  status: "ok" | "loading" | "error";
  /** How often it was restarted. */
  restarts: number;
  /** Its memory was freed (unload()): the next request loads it again. */
  unloaded?: true;
  /** Of a model of a cluster: how many workers announce its name, by what identifies their model (docs/cluster.md). */
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
  /** Forgets the state of ended generations: in the KV cache, in memory and on disk. Running ones go on. */
  clearCache(): Promise<void>;
  /**
   * Asks the engine itself. An engine that is busy with something long reports that it is making progress. One that
   * gives no sign of life within `timeoutMs` (default 2000) counts as not answering.
   */
  health(options?: { timeoutMs?: number }): Promise<ModelHealth>;
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
  detokenize(ids: readonly number[], options?: { special?: boolean }): Promise<string>;
  /** The bytes that each of these tokens adds to a text. One character may be spread over several tokens. */
  tokenPieces(ids: readonly number[]): Promise<Uint8Array[]>;
  logits(
    prompt: string | RenderedPrompt | readonly number[],
    options?: LogitsOptions,
  ): Promise<LogitsResult>;
  /** How well the model predicts these tokens, each from those before it. See perplexity() for whole texts. */
  score(tokens: readonly number[], options?: ScoreOptions): Promise<ScoreResult>;
  /**
   * The size of the inputs of the model's matrices while it reads a window of text, from which an importance matrix
   * is made. The model must be doing nothing else meanwhile.
   */
  inputSums(
    tokens: readonly number[],
    options?: { firstIsBos?: boolean; signal?: AbortSignal | undefined },
  ): Promise<InputSums[]>;
  /** One vector for each text: the model's last hidden states, pooled. Texts share batches. Special tokens in a text are words. */
  embed(
    texts: readonly (string | readonly number[])[],
    options?: EmbedOptions,
  ): Promise<Embedding[]>;
  /** Documents by how well they answer a query, the best first: for models with a classifier, which score both together. */
  rerank(
    query: string,
    documents: readonly string[],
    options?: RerankOptions,
  ): Promise<RerankResult>;
  /**
   * Saves what the model computed of a text, so that it goes on from there after a restart, or on another machine: KV cache, windows
   * and recurrent state, with checksums (docs/cache.md). The file holds the conversation: only this user can read it. An existing
   * one is replaced when the new one is complete.
   */
  saveState(path: string, options: SaveStateOptions): Promise<SavedState>;
  /** The same as bytes, for a browser. */
  stateBytes(options: SaveStateOptions): Promise<Uint8Array>;
  /**
   * Loads it again, from a path, a File, or its bytes. State of another model or type of KV cache, and a damaged file, are refused:
   * nothing has changed then.
   */
  loadState(from: string | File | Uint8Array, options?: LoadStateOptions): Promise<LoadedState>;
  /** Drops the state of a text from the KV cache, as far as no other text needs it. Copies (cacheRamBytes) stay. */
  forgetState(tokens: readonly number[]): Promise<void>;
  /**
   * Removes all that this model, while it is loaded, keeps of a conversation (GenerateOptions.conversation), in the KV cache, in memory
   * and on disk; what other texts begin with as well stays. None of its generations may be running. forgetStoredConversations() removes
   * what lies on disk for any model.
   */
  forgetConversation(conversation: string): Promise<void>;
  /** The adapters that it was opened with, and how strongly requests apply them that do not say. */
  adapters(): AdapterInfo[];
  /** From now on, requests that do not say apply these; those that are not named are not applied. Running ones go on as they began. */
  setAdapters(adapters: readonly AdapterScale[]): Promise<void>;
  /**
   * Compiles a grammar, which a later generation with the same one need not do. An error names the keyword that is wrong or not
   * supported; the result is what is mentioned but not enforced, such as a format that no standard defines.
   */
  checkGrammar(options: GrammarOptions): Promise<readonly string[]>;
  /**
   * How the model writes its reasoning and its tool calls, derived from its chat template: for an AnswerReader. undefined if it has
   * no template.
   */
  answerFormat(): Promise<AnswerFormat | undefined>;
  /**
   * The prompt that the model's chat template makes of these messages, for generate() and tokenize(): what the template says may
   * become special tokens and gets one BOS, what the messages say never does.
   */
  applyTemplate(
    messages: readonly ChatMessage[],
    options?: TemplateOptions,
  ): Promise<RenderedPrompt>;
  /**
   * Frees the model's memory, once all that is to be kept on disk was written (cacheDiskBytes); what was in the KV cache and in
   * cacheRamBytes only is lost. The next request loads it again, and waits for that; `info` stays, and status() says that nothing
   * is held. false: it computes something, and nothing has changed.
   */
  unload(): Promise<boolean>;
  /** Loads it after unload(), before a request does. */
  load(): Promise<void>;
  /** Where the time went since the model was opened. It must have been opened with `profile: true`. */
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
  /** As the option of open(), for a model whose values F16 can hold: only open() reads them. */
  weights?: HeldType | undefined;
}

/** `inspect()`: what a model file contains, without loading weights. */
export interface ModelInspection {
  name: string;
  format: string;
  totalBytes: number;
  architecture: string | undefined;
  parameters: number;
  /** Those that a token reads, of a model with experts. */
  activeParameters?: number;
  metadata: { key: string; preview: MetadataPreview }[];
  tensors: { name: string; dtype: string; shape: readonly number[]; bytes: number }[];
  types: { dtype: string; tensors: number; bytes: number }[];
  /** How embed() pools hidden states, where the file says. */
  pooling?: Pooling;
  /** Of a LoRA adapter: the largest rank of its factors, for how many matrices, and the tokens that activate it (aLoRA). */
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
    options?: { addSpecial?: boolean; parseSpecial?: boolean },
  ): number[];
  decode(ids: readonly number[], options?: { special?: boolean }): string;
  tokenText(id: number): string;
}
