// Compiles grammars for one vocabulary: GBNF, JSON Schema, a regular expression, a list of choices, structural tags.
//
//   const compiler = new GrammarCompiler(tokenizer);      // once for each tokenizer: the trie of all tokens
//   const grammar = compiler.compile({ schema });         // milliseconds
//   const state = grammar.start();                        // one for each generation
//   state.mask(bits); state.accept(token); ...
//
// What the grammars of a vocabulary share (the trie, expressions, lexemes and their walks) is kept here; when it has grown
// large, new grammars get a new one, and the old one lives as long as its grammars.

import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { checkSource } from "./check-source.ts";
import { addComposed, ControlTokens, isComposed } from "./compose.ts";
import { GrammarError, GrammarSizeError } from "./errors.ts";
import { readGbnf } from "./gbnf.ts";
import { type JsonSchemaOptions, readJsonSchema } from "./json-schema/read.ts";
import { stringBody } from "./json-schema/strings.ts";
import { LexemeWalks } from "./lexeme-walks.ts";
import { Lexemes } from "./lexemes.ts";
import { Network } from "./network.ts";
import { NetworkWalks } from "./network-walks.ts";
import { NodeSets } from "./node-sets.ts";
import { either, literal, type Node, Rules, sequence, text } from "./nodes.ts";
import { Positions } from "./positions.ts";
import { reasoningNode } from "./reasoning.ts";
import { plainCharacters } from "./regex/code-points.ts";
import { Expressions } from "./regex/expressions.ts";
import { patternLanguage } from "./regex/pattern-language.ts";
import { PatternTrigger } from "./regex/pattern-trigger.ts";
import type { GrammarSource } from "./source.ts";
import { GrammarState, type Machine } from "./state.ts";
import { addTags } from "./tags.ts";
import { TokenTrie } from "./trie.ts";

/** What all grammars of a vocabulary share. */
interface Pool {
  readonly of: Expressions;
  readonly lexemes: Lexemes;
  readonly sets: NodeSets;
  readonly lexemeWalks: LexemeWalks;
}

/** A pool beyond these sizes is replaced before the next grammar. */
const LARGE = { expressions: 400_000, walks: 8_000, sets: 200_000, setBytes: 64 << 20 };

/** Steps of expressions, a second or two. Nine of ten schemas need fewer than a hundred. */
const MOST_COMPILE_STEPS = 1_000_000;

export class Grammar {
  readonly #machine: Machine;
  /** What the grammar does not enforce though its source mentions it, each with its path. */
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

  /** What finds the place where a lazy grammar begins. */
  trigger(pattern: string): PatternTrigger {
    return new PatternTrigger(pattern);
  }
}

export class GrammarCompiler {
  readonly #tokenizer: Tokenizer;
  readonly #trie: TokenTrie;
  #pool: Pool | undefined;
  #controls: ControlTokens | undefined;
  readonly #schemaOptions: JsonSchemaOptions;

  /** @param schemaOptions Of schemas that have none of their own. */
  constructor(tokenizer: Tokenizer, schemaOptions: JsonSchemaOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#schemaOptions = schemaOptions;
    this.#trie = new TokenTrie(tokenizer);
  }

  compile(source: GrammarSource): Grammar {
    checkSource(source);
    try {
      return this.#compile(source);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new GrammarSizeError("grammar: it is nested too deep. Use fewer levels", {
        cause: error,
      });
    }
  }

  #compile(source: GrammarSource): Grammar {
    const pool = this.#currentPool();
    pool.of.limitSteps(MOST_COMPILE_STEPS);
    const notes: string[] = [];
    const rules = this.#read(source, pool, notes);
    const network = new Network(new Positions(rules, pool.of), pool.lexemes, pool.of);
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
    const sets = new NodeSets(this.#trie);
    const lexemeWalks = new LexemeWalks(this.#trie, sets, lexemes);
    this.#pool = { of, lexemes, sets, lexemeWalks };
    return this.#pool;
  }

  #read(source: GrammarSource, pool: Pool, notes: string[]): Rules {
    const { of } = pool;
    if ("gbnf" in source) {
      return readGbnf(source.gbnf, of, this.#trie.vocabSize, (name) => this.#oneToken(name));
    }
    const rules = new Rules();
    rules.add("root");
    if ("reasoning" in source && "gbnf" in source.content) {
      const answer = rules.count; // where the root of the GBNF will be
      const { gbnf } = source.content;
      readGbnf(gbnf, of, this.#trie.vocabSize, (name) => this.#oneToken(name), rules);
      const before = reasoningNode(source.reasoning, of, (mark) => this.#controlToken(mark));
      rules.set(0, sequence(before, { kind: "rule", rule: answer }));
      return rules;
    }
    rules.set(0, this.#node(source, pool, rules, notes));
    return rules;
  }

  #node(source: GrammarSource, pool: Pool, rules: Rules, notes: string[]): Node {
    const { of } = pool;
    if ("schema" in source) {
      if (!pool.lexemeWalks.hasReference) {
        pool.lexemeWalks.setReference(pool.lexemes.stateOf(stringBody(of)));
      }
      const options = { ...this.#schemaOptions, ...source.schemaOptions };
      return readJsonSchema(source.schema, of, rules, notes, options);
    }
    if ("regex" in source) {
      return text(patternLanguage(of, source.regex, plainCharacters(of), { whole: true }));
    }
    if ("choices" in source) {
      if (source.choices.length === 0)
        throw new GrammarError("grammar: the list of choices is empty");
      return either(source.choices.map((choice) => literal(of, choice)));
    }
    if ("tags" in source) {
      return addTags(source.tags, of, (inner) => this.#node(inner, pool, rules, notes));
    }
    if ("reasoning" in source) {
      const before = reasoningNode(source.reasoning, of, (mark) => this.#controlToken(mark));
      return sequence(before, this.#node(source.content, pool, rules, notes));
    }
    if (isComposed(source)) {
      this.#controls ??= new ControlTokens(this.#tokenizer);
      return addComposed(source, of, this.#controls, (inner) =>
        this.#node(inner, pool, rules, notes),
      );
    }
    throw new GrammarError(
      "grammar: tags and sequences cannot hold GBNF; use a schema, a regex or choices",
    );
  }

  /** The token of a mark that has no bytes of its own. */
  #controlToken(mark: string): number | undefined {
    const id = this.#oneToken(mark);
    return id !== undefined && this.#trie.bytesOf(id) === undefined ? id : undefined;
  }

  #oneToken(name: string): number | undefined {
    const ids = this.#tokenizer.encode(name, { addSpecial: false, parseSpecial: true });
    return ids.length === 1 ? ids[0] : this.#tokenizer.tokenId(name);
  }
}
