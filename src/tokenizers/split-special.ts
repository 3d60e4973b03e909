// Finds special and added tokens in a text (<|im_start|>, </s>, a run of spaces that is one token) and splits the text
// there. The model's own algorithm encodes the text in between.
//
// Tokens that stand for their own text (isWords) are found everywhere. All others are marks, and found only where the text is
// trusted from their first character to their last: never in words that people, tools and documents say, nor half in them.
//
// The leftmost token wins, and at each position the longest. A trie over UTF-16 units keeps this linear, however many
// tokens there are (Llama 3 has 256).

import { ModelError } from "../base/errors.ts";
import type { Trusted } from "../base/rendered-prompt.ts";
import type { TextModel } from "./text-tokenizer.ts";

export interface AddedToken {
  id: number;
  text: string;
  /** Whether it strips the whitespace before / after it. */
  stripLeft: boolean;
  stripRight: boolean;
  /** Matched only if no letter, digit or underscore is next to it. */
  singleWord: boolean;
  /** It stands for its own text, so people may say it (Vocabulary.isWords). */
  isWords: boolean;
}

/** A piece of plain text, or a token by its id. */
export type Fragment = string | number;

interface TrieNode {
  children: Map<number, TrieNode>;
  token: AddedToken | undefined;
}

/** Total length of special tokens: each character is a node. Real models have some ten thousand. */
const MOST_UNITS = 4_000_000;
/** Positions between two checks whether to stop. */
const CHECK_UNITS = 4096;

const WHITE_SPACE = /\p{White_Space}/u;
const WORD_BEFORE = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]$/u;
const WORD_AFTER = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]/u;

export class SpecialSplitter {
  readonly #root: TrieNode = { children: new Map(), token: undefined };

  constructor(tokens: Iterable<AddedToken>) {
    let units = 0;
    for (const token of tokens) {
      units += token.text.length;
      if (units > MOST_UNITS) {
        throw new ModelError(
          `tokenizer: the texts of its special tokens have more than ${MOST_UNITS} characters`,
        );
      }
      if (token.text !== "") this.#add(token);
    }
  }

  /** Splits `text` into fragments; none is an empty string. `onText`: where each text begins. */
  split(
    text: string,
    trusted: Trusted,
    check: () => void = () => {},
    onText: (at: number) => void = () => {},
  ): Fragment[] {
    if (text === "") return [];
    const fragments: Fragment[] = [];
    let stretch = 0; // the first stretch of `trusted` that ends after `at`
    let start = 0; // start of the plain text that was not returned yet
    let at = 0;
    while (this.#root.children.size > 0 && at < text.length) {
      if (at % CHECK_UNITS === 0) check();
      while (stretch < trusted.length && trusted[stretch + 1]! <= at) stretch += 2;
      const trustedEnd =
        stretch < trusted.length && trusted[stretch]! <= at ? trusted[stretch + 1]! : at;
      const token = this.#match(text, at, trustedEnd);
      if (token === undefined) {
        at++;
        continue;
      }
      let plainEnd = at;
      if (token.stripLeft) {
        while (plainEnd > start && isSpace(text, plainEnd - 1)) plainEnd--;
      }
      if (plainEnd > start) {
        onText(start);
        fragments.push(text.slice(start, plainEnd));
      }
      fragments.push(token.id);
      at += token.text.length;
      if (token.stripRight) while (at < text.length && isSpace(text, at)) at++;
      start = at;
    }
    if (start < text.length) {
      onText(start);
      fragments.push(start === 0 ? text : text.slice(start));
    }
    return fragments;
  }

  #add(token: AddedToken): void {
    let node = this.#root;
    for (let i = 0; i < token.text.length; i++) {
      const unit = token.text.charCodeAt(i);
      let child = node.children.get(unit);
      if (child === undefined) {
        child = { children: new Map(), token: undefined };
        node.children.set(unit, child);
      }
      node = child;
    }
    node.token = token;
  }

  /** `trustedEnd`: up to there the text is trusted from `at` on. */
  #match(text: string, at: number, trustedEnd: number): AddedToken | undefined {
    let found: AddedToken | undefined;
    let node = this.#root.children.get(text.charCodeAt(at));
    for (let i = at + 1; node !== undefined; i++) {
      const { token } = node;
      const isAllowed = token !== undefined && (token.isWords || i <= trustedEnd);
      if (isAllowed && this.#fits(text, at, token)) found = token;
      if (i >= text.length) break;
      node = node.children.get(text.charCodeAt(i));
    }
    return found;
  }

  #fits(text: string, at: number, token: AddedToken): boolean {
    if (!token.singleWord) return true;
    const after = at + token.text.length;
    return (
      !WORD_BEFORE.test(text.slice(Math.max(0, at - 2), at)) &&
      !WORD_AFTER.test(text.slice(after, after + 2))
    );
  }
}

/** Encodes plain text without special tokens. */
export interface PlainTextModel {
  encode(text: string, ids: number[], check: () => void): void;
}

/** Splits at special tokens and leaves the rest to a plain model: this is all of encoding for GGUF and llama2.c. */
export class SpecialTextModel implements TextModel {
  readonly #splitter: SpecialSplitter;
  readonly #plain: PlainTextModel;

  constructor(tokens: readonly AddedToken[], plain: PlainTextModel) {
    this.#splitter = new SpecialSplitter(tokens);
    this.#plain = plain;
  }

  encode(text: string, trusted: Trusted, ids: number[], check: () => void): void {
    for (const fragment of this.#splitter.split(text, trusted, check)) {
      if (typeof fragment === "number") ids.push(fragment);
      else this.#plain.encode(fragment, ids, check);
    }
  }
}

function isSpace(text: string, at: number): boolean {
  return WHITE_SPACE.test(text[at]!); // every white-space character is one UTF-16 unit
}
