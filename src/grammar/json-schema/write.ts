// Turns shapes into rules of JSON text.
//
// Properties come in the order of the schema, then other keys in any order. Objects and arrays are rules of their own, with parts
// that follow each other by tail calls, so that a list of any length needs no stack.

import { GrammarSizeError } from "../errors.ts";
import {
  either,
  inOrder,
  literal,
  NEVER,
  type Node,
  type Rules,
  sequence,
  text,
} from "../nodes.ts";
import { EPSILON, type Expressions, INFINITE } from "../regex/expressions.ts";
import type { Normalizer } from "./normalize.ts";
import type { NumberLanguages } from "./numbers.ts";
import {
  type ArrayShape,
  type Both,
  both,
  type MaybeBoth,
  type NumberShape,
  type Shape,
  valueOfItem,
} from "./shapes.ts";
import type { StringLanguages } from "./strings.ts";
import { objectRule, type RuleWriter } from "./write-objects.ts";

/** Parts of one object or array, counted by state. */
const MOST_PARTS = 30_000;
const MOST_UNIQUE = 8;

export interface Writing {
  /** No spaces and line ends at all. */
  readonly compact: boolean;
  /** No keys and digits that the schema does not ask for. */
  readonly concise: boolean;
}

export class SchemaWriter implements RuleWriter {
  readonly of: Expressions;
  readonly rules: Rules;
  readonly normalizer: Normalizer;
  readonly strings: StringLanguages;
  readonly #numbers: NumberLanguages;
  readonly concise: boolean;
  /** A lexeme, so that its many states and walks are made once for all grammars. */
  readonly space: Node;
  readonly #values: Map<string, Node> = new Map();
  readonly #notes: string[];
  /** Rules that are written later, so that a schema may be as deep as it likes. */
  readonly #pending: (() => void)[] = [];

  constructor(
    of: Expressions,
    rules: Rules,
    normalizer: Normalizer,
    strings: StringLanguages,
    numbers: NumberLanguages,
    writing: Writing,
    notes: string[],
  ) {
    this.#notes = notes;
    this.of = of;
    this.rules = rules;
    this.normalizer = normalizer;
    this.strings = strings;
    this.#numbers = numbers;
    this.concise = writing.concise;
    this.space = writing.compact ? text(EPSILON) : { kind: "lexeme", expression: this.#spaces() };
  }

  /** No space, one, or one or two line ends with an indentation: the same as llama.cpp allows. */
  #spaces(): number {
    const of = this.of;
    const ascii = (value: string): number => of.literal(new TextEncoder().encode(value));
    const indent = of.repeat(of.or(ascii(" "), ascii("\t")), 0, 20);
    return of.or(EPSILON, ascii(" "), of.concat(of.repeat(ascii("\n"), 1, 2), indent));
  }

  #ascii(value: string): number {
    return this.of.literal(new TextEncoder().encode(value));
  }

  /** Values for which all of these schemas hold. */
  value(all: MaybeBoth): Node {
    if (all === undefined) return NEVER;
    const key = all.join();
    const known = this.#values.get(key);
    if (known) return known;
    const shapes = this.normalizer.shapes(all);
    const isSimple = shapes.every(
      ({ type }) => type !== "array" && type !== "object" && type !== "const",
    );
    if (isSimple) {
      const node = either(shapes.map((shape) => this.#shape(shape)));
      this.#values.set(key, node);
      return node;
    }
    const rule = this.rules.add(this.#name(all));
    const node: Node = { kind: "rule", rule };
    this.#values.set(key, node); // before its parts, which may refer to it
    this.#pending.push(() => {
      this.of.meter.at = () => this.rules.name(rule);
      this.rules.set(rule, either(shapes.map((shape) => this.#shape(shape))));
    });
    return node;
  }

  /** The same for the whole schema, with all its rules. */
  write(all: MaybeBoth): Node {
    const node = this.value(all);
    for (let make = this.#pending.pop(); make; make = this.#pending.pop()) make();
    return node;
  }

  #number(shape: NumberShape): number {
    const all = this.#numbers.language(shape, "#");
    return this.concise ? this.#numbers.concise(all) : all;
  }

  #name(all: Both): string {
    if (all.length === 0) return "any value";
    return this.normalizer.documents.path(this.normalizer.documents.schema(Math.abs(all[0]!) - 1));
  }

  #shape(shape: Shape): Node {
    switch (shape.type) {
      case "null":
        return literal(this.of, "null");
      case "boolean":
        return either([literal(this.of, "true"), literal(this.of, "false")]);
      case "const":
        return this.#constant(shape.value);
      case "number":
        return { kind: "lexeme", expression: this.#number(shape) };
      case "string":
        return this.#string(this.strings.all(shape.languages, shape.low, shape.high));
      case "array":
        return { kind: "rule", rule: this.#array(shape) };
      case "object":
        return { kind: "rule", rule: objectRule(this, shape) };
      default:
        return shape satisfies never;
    }
  }

  #string(language: number): Node {
    if (!this.of.alive(language)) return NEVER;
    return sequence(literal(this.of, '"'), {
      kind: "lexeme",
      expression: this.strings.closed(language),
    });
  }

  #constant(value: unknown): Node {
    this.of.meter.spend(1);
    const space = this.space;
    if (Array.isArray(value)) {
      const items = value.flatMap((item, i) => [
        ...(i > 0 ? [this.comma()] : []),
        this.#constant(item),
      ]);
      return inOrder([literal(this.of, "["), space, ...items, space, literal(this.of, "]")]);
    }
    if (typeof value === "object" && value !== null) {
      const items = Object.entries(value).flatMap(([key, item], i) => [
        ...(i > 0 ? [this.comma()] : []),
        this.key(key),
        this.#constant(item),
      ]);
      return inOrder([literal(this.of, "{"), space, ...items, space, literal(this.of, "}")]);
    }
    if (value === undefined) return NEVER;
    return literal(this.of, JSON.stringify(value));
  }

  comma(): Node {
    return sequence(literal(this.of, ","), this.space);
  }

  key(key: string): Node {
    const of = this.of;
    const quoted = of.sequence(this.#ascii('"'), this.strings.exact(key), this.#ascii('":'));
    return sequence(text(quoted), this.space);
  }

  // ---- arrays

  #array(shape: ArrayShape): number {
    const { layers, low, high, contains } = shape;
    const unique = shape.unique && high > 1 ? this.#uniqueArray(shape) : undefined;
    if (unique !== undefined) return unique;
    const prefix = Math.max(0, ...layers.map((layer) => layer.prefix.length));
    // States: the number of items, up to the point where it no longer matters, and the number of them that match each `contains`.
    const most = Math.max(prefix, low, high === INFINITE ? 0 : high);
    const states = contains.map((one) => (one.high === INFINITE ? one.low : one.high) + 1);
    this.checkParts(
      states.reduce((a, b) => a * b, Math.max(1, most)),
      shape.path,
    );
    const rules = new Map<string, number>();
    const next = (count: number, found: readonly number[]): Node => {
      const state = `${Math.min(count, most)};${found.join()}`;
      let rule = rules.get(state);
      if (rule === undefined) {
        rule = this.rules.add(shape.path);
        rules.set(state, rule);
        pending.push([rule, Math.min(count, most), found]);
      }
      return { kind: "tail", rule };
    };
    const pending: [rule: number, count: number, found: readonly number[]][] = [];
    const items = (count: number, found: readonly number[]): Node[] => {
      if (count >= high) return [];
      return this.#countedItems(valueOfItem(layers, count), contains, found).map(([item, now]) =>
        sequence(this.value(item), next(count + 1, now)),
      );
    };
    const close = (count: number, found: readonly number[]): Node[] =>
      count >= low && contains.every((one, i) => found[i]! >= one.low)
        ? [sequence(this.space, literal(this.of, "]"))]
        : [];
    const start = this.rules.add(shape.path);
    const none = contains.map(() => 0);
    const first = either([sequence(this.space, either(items(0, none))), ...close(0, none)]);
    this.rules.set(start, sequence(literal(this.of, "["), first));
    for (const [rule, count, found] of pending) {
      this.of.meter.spend(2);
      this.rules.set(
        rule,
        either([sequence(this.comma(), either(items(count, found))), ...close(count, found)]),
      );
    }
    return start;
  }

  /** The form of an item, and the count of each `contains` after it. */
  #countedItems(
    item: MaybeBoth,
    contains: ArrayShape["contains"],
    found: readonly number[],
  ): [MaybeBoth, readonly number[]][] {
    let choices: [MaybeBoth, readonly number[]][] = [[item, []]];
    for (const [i, { both: one, low, high }] of contains.entries()) {
      const count = found[i]!;
      choices = choices.flatMap(([value, now]): [MaybeBoth, readonly number[]][] => {
        // If only the least count matters, an item that is not counted may be anything.
        if (high === INFINITE) {
          const other: [MaybeBoth, readonly number[]] = [value, [...now, count]];
          return count >= low ? [other] : [other, [both(value, one), [...now, count + 1]]];
        }
        const other = this.normalizer
          .turnedAll(one)
          .map((opposite): [MaybeBoth, readonly number[]] => [
            both(value, opposite),
            [...now, count],
          ]);
        return count >= high ? other : [...other, [both(value, one), [...now, count + 1]]];
      });
    }
    return choices.filter(([value]) => value !== undefined);
  }

  /** Different items of a short list of constants: a state for each set of items that are used up. */
  #uniqueArray(shape: ArrayShape): number | undefined {
    const values = this.normalizer.shapes(valueOfItem(shape.layers, 0));
    const constants = values.flatMap((value) => (value.type === "const" ? [value.value] : []));
    const isShort =
      constants.length === values.length &&
      constants.length <= MOST_UNIQUE &&
      shape.contains.length === 0 &&
      shape.layers.every((layer) => layer.prefix.length === 0);
    if (!isShort) {
      // No grammar remembers items of any text.
      const note = `${shape.path}/uniqueItems: is enforced only for items from an enum of at most ${MOST_UNIQUE} values`;
      if (!this.#notes.includes(note)) this.#notes.push(note);
      return undefined;
    }
    const space = this.space;
    const states = Array.from({ length: 1 << constants.length }, () => this.rules.add(shape.path));
    for (const [used, rule] of states.entries()) {
      const count = [...used.toString(2)].filter((bit) => bit === "1").length;
      const choices = constants.flatMap((value, i) =>
        used & (1 << i) || count >= shape.high
          ? []
          : [
              sequence(this.#constant(value), {
                kind: "tail",
                rule: states[used | (1 << i)]!,
              } as const),
            ],
      );
      const more = sequence(used === 0 ? space : this.comma(), either(choices));
      const close = sequence(space, literal(this.of, "]"));
      this.rules.set(rule, either(count >= shape.low ? [more, close] : [more]));
    }
    const start = this.rules.add(shape.path);
    this.rules.set(start, sequence(literal(this.of, "["), { kind: "tail", rule: states[0]! }));
    return start;
  }

  checkParts(count: number, path: string): void {
    if (count <= MOST_PARTS) return;
    throw new GrammarSizeError(
      `json schema: ${path}: ${count} items or counted properties, expected at most ${MOST_PARTS}`,
    );
  }
}
