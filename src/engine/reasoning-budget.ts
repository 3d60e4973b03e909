// Ends a model's reasoning after a number of tokens: the mark at its end is forced, as llama.cpp's --reasoning-budget does.
//
//   idle -> counting (behind the opening mark) -> forcing (the budget is used up) -> idle (behind the closing mark)
//
// A model that reasons again has the whole budget again, if the opening mark is known.
// A character whose bytes are several tokens is finished first.

import type { ReasoningBudgetOptions } from "../api/api.ts";
import { UsageError } from "../base/errors.ts";
import { joined, trusted, words } from "../base/rendered-prompt.ts";
import { show } from "../base/show.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import type { TokenMask } from "./sampling.ts";

/** The last bytes of a text, to find a mark in. */
class Tail {
  readonly #bytes: Uint8Array;
  #length = 0;

  constructor(size: number) {
    this.#bytes = new Uint8Array(size);
  }

  push(bytes: Uint8Array): void {
    const size = this.#bytes.length;
    for (const byte of bytes) {
      if (this.#length === size) {
        this.#bytes.copyWithin(0, 1);
        this.#length--;
      }
      this.#bytes[this.#length++] = byte;
    }
  }

  clear(): void {
    this.#length = 0;
  }

  /** Whether `mark` is anywhere in it: a token may continue after a mark. */
  has(mark: Uint8Array): boolean {
    for (let at = this.#length - mark.length; at >= 0; at--) {
      let same = 0;
      while (same < mark.length && this.#bytes[at + same] === mark[same]) same++;
      if (same === mark.length) return true;
    }
    return false;
  }
}

type Stage = "idle" | "counting" | "forcing";

/** The longest token that may hold a mark and more. */
const LONGEST_TOKEN = 64;

export class ReasoningBudget {
  readonly #tokenizer: Tokenizer;
  readonly #start: Uint8Array;
  readonly #end: Uint8Array;
  readonly #forced: readonly number[];
  readonly #budget: number;
  readonly #tail: Tail;
  #stage: Stage;
  #used = 0;
  #at = 0; // in #forced
  #missing = 0; // bytes that the last character still needs

  constructor(options: ReasoningBudgetOptions, tokenizer: Tokenizer) {
    const { tokens, start = "", end, isOpen = false, message = "" } = checked(options);
    const utf8 = new TextEncoder();
    this.#tokenizer = tokenizer;
    this.#start = utf8.encode(start.trim());
    this.#end = utf8.encode(end.trim());
    this.#budget = tokens;
    // The message is the user's text; the mark at the end is the format's.
    this.#forced = tokenizer.encode(joined(words(message), trusted(end)), { addSpecial: false });
    this.#tail = new Tail(Math.max(this.#start.length, this.#end.length) + LONGEST_TOKEN);
    this.#stage = isOpen ? "counting" : "idle";
    this.#check();
  }

  /** The token that comes next regardless of the logits; undefined: the sampler decides. */
  get next(): number | undefined {
    return this.#stage === "forcing" && this.#missing === 0 ? this.#forced[this.#at] : undefined;
  }

  /** Forbids all other tokens while the end of reasoning is forced; else the tokens that `other` forbids. */
  over(other: (TokenMask & { readonly isNextKnown: boolean }) | undefined): TokenMask {
    const nextOf = () => this.next;
    return {
      get isIdle() {
        return nextOf() === undefined && (other?.isIdle ?? true);
      },
      forbid: (logits) => {
        const { next } = this;
        // A token that a grammar has forced was computed already, and comes first.
        if (next === undefined || other?.isNextKnown) {
          other?.forbid(logits);
          return;
        }
        logits.fill(Number.NEGATIVE_INFINITY);
        logits[next] = 0;
      },
    };
  }

  /** A token is now part of the text. */
  accept(id: number): void {
    if (this.#stage === "idle" && this.#start.length === 0) return;
    if (id === this.next) {
      this.#at++;
      if (this.#at === this.#forced.length) this.#rest();
      return;
    }
    const bytes = this.#tokenizer.tokenBytes(id, { special: true });
    this.#follow(bytes);
    this.#tail.push(bytes);
    if (this.#stage === "idle") {
      if (!this.#tail.has(this.#start)) return;
      this.#stage = "counting";
      this.#tail.clear();
      this.#check();
      return;
    }
    if (this.#tail.has(this.#end)) {
      this.#rest();
      return;
    }
    this.#used++;
    this.#check();
  }

  /** Reasoning has ended. */
  #rest(): void {
    this.#stage = "idle";
    this.#used = 0;
    this.#at = 0;
    this.#tail.clear();
  }

  #check(): void {
    if (this.#stage === "counting" && this.#used >= this.#budget) this.#stage = "forcing";
  }

  /** Counts the bytes of characters. */
  #follow(bytes: Uint8Array): void {
    for (const byte of bytes) {
      if (byte < 0x80) this.#missing = 0;
      else if (byte < 0xc0) this.#missing = Math.max(0, this.#missing - 1);
      else this.#missing = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    }
  }
}

/** Checked, since they may come from JSON. */
function checked(options: ReasoningBudgetOptions): ReasoningBudgetOptions {
  const { tokens, start = "", end, message = "" } = options;
  if (!Number.isSafeInteger(tokens) || tokens < 0) {
    throw new UsageError(`reasoningBudget.tokens: got ${show(tokens)}, expected 0 or more`);
  }
  if (typeof end !== "string" || end.trim() === "") {
    throw new UsageError(
      `reasoningBudget.end: got ${show(end)}, expected the mark at the end of reasoning, such as "</think>"`,
    );
  }
  if (typeof start !== "string" || typeof message !== "string") {
    throw new UsageError("reasoningBudget: expected texts for start and message");
  }
  if (start.trim() === "" && options.isOpen !== true) {
    throw new UsageError(
      "reasoningBudget: got neither the mark that opens reasoning (start) nor isOpen, expected one of them",
    );
  }
  return options;
}
