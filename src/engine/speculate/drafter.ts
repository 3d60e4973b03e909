// A drafter proposes tokens that may follow the text of one generation. The model verifies them in one batch: the generation's own
// sampler runs at every drafted position in order, and a drafted token is accepted if it is the one that was sampled. So a drafter
// changes when a text is ready, never the text.
//
// A drafter belongs to one generation, from its prompt (DrafterKind.start) to its last token:
//   accept(token)      for every token of the output, in order; rejected tokens never come
//   chance(index)      before a batch: how likely its next proposal is right, from the text so far
//   draft(limit, out)  if that pays: the tokens themselves
//   verified(...)      how far they were right; accept() has been called for those tokens, and for the one that was sampled instead
// It keeps nothing of a draft: where it computed ahead (a draft model), it goes back by itself to the tokens of accept().

import type { Owner } from "../tiers/owners.ts";

/** Reads the hidden state of a token of the last batch: [embed]. */
export type HiddenReader = (output: "hidden", target: Float32Array) => Promise<void> | void;

export interface Drafter {
  /** Its name in --spec-type and reports. */
  readonly name: string;

  /**
   * Behind a batch: hidden states can be read. Row 0 is that of the last token of the text, row i that of the i-th drafted one. Only for
   * drafters that need them.
   */
  computed?(row: number, read: HiddenReader): Promise<void> | void;

  /** Whether it ends drafts before unlikely tokens by itself; otherwise chance() says how likely each is. */
  readonly endsItself?: boolean;

  /** A token of the output is part of the text now. On the way of every token: some ten nanoseconds, no allocation. */
  accept(token: number): void;

  /**
   * The probability that the token at `index` of the next draft is right if all before it are; 0: it has no proposal there or after it.
   * Known before draft(), so that nothing is drafted if it does not pay.
   */
  chance(index: number): number;

  /** The milliseconds that drafting `count` tokens takes; 0 for a lookup. */
  draftMs(count: number): number;

  /** Writes up to `limit` tokens to `out` and returns their number: fewer, or 0, where it finds no more. */
  draft(limit: number, out: Int32Array): number | Promise<number>;

  /** Called after verification: of `drafted` computed tokens, the first `accepted` were right. */
  verified(drafted: number, accepted: number): void;

  dispose(): void;
}

/** The facts about its generation that a drafter gets. */
export interface DraftedFor {
  /** A draft ends before a token that is less likely to be right. Default: 0. */
  readonly minChance?: number;
  /** Polled while a draft is computed: whether the generation was aborted. */
  readonly stop?: () => boolean;
  /** The owner of the text: a drafter's state of it is forgotten with its conversation. */
  readonly owner?: Owner;
}

/** Makes the drafters of generations: one for each kind that the engine has. */
export interface DrafterKind {
  readonly name: string;
  /** For reports. */
  readonly note?: string;
  /** `mostTokens`: the most tokens of prompt and output together. undefined: no drafter for this generation. */
  start(
    prompt: readonly number[],
    mostTokens: number,
    generation?: DraftedFor,
  ): Drafter | undefined | Promise<Drafter | undefined>;

  /** Forgets the state that it keeps of ended texts: of this conversation, or of all. */
  forgetConversation?(id: string): Promise<void>;
  clearCache?(): Promise<void>;

  /** Frees its state beside its drafters'; ended() resolves when that is done. */
  dispose?(): void;
  ended?(): Promise<void>;
}
