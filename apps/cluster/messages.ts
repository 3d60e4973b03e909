// The subjects and messages of a cluster's interactive part, which needs no JetStream: heartbeats of workers, calls of gateways, and the
// answers to them. line-streams.ts has the subjects of batches. A role's permissions follow from these names (deploy/nats).

import type { ErrorFacts } from "../../src/base/error-facts.ts";
import type { ModelInfo } from "../../src/index.ts";

/**
 * Ids are made of letters, digits and dashes: each is one part of a subject. A worker's has two parts if its credentials are only good for a
 * group of workers: they may hear lantern.call.GROUP.* only, so that no worker hears the calls of another group.
 */
export const subjects = {
  /** Worker -> all gateways, every second: Beat. */
  beat: (worker: string): string => `lantern.beat.${worker}`,
  beats: "lantern.beat.>",
  /** Gateway -> one worker, with a reply: WorkerFacts. */
  facts: (worker: string): string => `lantern.facts.${worker}`,
  /** Gateway -> one worker: CallMessage. */
  call: (worker: string): string => `lantern.call.${worker}`,
  /** Gateway -> one worker: the id of a call that is no longer needed. */
  cancel: (worker: string): string => `lantern.cancel.${worker}`,
  /** Gateway -> one worker, with a reply: the progress of these calls. */
  check: (worker: string): string => `lantern.check.${worker}`,
  /** Worker -> the gateway of calls: AnswerMessages of one or several. */
  answer: (gateway: string, worker: string): string => `lantern.answer.${gateway}.${worker}`,
  answers: (gateway: string): string => `lantern.answer.${gateway}.>`,
  /** Gateway -> all gateways, every second: it is alive, and with it its batches (shared-batches.ts). */
  gateway: (store: string): string => `lantern.gateway.${store}`,
  gateways: "lantern.gateway.*",
} as const;

/**
 * Whether a worker is one of a group. Their credentials reach no stream (docs/use/cluster.md), so they take no lines of batches: gateways take
 * lines for them, and call them as for a client.
 */
export function isOfGroup(worker: string): boolean {
  return worker.includes(".");
}

/** A worker's status, which it sends every second. */
export interface Beat {
  readonly worker: string;
  readonly model: string;
  /** Tells the model from others of this name (model-fingerprint.ts). */
  readonly fingerprint: string;
  /** Calls that compute or wait there, by gateway. A gateway has a newer count of its own calls. */
  readonly calls: Readonly<Record<string, number>>;
  /** Lines of batches that compute there. */
  readonly lines: number;
  /** The number of calls that it computes at a time. */
  readonly capacity: number;
  /** Measured: tokens per second of one answer, and of prompts; 0: nothing was generated yet. */
  readonly tokensPerSecond: number;
  readonly promptPerSecond: number;
  /** Fingerprints of the prefixes that its cache holds (fingerprints.ts). */
  readonly held: string;
  /** It takes no new calls: it is about to end. */
  readonly isLeaving: boolean;
}

/** The facts that do not change while a worker runs. */
export interface WorkerFacts {
  readonly info: ModelInfo;
  readonly version: string;
}

/** The methods of a model that a gateway may call: all give the same result however often they are called. */
export const callable = [
  "generate",
  "tokenize",
  "countTokens",
  "detokenize",
  "tokenPieces",
  "logits",
  "score",
  "embed",
  "rerank",
  "checkGrammar",
  "answerFormat",
  "applyTemplate",
  "status",
  "clearCache",
] as const;
export type CallableName = (typeof callable)[number];

export interface CallMessage {
  readonly id: string;
  readonly gateway: string;
  readonly method: CallableName;
  readonly args: readonly unknown[];
}

/** The call, the number of parts of its answer before this one (a gap is a lost message), and the part. */
export type AnswerPart = readonly [call: string, n: number, part: AnswerContent];

export type AnswerContent =
  | { readonly event: unknown }
  | { readonly result: unknown }
  | { readonly error: ErrorFacts };

/** The tokens of all answers to one gateway that one batch of the model computed. */
export type AnswerMessage = readonly AnswerPart[];

export interface CheckMessage {
  readonly calls: readonly string[];
}

/** The number of parts that each call has sent; -1: the worker does not know the call, or has ended it. */
export interface CheckReply {
  readonly sent: readonly number[];
}

/** Times in milliseconds. Tests shorten them. */
export interface ClusterTimes {
  /** Between two heartbeats of a worker. */
  readonly beat: number;
  /** A worker whose last heartbeat is older gets no new calls. */
  readonly stale: number;
  /** Between two checks of the calls at a worker. */
  readonly check: number;
  /** A worker that has not answered a check for this time has lost its calls. */
  readonly silent: number;
  /** A worker ends a call that its gateway has not checked for this time. */
  readonly orphan: number;
  /** How long a request waits for a worker of its model. */
  readonly wait: number;
  /** A name stands for another model when no worker of its earlier model was there for this time. */
  readonly keep: number;
}

export const clusterTimes: ClusterTimes = {
  beat: 1000,
  stale: 3500,
  check: 500,
  silent: 5000,
  orphan: 20_000,
  wait: 15_000,
  keep: 60_000,
};
