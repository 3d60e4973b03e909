// The compiled grammars of a tokenizer. A grammar is compiled once for all generations that use it; the least recently used ones
// are dropped. A generation keeps its own as long as it runs. The compiler's code is loaded with the first grammar.

import type { Grammar, GrammarCompiler } from "../grammar/grammar.ts";
import type { GrammarSource } from "../grammar/source.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";

/** How many are kept, and how many characters all their sources may have. */
const MOST_GRAMMARS = 32;
const MOST_CHARACTERS = 16_000_000;

export class Grammars {
  readonly #tokenizer: Tokenizer;
  #compiler: GrammarCompiler | undefined;
  /** By source, least recently used first. */
  readonly #kept: Map<string, Grammar> = new Map();
  #characters = 0;

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Throws a GrammarError, which names the keyword and its path, where the source is wrong or not supported. */
  async compile(source: GrammarSource): Promise<Grammar> {
    const { GrammarCompiler } = await import("../grammar/grammar.ts");
    const key = JSON.stringify(source);
    const known = this.#kept.get(key);
    if (known) {
      this.#kept.delete(key);
      this.#kept.set(key, known);
      return known;
    }
    this.#compiler ??= new GrammarCompiler(this.#tokenizer);
    const grammar = this.#compiler.compile(source);
    this.#kept.set(key, grammar);
    this.#characters += key.length;
    for (const [oldest] of this.#kept) {
      const isRoom = this.#kept.size <= MOST_GRAMMARS && this.#characters <= MOST_CHARACTERS;
      if (isRoom || oldest === key) break;
      this.#kept.delete(oldest);
      this.#characters -= oldest.length;
    }
    return grammar;
  }
}
