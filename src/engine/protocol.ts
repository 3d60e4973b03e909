// The messages between the caller's thread and the engine's: one request, any number of events, one reply. Everything
// is structured-cloneable; errors travel as facts and become the same class again on the other side.

import type { AnswerFormat } from "../api/answer-format.ts";
import type {
  AdapterScale,
  ChatMessage,
  CpuBinding,
  Embedding,
  EmbedOptions,
  EngineStatus,
  GenerateOptions,
  GenerationResult,
  InputSums,
  Isa,
  LoadedState,
  LoadProgress,
  LogitsResult,
  ModelInfo,
  ProfileReport,
  SavedState,
  ScoreResult,
  SpeculateOptions,
  TemplateOptions,
  TokenEvent,
} from "../api/api.ts";
import type { Device } from "../api/rates.ts";
import type { ErrorFacts } from "../base/error-facts.ts";
import type { RenderedPrompt } from "../base/rendered-prompt.ts";
import type { HeldType } from "../dtypes/held-types.ts";
import type { KvType, KvTypePair } from "../dtypes/kv-types.ts";
import type { Program } from "../grammar/program.ts";
import type { GrammarText } from "../grammar/source.ts";
import type { OpenRowOptions } from "../options/open.ts";
import type { SourceSpec } from "../platform/platform.ts";
import type { CorePlace } from "./core-turns.ts";
import type { InputSumsRequest } from "./input-sums.ts";
import type { ScoreRequest } from "./score.ts";

/** A prompt as the caller gave it: text, token ids, a conversation for the template, or two texts for a model that ranks. */
export type Prompt =
  /** `isRendered`: a template made the text, and may have written BOS itself. */
  | { kind: "text"; prompt: RenderedPrompt; addBos: boolean; isRendered: boolean }
  | { kind: "tokens"; tokens: number[] }
  | { kind: "messages"; messages: ChatMessage[]; variables?: Readonly<Record<string, unknown>> }
  | { kind: "pair"; query: string; document: string };

/** The location that saved state is read from. */
export type SavedStatePlace = SourceSpec | { kind: "bytes"; bytes: Uint8Array };

/** The options that are rows of src/options/open.ts, with their defaults. */
export type OpenRowRequest = Omit<OpenRowOptions, Defaulted> & {
  [Name in Defaulted]: NonNullable<OpenRowOptions[Name]>;
};
type Defaulted = "native" | "profile" | "tuned" | "parallel";

export interface OpenRequest extends OpenRowRequest {
  spec: SourceSpec;
  kvType: KvType | KvTypePair;
  weights?: HeldType | undefined;
  binding?: CpuBinding | undefined;
  /** An instruction set; undefined: the best. */
  isa?: Isa | undefined;
  /** A limit on the layers on the GPU, even if more would fit: the GPU had no memory for one more. */
  mostGpuLayers?: number | undefined;
  /** Tensors that are elsewhere than their layer. Default: none. */
  overrideTensors?: readonly string[] | undefined;
  /** Experts of each layer that lie in GPU memory at a time. Default: all. */
  expertSlots?: number | undefined;
  /** The file of predictors; default: they are in the model's. */
  predictors?: SourceSpec | undefined;
  /** Whether tokens are drafted; undefined: where that cannot change a text. */
  speculate?: boolean | SpeculateOptions | undefined;
  /** A tune file instead of the stored one. */
  tuneFile?: SourceSpec | undefined;
  /** Numbers of tokens with explained estimates. Default: 1 and a full batch. */
  explainTokens?: readonly number[] | undefined;
  /** Adapters, in the order of their numbers. Default: none. */
  adapters?: readonly AdapterRequest[] | undefined;
  /** A second model, which drafts for this one. */
  draft?: DraftRequest | undefined;
  /** Its entry among the engines of this process that share cores; undefined: it shares none. */
  cores?: CorePlace | undefined;
  /** When the caller asked, by the clock that all threads share: ms since 1970. */
  sentAt?: number | undefined;
}

export interface AdapterRequest {
  readonly spec: SourceSpec;
  /** Its location as the caller wrote it, for people. */
  readonly path: string;
  readonly scale: number;
}

/** A draft model; omitted options are those of the model itself. */
export interface DraftRequest extends Pick<OpenRequest, "spec" | "gpuLayers"> {
  /** undefined: by its size. */
  threads: number | undefined;
}

/** Tokens in one array, or only their number if there are more than the limit. */
export interface TokenList {
  count: number;
  ids: Int32Array | undefined;
}

/** The bytes of many tokens, one after the other; ends[i] is the end of the i-th. */
export interface TokenPieces {
  bytes: Uint8Array;
  ends: Int32Array;
}

/** The part of a model's request that a text thread needs. */
export type TextRequest = Pick<OpenRequest, "spec" | "chatTemplate" | "overrideKv">;

/** Methods on texts alone: run by the engine's thread or by the text thread (text-desk.ts). */
interface SharedTextMethods {
  /** The tokens of a prompt; more than `limit` are only counted. */
  promptTokens: { params: { prompt: Prompt; limit: number }; result: TokenList; event: never };
  detokenize: { params: { ids: Int32Array; special: boolean }; result: string; event: never };
  pieces: { params: { ids: Int32Array }; result: TokenPieces; event: never };
  /** The model's format of reasoning and tool calls; undefined if it has no chat template. */
  answerFormat: { params: undefined; result: AnswerFormat | undefined; event: never };
  applyTemplate: {
    params: { messages: ChatMessage[]; options: TemplateOptions };
    result: RenderedPrompt;
    event: never;
  };
}

/** The methods of a text thread. */
export interface TextMethods extends SharedTextMethods {
  /** Returns the fingerprint of the vocabulary. */
  open: { params: TextRequest; result: number; event: never };
  compileProgram: { params: { source: GrammarText }; result: Program; event: never };
  dispose: { params: undefined; result: undefined; event: never };
}

/** Every method: its parameters, result and events. */
export interface Methods extends SharedTextMethods {
  open: { params: OpenRequest; result: ModelInfo; event: LoadProgress };
  generate: {
    params: {
      prompt: Prompt;
      options: Omit<GenerateOptions, "signal">;
      /** The grammar of these options. */
      grammar?: GrammarText | undefined;
    };
    result: GenerationResult;
    event: TokenEvent;
  };
  /**
   * Compiles it, if it is not, or takes over the text thread's. The result: the parts of its source that it does not enforce;
   * undefined: it takes long, and another thread should compile it. `whole`: there is no other thread.
   */
  compileGrammar: {
    params: { source: GrammarText; program?: Program | undefined; whole?: boolean };
    result: readonly string[] | undefined;
    event: never;
  };
  /** Answered immediately, between two pieces of other work. */
  alive: { params: Record<never, never>; result: undefined; event: never };
  /** Answers when all state that is to be copied out of the backend was. */
  settle: { params: Record<never, never>; result: undefined; event: never };
  /** The engine's own work, for which it has asked: answers when it is done. */
  ownWork: { params: Record<never, never>; result: undefined; event: never };
  /** Fingerprint of the vocabulary. */
  fingerprint: { params: Record<never, never>; result: number; event: never };
  logits: {
    params: { prompt: Prompt; top: number; greedy: number };
    result: LogitsResult;
    event: never;
  };
  embed: {
    params: {
      prompts: readonly Prompt[];
      /** Default: ModelInfo.embedding. */
      pooling: EmbedOptions["pooling"];
      isBackground: boolean;
    };
    result: Embedding[];
    /** After each text: the number that are done. */
    event: number;
  };
  score: { params: ScoreRequest; result: ScoreResult; event: never };
  inputSums: { params: InputSumsRequest; result: InputSums[]; event: never };
  profile: {
    /** A device for each entry of ModelInfo.backend.placement; undefined: not known. */
    params: { devices: readonly Device[] | undefined; trace: boolean; reset: boolean };
    result: ProfileReport;
    event: never;
  };
  status: { params: Record<never, never>; result: EngineStatus; event: never };
  clearCache: { params: Record<never, never>; result: undefined; event: never };
  /** `path`: undefined: the result has the bytes. */
  saveState: {
    params: { tokens: number[]; path: string | undefined };
    result: SavedState & { data?: Uint8Array };
    event: never;
  };
  loadState: { params: { from: SavedStatePlace }; result: LoadedState; event: never };
  /** The adapters of requests that do not say. */
  setAdapters: {
    params: { adapters: readonly AdapterScale[] };
    result: undefined;
    event: never;
  };
  forgetState: { params: { tokens: number[] }; result: undefined; event: never };
  forgetConversation: { params: { id: string }; result: undefined; event: never };
  dispose: { params: undefined; result: undefined; event: never };
}

export type MethodName = keyof Methods;

/** A table of methods: the parameters, result and events of each. */
export type MethodTable<T> = {
  readonly [M in keyof T]: { params: unknown; result: unknown; event: unknown };
};

interface Request<T extends MethodTable<T>, M extends keyof T> {
  id: number;
  method: M;
  params: T[M]["params"];
  /** The caller's signal was already aborted when the request was made. */
  aborted: boolean;
  /** It was counted in ARRIVALS. */
  isUrgent: boolean;
}

type To<T extends MethodTable<T>> =
  | { [M in keyof T]: Request<T, M> }[keyof T]
  | { id: number; method: "abort" }
  | { id: 0; method: "share"; flags: Int32Array }
  | { id: 0; method: "ping" };

export type ToEngine = To<Methods>;
export type ToText = To<TextMethods>;

/**
 * Aborts that are seen in the middle of a batch, where no message comes in: flags[id % length] = id. In shared memory,
 * if there is any; the message is sent as well.
 */
export const ABORT_FLAGS = 256;
/** After them: a counter that the thread advances while it works, as a sign of life (watch.ts). */
export const BEATS: number = ABORT_FLAGS;
/** And the number of urgent requests sent, so that a background batch is cancelled when one comes. */
export const ARRIVALS: number = ABORT_FLAGS + 1;
export const SHARED_WORDS: number = ABORT_FLAGS + 2;

/** Requests on the way to a first token: urgent, unless they are background work. */
export const urgentMethods: ReadonlySet<string> = new Set<MethodName>([
  "generate",
  "embed",
  "logits",
  "score",
  "promptTokens",
  "detokenize",
  "pieces",
  "answerFormat",
  "applyTemplate",
  "compileGrammar",
]);

export type FromEngine =
  | { id: 0; kind: "pong" }
  | { id: 0; kind: "warning"; warning: string }
  /** It has idle work, and begins when it is asked to ("ownWork"). */
  | { id: 0; kind: "hasWork" }
  /** It was told to end, and is about to: its current computation may have to be waited for. */
  | { id: 0; kind: "ending" }
  /** The device that it computes on is gone: the thread is to be ended, and another started. */
  | { id: 0; kind: "lost"; why: string; outOfMemory: boolean }
  /** The events in order: a step of many generations is one message. */
  | { id: 0; kind: "events"; events: readonly EngineEvent[] }
  | { id: number; kind: "result"; result: unknown }
  | { id: number; kind: "error"; error: ErrorFacts };

/** An event of the request with this id. */
export interface EngineEvent {
  readonly id: number;
  readonly event: unknown;
}
