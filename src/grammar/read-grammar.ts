// From a source of any kind to rules, and from rules to positions. It needs a tokenizer for the tokens that a source names, and no more
// of the vocabulary: the text thread does this too.

import type { GrammarSource, JsonSchemaOptions } from "../api/grammar-source.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { checkSource } from "./check-source.ts";
import { addComposed, ControlTokens, isComposed } from "./compose.ts";
import { GrammarError, GrammarSizeError } from "./errors.ts";
import { readGbnf } from "./gbnf.ts";
import { readJsonSchema } from "./json-schema/read.ts";
import type { Budget } from "./meter.ts";
import { either, literal, type Node, Rules, sequence, text } from "./nodes.ts";
import type { PositionTable } from "./position-table.ts";
import { positionsOf } from "./positions.ts";
import { reasoningNode } from "./reasoning.ts";
import { plainCharacters } from "./regex/code-points.ts";
import type { Expressions } from "./regex/expressions.ts";
import { patternLanguage } from "./regex/pattern-language.ts";
import { addTags } from "./tags.ts";

/** For compiling a grammar: most of a second. Nine of ten schemas need a thousandth of it. */
const MOST_TO_COMPILE: Budget = { steps: 600_000, bytes: 160 << 20 };

export interface ReadGrammar {
  readonly positions: PositionTable;
  /** Constraints that the source mentions and the grammar does not enforce, each with its path. */
  readonly notes: readonly string[];
  /** It has strings of JSON. */
  readonly hasSchema: boolean;
}

export class GrammarReader {
  readonly #tokenizer: Tokenizer;
  readonly #schemaOptions: JsonSchemaOptions;
  #controls: ControlTokens | undefined;
  #of!: Expressions;
  #rules!: Rules;
  #notes: string[] = [];
  #hasSchema = false;

  readonly #controlIds: readonly number[] | undefined;

  /**
   * @param schemaOptions Of schemas that have none of their own.
   * @param controlIds See ControlTokens.
   */
  constructor(
    tokenizer: Tokenizer,
    schemaOptions: JsonSchemaOptions,
    controlIds?: readonly number[],
  ) {
    this.#tokenizer = tokenizer;
    this.#schemaOptions = schemaOptions;
    this.#controlIds = controlIds;
  }

  /** Refuses a source that is wrong, and one that needs more than the budget. */
  read(source: GrammarSource, of: Expressions, budget: Budget = MOST_TO_COMPILE): ReadGrammar {
    of.meter.at = "";
    of.meter.begin(budget);
    this.#of = of;
    this.#rules = new Rules();
    this.#notes = [];
    this.#hasSchema = false;
    try {
      checkSource(source, of.meter);
      this.#read(source);
      const positions = positionsOf(this.#rules, of);
      return { positions, notes: this.#notes, hasSchema: this.#hasSchema };
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new GrammarSizeError("grammar: it is nested too deep. Use fewer levels", {
        cause: error,
      });
    }
  }

  #read(source: GrammarSource): void {
    const rules = this.#rules;
    if ("gbnf" in source) {
      this.#gbnf(source.gbnf);
      return;
    }
    rules.add("root");
    if ("reasoning" in source && "gbnf" in source.content) {
      const answer = rules.count; // where the root of the GBNF will be
      this.#gbnf(source.content.gbnf);
      const before = reasoningNode(source.reasoning, this.#of, (mark) => this.#controlToken(mark));
      rules.set(0, sequence(before, { kind: "rule", rule: answer }));
      return;
    }
    rules.set(0, this.#node(source));
  }

  #gbnf(source: string): void {
    const { vocabSize } = this.#tokenizer;
    readGbnf(source, this.#of, vocabSize, (name) => this.#oneToken(name), this.#rules);
  }

  #node(source: GrammarSource): Node {
    const of = this.#of;
    if ("schema" in source) {
      this.#hasSchema = true;
      const options = { ...this.#schemaOptions, ...source.schemaOptions };
      return readJsonSchema(source.schema, of, this.#rules, this.#notes, options);
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
      return addTags(source.tags, of, (inner) => this.#node(inner));
    }
    if ("reasoning" in source) {
      const before = reasoningNode(source.reasoning, of, (mark) => this.#controlToken(mark));
      return sequence(before, this.#node(source.content));
    }
    if (isComposed(source)) {
      this.#controls ??= new ControlTokens(this.#tokenizer, this.#controlIds);
      return addComposed(source, of, this.#controls, (inner) => this.#node(inner));
    }
    throw new GrammarError(
      "grammar: tags and sequences cannot hold GBNF; use a schema, a regex or choices",
    );
  }

  /** The token of a mark that has no bytes of its own. */
  #controlToken(mark: string): number | undefined {
    const id = this.#oneToken(mark);
    if (id === undefined) return undefined;
    const hasBytes =
      this.#tokenizer.tokenBytes(id).length > 0 && !this.#tokenizer.isEndOfGeneration(id);
    return hasBytes ? undefined : id;
  }

  #oneToken(name: string): number | undefined {
    this.#of.meter.spend(10 + name.length);
    const ids = this.#tokenizer.encode(name, { addSpecial: false, parseSpecial: true });
    return ids.length === 1 ? ids[0] : this.#tokenizer.tokenId(name);
  }
}
