// The compiled grammars of a tokenizer. A grammar is compiled once for all generations that use it; the least recently used ones
// are dropped. A generation keeps its own as long as it runs. The compiler's code is loaded with the first grammar.

import type { Grammar, GrammarCompiler } from "../grammar/grammar.ts";
import type { Program } from "../grammar/program.ts";
import type { GrammarSource } from "../grammar/source.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";

/** What the engine's thread may spend on compiling: a few milliseconds. Other threads compile what needs more. */
const LITTLE = { steps: 5000, bytes: 16 << 20 };
/** Longer sources are not even tried. */
const LITTLE_SOURCE = 20_000;

/** How many are kept, how many characters all their sources may have, and how much memory they may take together. */
const MOST_GRAMMARS = 32;
const MOST_CHARACTERS = 16_000_000;
const MOST_BYTES = 256 << 20;

/** Of generations. */
export const schemaOptions = { concise: true } as const;

export class Grammars {
  readonly #tokenizer: Tokenizer;
  readonly #mostBytes: number;
  #compiler: GrammarCompiler | undefined;
  /** By source, least recently used first. */
  readonly #kept: Map<string, Grammar> = new Map();
  #characters = 0;

  constructor(tokenizer: Tokenizer, mostBytes: number = MOST_BYTES) {
    this.#tokenizer = tokenizer;
    this.#mostBytes = mostBytes;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Memory of those that are kept, without what grammars of a vocabulary share. */
  get bytes(): number {
    let bytes = 0;
    for (const grammar of this.#kept.values()) bytes += grammar.bytes;
    return bytes;
  }

  /** Throws a GrammarError, which names the keyword and its path, where the source is wrong or not supported. */
  async compile(source: GrammarSource): Promise<Grammar> {
    const key = JSON.stringify(source);
    const known = this.#kept.get(key);
    const compiler = await this.#loadedCompiler();
    return this.#keep(key, known ?? compiler.compile(source));
  }

  /** The same, unless it takes more than a few milliseconds: undefined. */
  async compileLittle(source: GrammarSource): Promise<Grammar | undefined> {
    const key = JSON.stringify(source);
    const { GrammarBudgetError } = await import("../grammar/errors.ts");
    const compiler = await this.#loadedCompiler();
    const known = this.#kept.get(key);
    if (known) return this.#keep(key, known);
    if (key.length > LITTLE_SOURCE) return undefined;
    try {
      return this.#keep(key, compiler.compile(source, LITTLE));
    } catch (error) {
      if (error instanceof GrammarBudgetError) return undefined;
      throw error;
    }
  }

  /** Takes over what another thread compiled, in pieces: `breathe` lets others go on. */
  async load(
    source: GrammarSource,
    program: Program,
    breathe: () => Promise<void>,
  ): Promise<Grammar> {
    const loading = (await this.#loadedCompiler()).load(program);
    let step = loading.next();
    for (; !step.done; step = loading.next()) await breathe();
    return this.#keep(JSON.stringify(source), step.value);
  }

  async #loadedCompiler(): Promise<GrammarCompiler> {
    const { GrammarCompiler } = await import("../grammar/grammar.ts");
    this.#compiler ??= new GrammarCompiler(this.#tokenizer, schemaOptions);
    return this.#compiler;
  }

  #keep(key: string, grammar: Grammar): Grammar {
    const known = this.#kept.has(key);
    if (known) this.#kept.delete(key);
    else this.#characters += key.length;
    this.#kept.set(key, grammar);
    this.#dropOldest(key);
    return grammar;
  }

  /** Grammars grow as they are used, so there may be too much of a sudden. */
  #dropOldest(newest: string): void {
    let { bytes } = this;
    for (const [oldest, grammar] of this.#kept) {
      const isRoom =
        this.#kept.size <= MOST_GRAMMARS &&
        this.#characters <= MOST_CHARACTERS &&
        bytes <= this.#mostBytes;
      if (isRoom || oldest === newest) return;
      this.#kept.delete(oldest);
      this.#characters -= oldest.length;
      bytes -= grammar.bytes;
    }
  }
}
