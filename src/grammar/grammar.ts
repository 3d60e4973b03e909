// Compiles grammars for one vocabulary: GBNF, JSON Schema, a regular expression, a list of choices, structural tags.
//
//   const compiler = new GrammarCompiler(tokenizer);      // once for each tokenizer: the trie of all tokens
//   const grammar = compiler.compile({ schema });         // milliseconds
//   const state = grammar.start();                        // one for each generation
//   state.mask(bits); state.accept(token); ...
//
// The pool that the grammars of a vocabulary share (the trie, expressions, lexemes and their walks) is kept here; when it has grown
// large, new grammars get a new one, and the old one lives as long as its grammars.

import type { GrammarSource, JsonSchemaOptions } from "../api/grammar-source.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { stringBody } from "./json-schema/strings.ts";
import { LexemeWalks } from "./lexeme-walks.ts";
import { Lexemes } from "./lexemes.ts";
import type { Budget } from "./meter.ts";
import { Network } from "./network.ts";
import { NetworkWalks } from "./network-walks.ts";
import { NodeSets } from "./node-sets.ts";
import { type Program, readProgram } from "./program.ts";
import { GrammarReader, type ReadGrammar } from "./read-grammar.ts";
import { Expressions } from "./regex/expressions.ts";
import { PatternTrigger } from "./regex/pattern-trigger.ts";
import { GrammarState, type Machine } from "./state.ts";
import type { TokenTrie } from "./trie.ts";
import { buildTrie } from "./trie-build.ts";

/** The data that all grammars of a vocabulary share. */
interface Pool {
  readonly of: Expressions;
  readonly lexemes: Lexemes;
  readonly sets: NodeSets;
  readonly lexemeWalks: LexemeWalks;
}

/** A pool beyond these sizes is replaced before the next grammar. */
const LARGE = { expressions: 400_000, walks: 8_000, sets: 200_000, setBytes: 64 << 20 };

const UNLIMITED: Budget = { steps: Number.POSITIVE_INFINITY, bytes: Number.POSITIVE_INFINITY };

export class Grammar {
  readonly #machine: Machine;
  /** Constraints that the source mentions and the grammar does not enforce, each with its path. */
  readonly notes: readonly string[];

  constructor(machine: Machine, notes: readonly string[]) {
    this.#machine = machine;
    this.notes = notes;
  }

  /** Memory that it has of its own by now; it grows as texts are written. */
  get bytes(): number {
    return this.#machine.network.bytes + this.#machine.walks.bytes;
  }

  /** Words of 32 bits that `mask` writes. */
  get maskWords(): number {
    return this.#machine.trie.maskWords;
  }

  /** The tokens that end a generation. */
  get endTokens(): readonly number[] {
    return this.#machine.trie.endTokens;
  }

  start(): GrammarState {
    return new GrammarState(this.#machine);
  }

  /** The search for the start of a lazy grammar. */
  trigger(pattern: string): PatternTrigger {
    return new PatternTrigger(pattern);
  }
}

export class GrammarCompiler {
  readonly #trie: TokenTrie;
  readonly #reader: GrammarReader;
  #pool: Pool | undefined;

  /** @param schemaOptions Of schemas that have none of their own. */
  constructor(
    tokenizer: Tokenizer,
    schemaOptions: JsonSchemaOptions = {},
    trie: TokenTrie = allOf(buildTrie(tokenizer)),
  ) {
    this.#trie = trie;
    this.#reader = new GrammarReader(tokenizer, schemaOptions, trie.controlTokens);
  }

  /** The same in pieces, between which other work may run: a large vocabulary takes a second. */
  static *make(
    tokenizer: Tokenizer,
    schemaOptions: JsonSchemaOptions,
  ): Generator<void, GrammarCompiler> {
    return new GrammarCompiler(tokenizer, schemaOptions, yield* buildTrie(tokenizer));
  }

  /** Steps that all grammars of the current pool have taken, and texts written with them. */
  get steps(): number {
    return this.#pool?.of.meter.spent ?? 0;
  }

  /** Refuses a source that is wrong, and one that needs more than the budget. */
  compile(source: GrammarSource, budget?: Budget): Grammar {
    const pool = this.#currentPool();
    return this.#grammar(this.#reader.read(source, pool.of, budget), pool);
  }

  /** A grammar that another thread compiled: in pieces, between which other work may run. */
  *load(program: Program): Generator<void, Grammar> {
    const pool = this.#currentPool();
    // The budget was asked where it was compiled.
    const read = yield* readProgram(program, pool.of, () => pool.of.meter.begin(UNLIMITED));
    pool.of.meter.begin(UNLIMITED);
    return this.#grammar(read, pool);
  }

  #grammar({ positions, notes, hasSchema }: ReadGrammar, pool: Pool): Grammar {
    if (hasSchema && !pool.lexemeWalks.hasReference) {
      pool.lexemeWalks.setReference(pool.lexemes.stateOf(stringBody(pool.of)));
    }
    const network = new Network(positions, pool.lexemes, pool.of);
    const walks = new NetworkWalks(this.#trie, pool.sets, network, pool.lexemeWalks);
    return new Grammar({ trie: this.#trie, ...pool, network, walks }, notes);
  }

  #currentPool(): Pool {
    const kept = this.#pool;
    if (
      kept &&
      kept.of.size < LARGE.expressions &&
      kept.lexemeWalks.size < LARGE.walks &&
      kept.sets.size < LARGE.sets &&
      kept.sets.bytes < LARGE.setBytes
    ) {
      return kept;
    }
    const of = new Expressions();
    const lexemes = new Lexemes(of);
    const sets = new NodeSets(this.#trie, of.meter);
    const lexemeWalks = new LexemeWalks(this.#trie, sets, lexemes);
    this.#pool = { of, lexemes, sets, lexemeWalks };
    return this.#pool;
  }
}

function allOf<T>(work: Generator<void, T>): T {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}
