// The data: a session is a conversation kept as a tree of messages, and this file is all its fields.
//
// No behaviour here. store.ts keeps these in a database, runs.ts fills in the answers, exchange.ts carries them from one
// machine to another. Times are milliseconds since 1970.

import type { StopReason } from "../api/api.ts";
import { UsageError } from "../base/errors.ts";
import type { SessionSettings } from "./settings.ts";

/** chat: turns under the model's template. story: pieces of one text, which stand one after the other. */
export const sessionModes = ["chat", "story"] as const;
export type SessionMode = (typeof sessionModes)[number];

/** In a story, "user" is what the person wrote and "assistant" what the model continued. */
export const messageRoles = ["user", "assistant"] as const;
export type MessageRole = (typeof messageRoles)[number];

/** streaming: being written now. aborted: stopped, or interrupted by the end of the process; what was written is kept. */
export const messageStates = ["complete", "streaming", "aborted", "error"] as const;
export type MessageState = (typeof messageStates)[number];

export const stopReasons: readonly StopReason[] = ["end", "stop", "length", "context", "aborted"];

export interface Session {
  id: string;
  /** "" until somebody names it or the first message does. */
  title: string;
  mode: SessionMode;
  /** The served model's name; null: whichever is served first. */
  model: string | null;
  settings: SessionSettings;
  createdAt: number;
  changedAt: number;
  /** The message that the conversation stands at; null: before the first. Going back is moving this. */
  leaf: string | null;
  messageCount: number;
}

export interface Message {
  id: string;
  /** null: a first message. Several may be: an edited first message is a sibling of the old one. */
  parent: string | null;
  role: MessageRole;
  content: string;
  state: MessageState;
  createdAt: number;
  changedAt: number;
  /** Of an answer: which model wrote it. */
  model: string | null;
  stopReason: StopReason | null;
  /** Why it ended in state "error". */
  error: string | null;
  tokens: MessageTokens | null;
  timings: MessageTimings | null;
}

export interface MessageTokens {
  prompt: number;
  /** Of the prompt's, those whose keys and values were still in the cache; null: not known of an answer cut short. */
  cached: number | null;
  generated: number;
  /** Of a story longer than the context: tokens between its beginning and its latest part, which the model did not see. */
  dropped?: number;
}

export interface MessageTimings {
  /** From the start of the run to the first token: queue and prompt included. */
  msToFirstToken: number | null;
  tokensPerSecond: number | null;
  promptMs: number | null;
  generatedMs: number | null;
  /** Of what this machine allows for this model; null where nobody can say. */
  percentOfLimit: number | null;
  /** What binds: "memory bandwidth", "compute". */
  boundBy: string | null;
}

export type SessionProblem =
  | "missing" // there is no such session, message or run
  | "conflict" // not now: an answer is being written
  | "invalid"; // the request makes no sense for this conversation

/** A request about sessions that is refused; `problem` says why, `param` which field. */
export class SessionError extends UsageError {
  readonly problem: SessionProblem;
  readonly param: string | null;

  constructor(problem: SessionProblem, message: string, param: string | null = null) {
    super(message);
    this.problem = problem;
    this.param = param;
  }
}
