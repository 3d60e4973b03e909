// The data: a session is a conversation stored as a tree of messages. This file has all its fields.
//
// There is no behaviour here. store.ts keeps sessions in a database, runs.ts writes the answers, exchange.ts exports
// and imports. Times are milliseconds since 1970.

import { UsageError } from "../../src/base/errors.ts";
import type { StopReason } from "../../src/index.ts";
import type { SessionSettings } from "./settings.ts";

/** chat: turns under the model's template. story: consecutive parts of one text. */
export const sessionModes = ["chat", "story"] as const;
export type SessionMode = (typeof sessionModes)[number];

/** In a story, "user" is text by the person and "assistant" text by the model. */
export const messageRoles = ["user", "assistant"] as const;
export type MessageRole = (typeof messageRoles)[number];

/** streaming: being written now. aborted: stopped, or interrupted by the end of the process; its text is kept. */
export const messageStates = ["complete", "streaming", "aborted", "error"] as const;
export type MessageState = (typeof messageStates)[number];

/** waiting: it has no result yet. failed: the tool was run, and gave an error. */
export const callStates = ["waiting", "done", "refused", "failed"] as const;
export type CallState = (typeof callStates)[number];

/** A call of a tool that an answer makes. */
export interface ToolCall {
  id: string;
  name: string;
  /** JSON text, as the model wrote it. */
  arguments: string;
  state: CallState;
  /** The result text for the model; null while it waits, and for a refusal without words. */
  result: string | null;
  /** The source of the result: "hand", or the name of a server of tools. */
  by: string | null;
}

export const stopReasons: readonly StopReason[] = ["end", "stop", "length", "context", "aborted"];

export interface Session {
  id: string;
  /** "" until the user sets it or it is taken from the first message. */
  title: string;
  mode: SessionMode;
  /** The served model's name; null: the first served one. */
  model: string | null;
  settings: SessionSettings;
  createdAt: number;
  changedAt: number;
  /** The current message of the conversation; null: before the first. Going back moves this. */
  leaf: string | null;
  messageCount: number;
}

export interface Message {
  id: string;
  /** null: a first message. There may be several: an edited first message is a sibling of the old one. */
  parent: string | null;
  role: MessageRole;
  content: string;
  /** The model's reasoning before and between its text; null: none. Answers of older versions have it in their content. */
  reasoning: string | null;
  calls: ToolCall[];
  state: MessageState;
  createdAt: number;
  changedAt: number;
  /** For an answer: the model that wrote it. */
  model: string | null;
  stopReason: StopReason | null;
  /** The error in state "error". */
  error: string | null;
  tokens: MessageTokens | null;
  timings: MessageTimings | null;
}

export interface MessageTokens {
  prompt: number;
  /** Prompt tokens whose keys and values were already in the cache; null: not known for an interrupted answer. */
  cached: number | null;
  generated: number;
  /** The part of those that was reasoning. */
  reasoning?: number;
  /**
   * For a story longer than the context: tokens between its beginning and its latest part, which the model did not
   * see.
   */
  dropped?: number;
}

export interface MessageTimings {
  /** From the start of the run to the first token, including queue and prompt. */
  msToFirstToken: number | null;
  tokensPerSecond: number | null;
  promptMs: number | null;
  generatedMs: number | null;
  /** From the first token of reasoning to the last. */
  reasoningMs?: number;
  /** Percentage of this machine's limit for this model; null if not known. */
  percentOfLimit: number | null;
  /** The resource that limits the speed: "memory bandwidth", "compute". */
  boundBy: string | null;
  /** The limit is of a quick measurement. */
  limitIsQuick?: boolean;
  /** Cores that other programs used meanwhile, and the number of cores; absent: too few to change the speed, or not known. */
  othersCores?: number;
  cores?: number;
}

export type SessionProblem =
  | "missing" // there is no such session, message or run
  | "conflict" // not now: an answer is being written
  | "waiting" // not now: a call waits for its result
  | "invalid"; // the request makes no sense for this conversation

/** A refused request about sessions; `problem` is the kind, `param` the field. */
export class SessionError extends UsageError {
  override name: string = "SessionError";
  readonly problem: SessionProblem;
  readonly param: string | null;

  constructor(problem: SessionProblem, message: string, param: string | null = null) {
    super(message);
    this.problem = problem;
    this.param = param;
  }
}
