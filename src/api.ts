// The public types: what a user of the package sees. index.ts exports them; open.ts makes the objects.

import type { MetadataPreview } from "./base/metadata.ts";
import type { PhaseWork, SpeedLimits } from "./limits/phase.ts";

export type { CachedReads, MachineMeasurement, RatePoint } from "./limits/device.ts";
export type { PhaseWork, SpeedLimit, SpeedLimits } from "./limits/phase.ts";
export type { Work } from "./limits/roofline.ts";

/** What names a model: a path (GGUF file, Hugging Face folder, llama2.c .bin), an http(s) URL, browser Files, or a catalog name. */
export type ModelLocation = string | URL | File | readonly File[];

/**
 * How products are computed. 1: plain TypeScript (the reference); 2: WebAssembly SIMD, row by row; 3: WebAssembly SIMD and
 * tiles; 4: tiles and machine code for this processor (docs/native.md).
 */
export type OptLevel = 1 | 2 | 3 | 4;

/** What machine code can be run on this machine: a target, or the reason why there is none. */
export type MachineCodeInfo =
  | {
      /** "x64-amx", "x64-avx512", "x64-avx2-vnni", "x64-avx2", "arm64-i8mm", "arm64-dotprod" */
      target: string;
      vectorBytes: number;
    }
  | { refused: string };

export interface OpenOptions {
  /** Tokens the context holds; default: the model's own, at most 4096. */
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
  /** false: no machine code, as level 3 (default true; docs/native.md). */
  native?: boolean;
  /** What computes: "cpu" (default), "webgpu" (a GPU; docs/gpu.md) or "reference" (plain TypeScript). */
  backend?: string;
  /**
   * How much of the model is on the GPU, the rest on the processor: the output and the last layers, the output counted as
   * one, as llama.cpp's -ngl. "all", or one more than the model has layers: everything. "auto": what its memory holds, and
   * the processor where there is no GPU. Default: everything with backend "webgpu", nothing otherwise.
   */
  gpuLayers?: number | "all" | "auto";
  /** A built-in chat template by name (chatml, llama2, zephyr) or a Jinja source; default: the model's own. */
  chatTemplate?: string;
  /** Record where the time goes, for model.profile(). Costs less than 2% of the speed; off (default), nothing. */
  profile?: boolean;
  /** Choose kernels and threads by what "lantern tune" measured on this machine, where it did (default true). */
  tuned?: boolean;
  signal?: AbortSignal;
  /** Called while weights are read. */
  onProgress?: (progress: LoadProgress) => void;
}

/** The GPU that backend "webgpu" would compute on. */
export interface GpuInfo {
  name: string;
  vendor: string;
  architecture: string;
  driver: string;
  /** Computes on the processor: right, and slow. */
  isSoftware: boolean;
  /** The largest buffer, and how much of one a shader can read. */
  maxBufferBytes: number;
  maxBindingBytes: number;
  /** The memory that may be used, where somebody said so (LANTERN_GPU_MEMORY): WebGPU does not. */
  memoryBytes?: number | undefined;
  workgroupStorageBytes: number;
  /** Half floats in shaders. */
  f16: boolean;
  /** Threads that can exchange values directly, at least and at most. */
  subgroups?: { min: number; max: number } | undefined;
  subgroupMatrix: boolean;
  timestampQueries: boolean;
}

export interface LoadProgress {
  loadedBytes: number;
  totalBytes: number;
}

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
  /** Divide (multiply, if negative) the logit of tokens seen lately; 1 = off (default). */
  repeatPenalty?: number;
  /** How many tokens back the penalties look; -1 = all, 0 = off. Default 64. */
  repeatLastN?: number;
  frequencyPenalty?: number;
  presencePenalty?: number;
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
  /** Let the model go on past its end-of-text token. */
  ignoreEos?: boolean;
  /** Put BOS before the prompt as the model's rules say (default true). */
  addBos?: boolean;
  /** Stops within one token; the iterator ends and `result` has stopReason "aborted". */
  signal?: AbortSignal;
}

export type StopReason = "end" | "stop" | "length" | "context" | "aborted";

export interface TokenLogprob {
  id: number;
  text: string;
  logprob: number;
}

/** One generated token, as `generation.tokens()` yields it. */
export interface TokenEvent {
  /** -1 for text that was held back (it might have become a stop string) and is certain now that generation ended. */
  id: number;
  /** Text that became certain with this token; may be empty in the middle of a character or a possible stop string. */
  text: string;
  logprob?: number;
  top?: TokenLogprob[];
  /** The token's own text, where log-probabilities are reported. */
  token?: string;
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

export interface EmbedOptions {
  /** Which hidden states count: the average over all tokens (default), or the last token's. */
  pooling?: "mean" | "last";
  /** Bring the vector to length 1 (default true). */
  normalize?: boolean;
  addBos?: boolean;
  signal?: AbortSignal;
}

export interface Embedding {
  /** As many values as the model's hidden states have. */
  vector: Float32Array;
  /** Tokens of the text. */
  tokens: number;
}

export interface LogitsOptions {
  /** Best logits reported per position (default 10). */
  top?: number;
  /** Greedy tokens to continue with (default 0). */
  greedy?: number;
  addBos?: boolean;
  signal?: AbortSignal;
}

export interface LogitsResult {
  tokens: number[];
  /** For every prompt position: Euclidean norm of the logits and the best ones. */
  positions: { norm: number; top: [id: number, logit: number][] }[];
  greedy: number[];
  text: string;
}

export interface ScoreOptions {
  /** The first position whose next token is scored (default 0). */
  from?: number;
  /** Read BOS in place of the first token, where the model begins its texts with one (default false). */
  firstIsBos?: boolean;
  /** Return the distributions too, in 16 bits a token: vocabulary x positions x 2 bytes (default false). */
  rows?: boolean;
  /** `rows` of another model with the same vocabulary, for the same tokens: compare with them. */
  base?: Uint16Array;
  signal?: AbortSignal;
}

/** One value for each position from `from` on, except the last token's, which nothing follows. */
export interface ScoreResult {
  /** Natural logarithm of the probability that the model gave to the token that came. */
  logprobs: Float64Array;
  /** The token that the model thought likeliest. */
  top: Int32Array;
  rows?: Uint16Array;
  /** With a base: its values, and the Kullback-Leibler divergence from it, in nats. */
  base?: { logprobs: Float64Array; top: Int32Array; divergences: Float64Array };
}

/** What came into one of a model's matrices while it read a text. */
export interface InputSums {
  /** The matrix: "blk.3.attn_q.weight". */
  name: string;
  /** The sum of the squares of what came into each column. */
  squares: Float32Array;
  tokens: number;
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
  backend: BackendInfo;
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
  /** What the kernels of products are: "x64-amx", "x64-avx512", ... (machine code), or "wasm: " and why. Absent: there are none. */
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
  kvBlocks: number;
  /** By running generations and by what is remembered of earlier ones. */
  kvBlocksUsed: number;
  kvBlockTokens: number;
  /** Sequences that are remembered: a prompt that begins as one of them does is not computed again. */
  cachedSequences: number;
}

export interface Model {
  readonly info: ModelInfo;
  status(): Promise<EngineStatus>;
  generate(prompt: string | readonly number[], options?: GenerateOptions): Generation;
  chat(options?: ChatOptions): Chat;
  tokenize(text: string, options?: { addBos?: boolean; parseSpecial?: boolean }): Promise<number[]>;
  detokenize(ids: readonly number[], options?: { special?: boolean }): Promise<string>;
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
  applyTemplate(
    messages: readonly ChatMessage[],
    options?: { addGenerationPrompt?: boolean },
  ): Promise<string>;
  /** Where the time went since the model was opened, which must have been with `profile: true`. */
  profile(options?: ProfileOptions): Promise<ProfileReport>;
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface ProfileOptions {
  /** With the last events one by one, for chrome://tracing or ui.perfetto.dev; some megabytes. */
  trace?: boolean;
  /** Begin anew after this report: what ran until now is in no later one. */
  reset?: boolean;
}

/** Where the time went: loading, then what was run since, or since the last reset. */
export interface ProfileReport {
  threads: number;
  /** `readMs` is waiting for the file, `packMs` bringing weights into the layout that kernels read. */
  load: { ms: number; openMs: number; prepareMs: number; readMs: number; packMs: number };
  phases: PhaseProfile[];
  /** What limits are measured against, for people: "measured 2026-11-15, 2 threads"; undefined: nothing. */
  device: string | undefined;
  /** What takes most of the time, in one sentence. */
  bottleneck: string;
  /** How it was recorded, or why not, where there is something to say. */
  notes?: string[];
  trace?: ChromeTrace;
}

/** One phase, all generations together. computeMs + waitingMs + betweenMs = ms. */
export interface PhaseProfile {
  phase: "prompt" | "generation";
  ms: number;
  steps: number;
  tokens: number;
  /** Of that, the backend's steps: computeMs + waitingMs. */
  stepMs: number;
  /** All ops, averaged over the threads. */
  computeMs: number;
  /** Time that threads spent waiting for work within steps, averaged over the threads. */
  waitingMs: number;
  /** Time in which only one thread could work. */
  aloneMs: number;
  betweenMs: number;
  /** What the engine did between the steps. */
  between: {
    /** Template, tokenizing, the sampler: before a prompt is read. Not in Timings.promptMs. */
    requestMs: number;
    bookkeepingMs: number;
    logitsMs: number;
    samplingMs: number;
    textMs: number;
    messagesMs: number;
  };
  /** Of each thread: busyMs + waitingMs = stepMs. */
  threads: { busyMs: number; waitingMs: number }[];
  /** What computes, where that is not threads: "GPU". It is then the one entry of `threads`. */
  worker?: string;
  /**
   * What a step and all that is done until the next take of JavaScript's heap, on the engine's thread; undefined where
   * the platform does not say. Tensor memory is laid out when a model is loaded: a step takes none.
   */
  heapBytesPerStep: number | undefined;
  /** By kind of op, longest first; by layer, in order; by node with its layer left out, longest first. */
  ops: ProfileRow[];
  layers: ProfileRow[];
  nodes: ProfileRow[];
  /** One sentence. */
  summary: string;
}

export interface ProfileRow {
  name: string;
  calls: number;
  /** Averaged over the threads. */
  ms: number;
  /** Of the phase's time, 0 to 1. */
  share: number;
  /** Weights and cached keys and values, while it was computed. */
  bytesPerSecond: number;
  /** A multiply and an add are two operations. */
  opsPerSecond: number;
  /** How much of what the hardware allows was reached, 0 to 1; undefined where nobody knows, or there is no work. */
  limit: { resource: "bandwidth" | "arithmetic"; fraction: number } | undefined;
}

/** The trace format of Chrome, as far as it is used here: write it to a file as JSON. */
export interface ChromeTrace {
  traceEvents: TraceEvent[];
  displayTimeUnit: "ms";
}

export interface TraceEvent {
  name: string;
  cat?: string;
  /** "X": something with a duration; "M": the name of a track. */
  ph: "X" | "M";
  pid: number;
  tid: number;
  /** Microseconds. */
  ts?: number;
  dur?: number;
  args?: Record<string, string | number>;
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

/** How machineMeasurement() measures, if it has to. */
export interface MachineOptions {
  /** Measure even if a measurement is remembered. */
  anew?: boolean | undefined;
  /** How long to measure, besides a second for the start (default 7). Less is less exact, above all on a busy machine. */
  seconds?: number | undefined;
  signal?: AbortSignal | undefined;
  /** Of the measurement, how much is done: 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
  /** What was remembered and is not used, or could not be written: a sentence. */
  onNote?: ((note: string) => void) | undefined;
}

/** How gpuMeasurement() measures, if it has to. */
export interface GpuMeasureOptions {
  /** Measure even if a measurement is remembered. */
  anew?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** Of the measurement, how much is done: 0 to 1. */
  onProgress?: ((share: number) => void) | undefined;
  /** What was remembered and is not used, or could not be written: a sentence. */
  onNote?: ((note: string) => void) | undefined;
}

/** One matrix product to measure: activations [m, k] times weights [n, k], transposed. */
export interface MatmulBenchOptions {
  /** Type of the weights: "q4_1". */
  type: string;
  n: number;
  k: number;
  m: number;
  level: OptLevel;
  threads: number;
  /** How long to measure; at least one product is computed. */
  seconds: number;
}

export interface MatmulSpeed {
  /** A multiply and an add count as two operations. */
  gflops: number;
  /** What computed it, in words. */
  kernel: string;
}
