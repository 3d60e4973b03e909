// Finds special and added tokens that are written in a text (<|im_start|>, </s>, a run of spaces that is one token) and
// cuts the text there. What lies between is left to the model's own algorithm.
//
// At every position the longest token wins, the leftmost position first. A trie over UTF-16 units keeps this linear,
// however many tokens there are (Llama 3 has 256).

import { ModelError } from "../base/errors.ts";
import type { TextModel } from "./text-tokenizer.ts";

export interface AddedToken {
  id: number;
  text: string;
  /** Swallow the whitespace before / after it. */
  stripLeft: boolean;
  stripRight: boolean;
  /** Only where no letter, digit or underscore touches it. */
  singleWord: boolean;
}

/** A stretch of plain text, or a token by its id. */
export type Fragment = string | number;

interface TrieNode {
  children: Map<number, TrieNode>;
  token: AddedToken | undefined;
}

/** Texts of special tokens, added up: each character is a node. Real models have some ten thousand. */
const MOST_UNITS = 4_000_000;
/** Positions between two looks at whether to go on. */
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

  /** Cuts `text` into fragments; no empty strings among them. */
  split(text: string, check: () => void = () => {}): Fragment[] {
    if (text === "") return [];
    const fragments: Fragment[] = [];
    let start = 0; // of the plain text that has not been handed out
    let at = 0;
    while (this.#root.children.size > 0 && at < text.length) {
      if (at % CHECK_UNITS === 0) check();
      const token = this.#match(text, at);
      if (token === undefined) {
        at++;
        continue;
      }
      let plainEnd = at;
      if (token.stripLeft) {
        while (plainEnd > start && isSpace(text, plainEnd - 1)) plainEnd--;
      }
      if (plainEnd > start) fragments.push(text.slice(start, plainEnd));
      fragments.push(token.id);
      at += token.text.length;
      if (token.stripRight) while (at < text.length && isSpace(text, at)) at++;
      start = at;
    }
    if (start < text.length) fragments.push(start === 0 ? text : text.slice(start));
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

  #match(text: string, at: number): AddedToken | undefined {
    let found: AddedToken | undefined;
    let node = this.#root.children.get(text.charCodeAt(at));
    for (let i = at + 1; node !== undefined; i++) {
      if (node.token !== undefined && this.#fits(text, at, node.token)) found = node.token;
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

/** Turns plain text, free of special tokens, into ids. */
export interface PlainTextModel {
  encode(text: string, ids: number[], check: () => void): void;
}

/** Cuts at special tokens and leaves the rest to a plain model: the whole of encoding for GGUF and llama2.c. */
export class SpecialTextModel implements TextModel {
  readonly #all: SpecialSplitter;
  readonly #textOnly: SpecialSplitter;
  readonly #plain: PlainTextModel;

  /** `isText`: recognised in untrusted text as well, since it stands for its own text. */
  constructor(
    tokens: readonly AddedToken[],
    isText: (token: AddedToken) => boolean,
    plain: PlainTextModel,
  ) {
    this.#all = new SpecialSplitter(tokens);
    this.#textOnly = new SpecialSplitter(tokens.filter(isText));
    this.#plain = plain;
  }

  encode(text: string, parseSpecial: boolean, ids: number[], check: () => void): void {
    const splitter = parseSpecial ? this.#all : this.#textOnly;
    for (const fragment of splitter.split(text, check)) {
      if (typeof fragment === "number") ids.push(fragment);
      else this.#plain.encode(fragment, ids, check);
    }
  }
}

function isSpace(text: string, at: number): boolean {
  return WHITE_SPACE.test(text[at]!); // every white-space character is one UTF-16 unit
}
