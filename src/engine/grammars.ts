// The compiled grammars of a tokenizer. A grammar is compiled once for all generations that use it; the least recently used ones
// are dropped. A generation keeps its own as long as it runs. The compiler's code is loaded with the first grammar.

import type { GrammarSource } from "../api/grammar-source.ts";
import type { Grammar, GrammarCompiler } from "../grammar/grammar.ts";
import type { Program } from "../grammar/program.ts";
import { type GrammarText, sourceOfText, textOfSource } from "../grammar/source.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";

/** The engine's thread may spend a few milliseconds on compiling. Other threads compile larger grammars. */
const LITTLE = { steps: 5000, bytes: 16 << 20 };
/** Longer sources are not even tried. */
const LITTLE_SOURCE = 20_000;

/** Limits of the kept grammars: their number, the characters of their sources together, and their memory together. */
const MOST_GRAMMARS = 32;
const MOST_CHARACTERS = 16_000_000;
const MOST_BYTES = 256 << 20;

/** The options of schemas of generations. */
export const schemaOptions = { concise: true } as const;

/** Lets other work of the thread run. */
type Breathe = () => Promise<void>;

export class Grammars {
  readonly #tokenizer: Tokenizer;
  readonly #mostBytes: number;
  #compiler: Promise<GrammarCompiler> | undefined;
  /** The kept grammars by source, least recently used first. */
  readonly #kept: Map<string, Grammar> = new Map();
  #characters = 0;

  constructor(tokenizer: Tokenizer, mostBytes: number = MOST_BYTES) {
    this.#tokenizer = tokenizer;
    this.#mostBytes = mostBytes;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** The memory of the kept grammars, without the part that grammars of a vocabulary share. */
  get bytes(): number {
    let bytes = 0;
    for (const grammar of this.#kept.values()) bytes += grammar.bytes;
    return bytes;
  }

  /** Throws a GrammarError, which names the keyword and its path, where the source is wrong or not supported. */
  async compile(source: GrammarSource | GrammarText, yieldThread?: Breathe): Promise<Grammar> {
    const key = keyOf(source);
    const known = this.#kept.get(key);
    const compiler = await this.#loadedCompiler(yieldThread);
    return this.#keep(key, known ?? compiler.compile(read(source)));
  }

  /** The same, unless it takes more than a few milliseconds: undefined. */
  async compileLittle(
    source: GrammarSource | GrammarText,
    yieldThread?: Breathe,
  ): Promise<Grammar | undefined> {
    const key = keyOf(source);
    const { GrammarBudgetError } = await import("../grammar/errors.ts");
    const compiler = await this.#loadedCompiler(yieldThread);
    const known = this.#kept.get(key);
    if (known) return this.#keep(key, known);
    if (key.length > LITTLE_SOURCE) return undefined;
    try {
      return this.#keep(key, compiler.compile(read(source), LITTLE));
    } catch (error) {
      if (error instanceof GrammarBudgetError) return undefined;
      throw error;
    }
  }

  /** Takes over a grammar that another thread compiled, in pieces: `yieldThread` lets other work run. */
  async load(
    source: GrammarSource | GrammarText,
    program: Program,
    yieldThread: Breathe,
  ): Promise<Grammar> {
    const loading = (await this.#loadedCompiler(yieldThread)).load(program);
    return this.#keep(keyOf(source), await inPieces(loading, yieldThread));
  }

  #loadedCompiler(yieldThread: Breathe = () => Promise.resolve()): Promise<GrammarCompiler> {
    this.#compiler ??= this.#makeCompiler(yieldThread);
    return this.#compiler;
  }

  async #makeCompiler(yieldThread: Breathe): Promise<GrammarCompiler> {
    const { GrammarCompiler } = await import("../grammar/grammar.ts");
    return await inPieces(GrammarCompiler.make(this.#tokenizer, schemaOptions), yieldThread);
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
      const isCapacity =
        this.#kept.size <= MOST_GRAMMARS &&
        this.#characters <= MOST_CHARACTERS &&
        bytes <= this.#mostBytes;
      if (isCapacity || oldest === newest) return;
      this.#kept.delete(oldest);
      this.#characters -= oldest.length;
      bytes -= grammar.bytes;
    }
  }
}

function keyOf(source: GrammarSource | GrammarText): GrammarText {
  return typeof source === "string" ? source : textOfSource(source);
}

function read(source: GrammarSource | GrammarText): GrammarSource {
  return typeof source === "string" ? sourceOfText(source) : source;
}

async function inPieces<T>(work: Generator<void, T>, yieldThread: Breathe): Promise<T> {
  let step = work.next();
  for (; !step.done; step = work.next()) await yieldThread();
  return step.value;
}
