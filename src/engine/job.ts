// A job for the scheduler (scheduler.ts): a generation asks it to compute tokens of a sequence in one of the next batches.

import type { BatchPhase, BestLogits, Tap } from "../backends/backend.ts";
import { messageOf } from "../base/errors.ts";
import type { AdjustedList } from "../graph/adjusted-list.ts";
import type { NextDraw } from "../graph/batch.ts";
import type { OutputName } from "../graph/graph.ts";
import type { BackgroundPlace } from "./background.ts";
import type { WaitingPrompt } from "./prompt-order.ts";
import type { Sequence } from "./state/sequence.ts";

/** Copies an output of a token into the caller's buffer. */
export type ReadOutput = (output: OutputName, target: Float32Array) => Promise<void> | void;

/** Copies the best logits of a token; false: the backend did not look for them. */
export type ReadBest = (target: BestLogits) => boolean;

export interface AdvanceOptions {
  /** Whether an output of tokens[index] will be read. */
  wants(index: number): boolean;
  /** Called for the wanted tokens, in order. */
  onOutput(index: number, read: ReadOutput, readBest: ReadBest): unknown;
  /** So many of the best logits of a token are enough, where the backend finds them. Default: 0, none are. */
  best?: number;
  /** With `best`: tokens with adjusted logits, which are wanted too. Default: none. */
  adjusted?: AdjustedList | undefined;
  /**
   * The way the token after the last one will be chosen, and the number of batches of one token that may follow. Default: not known.
   */
  next?: { readonly draw: NextDraw; readonly follows: number } | undefined;
  /** false: logits are never read. Default: true. */
  logits?: boolean;
  /** Polled on the way: whether to give up. */
  stop(): boolean;
  /** Work that does not depend on the batch: called, if the backend can, while other threads compute it. Never throws. */
  meanwhile?(): void;
  /** Default: "prompt". */
  phase?: BatchPhase;
  /** The number of last tokens that are drafted: they may be left out, and undone (Sequence.hold). Default: 0. */
  drafted?: number;
  /** Sees every value of the batches with these tokens; other sequences are kept out of these batches. */
  tap?: Tap;
}

export interface Job extends WaitingPrompt {
  readonly sequence: Sequence;
  readonly options: AdvanceOptions;
  /** undefined: foreground. */
  readonly place: BackgroundPlace | undefined;
  readonly resolve: (taken: number) => void;
  readonly reject: (error: unknown) => void;
}

/** A job in a batch: the number of its tokens, and the length to restore if the batch fails. */
export interface Entry {
  readonly job: Job;
  readonly count: number;
  readonly before: number;
}

/** A token of a decoding sequence, with or without drafts behind it. */
export function isShort({ tokens, from, options }: Job): boolean {
  return tokens.length - from === 1 || (options.drafted ?? 0) > 0;
}

/** Whether a foreground prompt has more tokens than this many. */
export function hasMore({ tokens, from, place, options }: Job, count: number): boolean {
  return !place && !options.drafted && from + count < tokens.length;
}

/** The jobs that are left, in order of arrival. */
export function inOrder(left: readonly Job[], waiting: readonly Job[]): Job[] {
  if (left.length < 2) return [...left];
  const found = new Set(left);
  return waiting.filter((job) => found.has(job));
}

/** The tokens that a job needs computed to advance. */
export function dueTokens({ tokens, from, options }: Job): number {
  return Math.max(1, tokens.length - from - (options.drafted ?? 0));
}

/**
 * The tokens of `left` that are part of the text: checkpoints are placed by these. With drafted tokens, none is placed on the way.
 */
export function knownTokens(left: number, { drafted = 0 }: AdvanceOptions): number {
  return drafted > 0 ? 1 : left;
}

/** Undoes the tokens that were not computed and rejects the job, even if its sequence cannot be restored. */
export function giveUp({ sequence, reject }: Job, before: number, error: unknown): void {
  try {
    sequence.restore(before);
    reject(error);
  } catch (second) {
    const what = `after a failed batch, a sequence could not be restored to ${before} tokens`;
    reject(new AggregateError([error, second], `${what}: ${messageOf(second)}`));
  }
}
