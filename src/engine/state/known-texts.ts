// The texts that this engine has computed lately, as tokens only: they outlast their state. A prompt that is computed again
// although an earlier text began with it is noticed here, and one that repeats an earlier text behind a change.

import { isPrivate, type Owner } from "../tiers/owners.ts";
import type { Sequence } from "./sequence.ts";

const MOST_TEXTS = 64;
/** 4 MB. */
const MOST_TOKENS = 1 << 20;
/** Tokens in a row that are not the same by chance. */
const RUN_TOKENS = 8;
/** Fewer are not worth a sentence. */
export const NOTABLE_TOKENS = 32;

/** A prompt that repeats tokens of an earlier text behind a token that differs. */
export interface Rewritten {
  /** The first token that differs. */
  readonly at: number;
  readonly was: number;
  readonly is: number;
  /** Tokens behind it that stood in the earlier text, too. */
  readonly repeated: number;
}

interface Text {
  readonly tokens: Int32Array;
  readonly owner: Owner;
}

export class KnownTexts {
  /** Oldest first. */
  #texts: Text[] = [];
  #tokens = 0;

  /** Remembers the tokens of a sequence that ends. */
  note(sequence: Sequence): void {
    // A reason shown to users names tokens: never those of a private text.
    if (sequence.length < NOTABLE_TOKENS || isPrivate(sequence.owner)) return;
    const tokens = sequence.tokens(0, sequence.length).slice();
    this.#texts = this.#texts.filter((old) => commonPrefix(old.tokens, tokens) < old.tokens.length);
    this.#texts.push({ tokens, owner: sequence.owner });
    this.#tokens = this.#texts.reduce((sum, old) => sum + old.tokens.length, 0);
    while (this.#texts.length > MOST_TEXTS || this.#tokens > MOST_TOKENS) {
      this.#tokens -= this.#texts.shift()!.tokens.length;
    }
  }

  forget(owners: readonly Owner[]): void {
    this.#texts = this.#texts.filter(({ owner }) => !owners.includes(owner));
    this.#tokens = this.#texts.reduce((sum, old) => sum + old.tokens.length, 0);
  }

  clear(): void {
    this.#texts = [];
    this.#tokens = 0;
  }

  /** The number of these tokens that an earlier text began with. */
  prefix(tokens: readonly number[]): number {
    return this.#texts.reduce((most, text) => Math.max(most, commonPrefix(text.tokens, tokens)), 0);
  }

  /** Whether most of the shorter one's rest stands in both, behind a difference; of all earlier texts, the latest that agrees for longest. */
  rewritten(tokens: readonly number[]): Rewritten | undefined {
    let before: Int32Array | undefined;
    let at = -1;
    for (const { tokens: text } of this.#texts) {
      const same = commonPrefix(text, tokens);
      if (same >= at) [before, at] = [text, same];
    }
    if (!before || at === before.length || at === tokens.length) return undefined;
    const rest = Math.min(before.length, tokens.length) - at;
    if (rest < NOTABLE_TOKENS) return undefined;
    const repeated = repeatedTokens(before, tokens, at);
    if (repeated < NOTABLE_TOKENS || repeated < rest / 2) return undefined;
    return { at, was: before[at]!, is: tokens[at]!, repeated };
  }
}

function commonPrefix(text: Int32Array, tokens: ArrayLike<number>): number {
  const most = Math.min(text.length, tokens.length);
  let same = 0;
  while (same < most && text[same] === tokens[same]) same++;
  return same;
}

/** Tokens of `after`, from `from` on, in runs that stand in `before` from there on as well. */
function repeatedTokens(before: Int32Array, after: readonly number[], from: number): number {
  const runs = new Set<number>();
  for (let at = from; at + RUN_TOKENS <= before.length; at++) runs.add(runHash(before, at));
  let repeated = 0;
  let counted = from;
  for (let at = from; at + RUN_TOKENS <= after.length; at++) {
    if (!runs.has(runHash(after, at))) continue;
    repeated += at + RUN_TOKENS - Math.max(at, counted);
    counted = at + RUN_TOKENS;
  }
  return repeated;
}

/** FNV-1a over tokens. A collision only makes a number in a message wrong. */
function runHash(tokens: ArrayLike<number>, at: number): number {
  let hash = 0x811c9dc5;
  for (let i = at; i < at + RUN_TOKENS; i++) hash = Math.imul(hash ^ tokens[i]!, 0x01000193);
  return hash;
}
