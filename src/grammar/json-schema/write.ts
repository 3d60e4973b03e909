// From shapes to rules of JSON text.
//
// Properties come in the order of the schema, then other keys in any order. Objects and arrays are rules of their own whose
// parts follow each other by tails, so that a list of any length needs no stack.

import { GrammarError, GrammarSizeError } from "../errors.ts";
import { either, literal, NEVER, type Node, type Rules, sequence, text } from "../nodes.ts";
import { EMPTY, EPSILON, type Expressions, INFINITE } from "../regex/expressions.ts";
import type { Normalizer } from "./normalize.ts";
import type { NumberLanguages } from "./numbers.ts";
import {
  type ArrayShape,
  type Both,
  both,
  type MaybeBoth,
  type ObjectShape,
  type Shape,
  valueOfItem,
} from "./shapes.ts";
import type { StringLanguages } from "./strings.ts";

/** Parts of one object or array, counted by state. */
const MOST_PARTS = 30_000;
const MOST_KEY_PATTERNS = 8;
const MOST_UNIQUE = 8;

export interface Writing {
  /** No spaces and line ends at all. */
  readonly compact: boolean;
}

/** Keys that are in no `properties`: what they look like, and their values. */
interface OtherKeys {
  readonly language: number;
  readonly value: Both;
}

export class SchemaWriter {
  readonly #of: Expressions;
  readonly #rules: Rules;
  readonly #normalizer: Normalizer;
  readonly #strings: StringLanguages;
  readonly #numbers: NumberLanguages;
  /** A lexeme, so that its many states and walks are made once for all grammars. */
  readonly #space: Node;
  readonly #values: Map<string, Node> = new Map();
  readonly #notes: string[];

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
    this.#of = of;
    this.#rules = rules;
    this.#normalizer = normalizer;
    this.#strings = strings;
    this.#numbers = numbers;
    this.#space = writing.compact ? text(EPSILON) : { kind: "lexeme", expression: this.#spaces() };
  }

  /** Nothing, a space, or one or two line ends with an indentation: as much as llama.cpp allows. */
  #spaces(): number {
    const of = this.#of;
    const ascii = (value: string): number => of.literal(new TextEncoder().encode(value));
    const indent = of.repeat(of.or(ascii(" "), ascii("\t")), 0, 20);
    return of.or(EPSILON, ascii(" "), of.concat(of.repeat(ascii("\n"), 1, 2), indent));
  }

  #ascii(value: string): number {
    return this.#of.literal(new TextEncoder().encode(value));
  }

  /** Values for which all of these schemas hold. */
  value(all: MaybeBoth): Node {
    if (all === undefined) return NEVER;
    const key = all.join();
    const known = this.#values.get(key);
    if (known) return known;
    const shapes = this.#normalizer.shapes(all);
    const isSimple = shapes.every(
      ({ type }) => type !== "array" && type !== "object" && type !== "const",
    );
    if (isSimple) {
      const node = either(shapes.map((shape) => this.#shape(shape)));
      this.#values.set(key, node);
      return node;
    }
    const rule = this.#rules.add(this.#name(all));
    const node: Node = { kind: "rule", rule };
    this.#values.set(key, node); // before its parts, which may refer to it
    this.#rules.set(rule, either(shapes.map((shape) => this.#shape(shape))));
    return node;
  }

  #name(all: Both): string {
    if (all.length === 0) return "any value";
    return this.#normalizer.documents.path(
      this.#normalizer.documents.schema(Math.abs(all[0]!) - 1),
    );
  }

  #shape(shape: Shape): Node {
    switch (shape.type) {
      case "null":
        return literal(this.#of, "null");
      case "boolean":
        return either([literal(this.#of, "true"), literal(this.#of, "false")]);
      case "const":
        return this.#constant(shape.value);
      case "number":
        return { kind: "lexeme", expression: this.#numbers.language(shape, "#") };
      case "string":
        return this.#string(this.#strings.all(shape.languages, shape.low, shape.high));
      case "array":
        return { kind: "rule", rule: this.#array(shape) };
      case "object":
        return { kind: "rule", rule: this.#object(shape) };
      default:
        return shape satisfies never;
    }
  }

  #string(language: number): Node {
    if (!this.#of.alive(language)) return NEVER;
    return sequence(literal(this.#of, '"'), {
      kind: "lexeme",
      expression: this.#strings.closed(language),
    });
  }

  #constant(value: unknown): Node {
    const space = this.#space;
    if (Array.isArray(value)) {
      const items = value.flatMap((item, i) => [
        ...(i > 0 ? [this.#comma()] : []),
        this.#constant(item),
      ]);
      return sequence(literal(this.#of, "["), space, ...items, space, literal(this.#of, "]"));
    }
    if (typeof value === "object" && value !== null) {
      const items = Object.entries(value).flatMap(([key, item], i) => [
        ...(i > 0 ? [this.#comma()] : []),
        this.#key(key),
        this.#constant(item),
      ]);
      return sequence(literal(this.#of, "{"), space, ...items, space, literal(this.#of, "}"));
    }
    if (value === undefined) return NEVER;
    return literal(this.#of, JSON.stringify(value));
  }

  #comma(): Node {
    return sequence(literal(this.#of, ","), this.#space);
  }

  #key(key: string): Node {
    const of = this.#of;
    const quoted = of.sequence(this.#ascii('"'), this.#strings.exact(key), this.#ascii('":'));
    return sequence(text(quoted), this.#space);
  }

  // ---- arrays

  #array(shape: ArrayShape): number {
    const { layers, low, high, contains } = shape;
    const unique = shape.unique && high > 1 ? this.#uniqueArray(shape) : undefined;
    if (unique !== undefined) return unique;
    const prefix = Math.max(0, ...layers.map((layer) => layer.prefix.length));
    if (contains.length > 1) {
      throw new GrammarError(
        `json schema: ${shape.path}/contains: more than one at once is not supported`,
      );
    }
    const wanted = contains[0];
    // States: how many items there are, up to where it no longer matters, and how many of them are `contains`.
    const most = Math.max(prefix, low, high === INFINITE ? 0 : high);
    const need = wanted?.low ?? 0;
    this.#checkParts(most * (need + 1), shape.path);
    const rules = new Map<number, number>();
    const next = (count: number, found: number): Node => {
      const state = Math.min(count, most) * (need + 1) + found;
      let rule = rules.get(state);
      if (rule === undefined) {
        rule = this.#rules.add(shape.path);
        rules.set(state, rule);
        pending.push([rule, Math.min(count, most), found]);
      }
      return { kind: "tail", rule };
    };
    const pending: [rule: number, count: number, found: number][] = [];
    const items = (count: number, found: number): Node[] => {
      if (count >= high) return [];
      const item = valueOfItem(layers, count);
      const choices = [sequence(this.value(item), next(count + 1, found))];
      if (wanted && found < need) {
        choices.push(sequence(this.value(both(item, wanted.both)), next(count + 1, found + 1)));
      }
      return choices;
    };
    const close = (count: number, found: number): Node[] =>
      count >= low && found >= need ? [sequence(this.#space, literal(this.#of, "]"))] : [];
    const start = this.#rules.add(shape.path);
    const first = either([sequence(this.#space, either(items(0, 0))), ...close(0, 0)]);
    this.#rules.set(start, sequence(literal(this.#of, "["), first));
    for (const [rule, count, found] of pending) {
      this.#rules.set(
        rule,
        either([sequence(this.#comma(), either(items(count, found))), ...close(count, found)]),
      );
    }
    return start;
  }

  /** Different items of a short list of constants: a state for each set of items that are used up. */
  #uniqueArray(shape: ArrayShape): number | undefined {
    const values = this.#normalizer.shapes(valueOfItem(shape.layers, 0));
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
    const space = this.#space;
    const states = Array.from({ length: 1 << constants.length }, () => this.#rules.add(shape.path));
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
      const more = sequence(used === 0 ? space : this.#comma(), either(choices));
      const close = sequence(space, literal(this.#of, "]"));
      this.#rules.set(rule, either(count >= shape.low ? [more, close] : [more]));
    }
    const start = this.#rules.add(shape.path);
    this.#rules.set(start, sequence(literal(this.#of, "["), { kind: "tail", rule: states[0]! }));
    return start;
  }

  #checkParts(count: number, path: string): void {
    if (count <= MOST_PARTS) return;
    throw new GrammarSizeError(
      `json schema: ${path}: ${count} items or counted properties, expected at most ${MOST_PARTS}`,
    );
  }

  // ---- objects

  #object(shape: ObjectShape): number {
    const names = this.#nameLanguage(shape);
    const keys = this.#knownKeys(shape);
    const known = keys.map((key) => {
      const isAllowed = names === undefined || this.#strings.matches(names, key);
      return {
        key,
        value: isAllowed ? this.#normalizer.valueOf(shape, key) : undefined,
        isRequired: shape.required.includes(key),
      };
    });
    const others = this.#otherKeys(shape, keys, names);
    return this.#objectRules(shape, known, others);
  }

  #knownKeys(shape: ObjectShape): string[] {
    const keys = new Set<string>();
    for (const layer of shape.layers) for (const key of layer.properties.keys()) keys.add(key);
    for (const key of shape.required) keys.add(key);
    return [...keys];
  }

  #nameLanguage(shape: ObjectShape): number | undefined {
    let language: number | undefined;
    for (const name of shape.names) {
      const allowed = this.#normalizer.shapes(name).map((inner) => {
        if (inner.type === "string")
          return this.#strings.all(inner.languages, inner.low, inner.high);
        if (inner.type !== "const" || typeof inner.value !== "string") return EMPTY;
        return this.#strings.exact(inner.value);
      });
      const any = this.#of.any(allowed);
      language = language === undefined ? any : this.#of.and(language, any);
    }
    return language;
  }

  /** Keys outside of `properties`, by which patterns they match. */
  #otherKeys(shape: ObjectShape, keys: readonly string[], names: number | undefined): OtherKeys[] {
    const of = this.#of;
    const patterns = [
      ...new Set(shape.layers.flatMap((layer) => layer.patterns.map(({ language }) => language))),
    ];
    if (patterns.length > MOST_KEY_PATTERNS) {
      throw new GrammarSizeError(
        `json schema: ${shape.path}/patternProperties: ${patterns.length} patterns, expected at most ${MOST_KEY_PATTERNS}`,
      );
    }
    const unknown = this.#strings.length(0, INFINITE);
    const isKnown = this.#strings.oneOf(keys);
    const result: OtherKeys[] = [];
    for (let matched = 0; matched < 1 << patterns.length; matched++) {
      let value: MaybeBoth = [];
      for (const layer of shape.layers) value = both(value, valueOfOther(layer, patterns, matched));
      if (value === undefined) continue;
      const parts = patterns.map((language, i) =>
        matched & (1 << i) ? language : of.not(language),
      );
      if (matched === 0) parts.push(unknown);
      if (keys.length > 0) parts.push(of.not(isKnown));
      if (names !== undefined) parts.push(names);
      const language = of.every(parts);
      if (of.alive(language)) result.push({ language, value });
    }
    return result;
  }

  #objectRules(
    shape: ObjectShape,
    known: readonly { key: string; value: MaybeBoth; isRequired: boolean }[],
    others: readonly OtherKeys[],
  ): number {
    const of = this.#of;
    const properties = known.filter(({ value, isRequired }) => value !== undefined || isRequired);
    const required = properties.filter(({ isRequired }) => isRequired).length;
    const most = others.length > 0 ? INFINITE : properties.length;
    const low = shape.low <= required ? 0 : shape.low;
    const high = shape.high >= most ? INFINITE : shape.high;
    const counted = Math.max(low, high === INFINITE ? 0 : high);
    this.#checkParts(properties.length * counted, shape.path);
    const lastRequired = properties.findLastIndex(({ isRequired }) => isRequired);
    const close = (at: number, count: number): Node[] =>
      at > lastRequired && count >= low ? [sequence(this.#space, literal(of, "}"))] : [];

    // keyAt(i, n): a key from property i on must come; rest(i, n): a comma and that, or the end. n: keys so far.
    const rules = new Map<string, number>();
    const pending: (() => void)[] = [];
    const part = (name: string, at: number, count: number, make: () => Node): Node => {
      const id = `${name}${at},${count}`;
      let rule = rules.get(id);
      if (rule === undefined) {
        rule = this.#rules.add(shape.path);
        rules.set(id, rule);
        const added = rule;
        pending.push(() => this.#rules.set(added, make()));
      }
      return { kind: "tail", rule };
    };
    const rest = (at: number, count: number): Node =>
      part("rest", at, Math.min(count, counted), () => {
        const n = Math.min(count, counted);
        return either([sequence(this.#comma(), keyAt(at, n)), ...close(at, n)]);
      });
    const keyAt = (at: number, count: number): Node =>
      part("key", at, count, () => {
        if (count >= high) return NEVER;
        const property = properties[at];
        if (property === undefined)
          return either(this.#otherPairs(others, () => rest(at, count + 1)));
        const pair = sequence(
          this.#key(property.key),
          this.value(property.value),
          rest(at + 1, count + 1),
        );
        return property.isRequired ? pair : either([pair, keyAt(at + 1, count)]);
      });
    const start = this.#rules.add(shape.path);
    this.#rules.set(
      start,
      sequence(literal(of, "{"), either([sequence(this.#space, keyAt(0, 0)), ...close(0, 0)])),
    );
    for (const make of pending) make();
    return start;
  }

  #otherPairs(others: readonly OtherKeys[], rest: () => Node): Node[] {
    return others.map(({ language, value }) =>
      sequence(
        literal(this.#of, '"'),
        { kind: "lexeme", expression: this.#strings.closed(language) },
        literal(this.#of, ":"),
        this.#space,
        this.value(value),
        rest(),
      ),
    );
  }
}

function valueOfOther(
  layer: ObjectShape["layers"][number],
  patterns: readonly number[],
  matched: number,
): MaybeBoth {
  let value: MaybeBoth = [];
  let isKnown = false;
  for (const pattern of layer.patterns) {
    if (!(matched & (1 << patterns.indexOf(pattern.language)))) continue;
    value = both(value, pattern.both);
    isKnown = true;
  }
  return isKnown ? value : layer.rest;
}
