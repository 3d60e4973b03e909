// The rules of objects: known properties in the order of the schema, then other keys in any order.
//
// Parts follow each other by tails. A part consists of the index of the next property, the number of keys so far, as far as it
// matters, and the present ones of the keys of which an object must have some.

import { GrammarSizeError } from "../errors.ts";
import { either, literal, NEVER, type Node, type Rules, sequence } from "../nodes.ts";
import { type Expressions, INFINITE } from "../regex/expressions.ts";
import type { Normalizer } from "./normalize.ts";
import { type Both, both, type KeyRule, type MaybeBoth, type ObjectShape } from "./shapes.ts";
import type { StringLanguages } from "./strings.ts";

const MOST_KEY_GROUPS = 32;
/** Kinds of keys of which an object must have one. */
const MOST_SOME = 4;

/** The part of the writer that an object's rules use (write.ts). */
export interface RuleWriter {
  readonly of: Expressions;
  readonly rules: Rules;
  readonly normalizer: Normalizer;
  readonly strings: StringLanguages;
  readonly space: Node;
  readonly concise: boolean;
  value(all: MaybeBoth): Node;
  key(key: string): Node;
  comma(): Node;
  checkParts(count: number, path: string): void;
}

interface Property {
  readonly key: string;
  readonly value: MaybeBoth;
  readonly isRequired: boolean;
}

/** Keys that are in no `properties`: the form of the keys, and their values. */
interface OtherKeys {
  readonly language: number;
  readonly value: Both;
}

export function objectRule(writer: RuleWriter, shape: ObjectShape): number {
  const names = nameLanguage(writer, shape);
  const keys = knownKeys(shape);
  const required = new Set(shape.required);
  const known = keys.map((key) => {
    const isAllowed = names === undefined || writer.strings.matches(names, key);
    const value = isAllowed ? writer.normalizer.valueOf(shape, key) : undefined;
    return { key, value, isRequired: required.has(key) };
  });
  const properties = known.filter(({ value, isRequired }) => value !== undefined || isRequired);
  const isClosed = writer.concise && isClosable(shape, properties.length);
  const others = isClosed ? [] : otherKeys(writer, shape, keys, names);
  return new ObjectRules(writer, shape, properties, others).write();
}

/** Whether an object can do without keys that are not listed: the schema speaks of none, and asks for none. */
function isClosable({ layers, low, some }: ObjectShape, listed: number): boolean {
  const isSilent = layers.every(({ patterns, isWhole }) => patterns.length === 0 && !isWhole);
  return listed > 0 && isSilent && low <= listed && some.length === 0;
}

function knownKeys(shape: ObjectShape): string[] {
  const keys = new Set<string>();
  for (const layer of shape.layers) for (const key of layer.properties.keys()) keys.add(key);
  for (const key of shape.required) keys.add(key);
  return [...keys];
}

function nameLanguage(writer: RuleWriter, shape: ObjectShape): number | undefined {
  if (shape.names.length === 0) return undefined;
  return writer.of.every(
    shape.names.map((name) => writer.strings.names(writer.normalizer.shapes(name))),
  );
}

/** Keys outside of `properties`, by the patterns that they match. Most patterns exclude each other, so there are few groups. */
function otherKeys(
  writer: RuleWriter,
  shape: ObjectShape,
  keys: readonly string[],
  names: number | undefined,
): OtherKeys[] {
  const { of, strings } = writer;
  const patterns = new Set(
    shape.layers.flatMap((layer) => layer.patterns.map(({ language }) => language)),
  );
  const parts = [strings.length(0, INFINITE)];
  if (keys.length > 0) parts.push(of.not(strings.oneOf(keys)));
  if (names !== undefined) parts.push(names);
  let groups: { language: number; matched: ReadonlySet<number> }[] = [
    { language: of.every(parts), matched: new Set() },
  ];
  for (const pattern of patterns) {
    groups = groups
      .flatMap(({ language, matched }) => [
        { language: of.and(language, of.not(pattern)), matched },
        { language: of.and(language, pattern), matched: new Set([...matched, pattern]) },
      ])
      .filter(({ language }) => of.alive(language));
    if (groups.length > MOST_KEY_GROUPS) {
      throw new GrammarSizeError(
        `json schema: ${shape.path}/patternProperties: ${patterns.size} patterns give more than ${MOST_KEY_GROUPS} groups of keys. Use patterns that exclude each other`,
      );
    }
  }
  return groups.flatMap(({ language, matched }) => {
    const value = shape.layers
      .map((layer) => valueOfOther(layer, matched))
      .reduce<MaybeBoth>(both, []);
    return value === undefined || !of.alive(language) ? [] : [{ language, value }];
  });
}

function valueOfOther(
  layer: ObjectShape["layers"][number],
  matched: ReadonlySet<number>,
): MaybeBoth {
  const rules = layer.patterns.filter(({ language }) => matched.has(language));
  if (rules.length === 0) return layer.rest;
  return rules.map((rule) => rule.both).reduce<MaybeBoth>(both, []);
}

class ObjectRules {
  readonly #writer: RuleWriter;
  readonly #shape: ObjectShape;
  readonly #properties: readonly Property[];
  readonly #others: readonly OtherKeys[];
  readonly #lastRequired: number;
  readonly #low: number;
  readonly #high: number;
  /** Counts beyond this one are all the same. */
  readonly #counted: number;
  /** A bit for each of the shape's `some`. */
  readonly #all: number;
  readonly #rules: Map<string, number> = new Map();
  readonly #pending: (() => void)[] = [];

  constructor(
    writer: RuleWriter,
    shape: ObjectShape,
    properties: readonly Property[],
    others: readonly OtherKeys[],
  ) {
    this.#writer = writer;
    this.#shape = shape;
    this.#properties = properties;
    this.#others = others;
    if (shape.some.length > MOST_SOME) {
      throw new GrammarSizeError(
        `json schema: ${shape.path}: ${shape.some.length} schemas that must not hold speak of its keys, expected at most ${MOST_SOME}`,
      );
    }
    const required = properties.filter(({ isRequired }) => isRequired).length;
    const most = others.length > 0 ? INFINITE : properties.length;
    this.#low = shape.low <= required ? 0 : shape.low;
    this.#high = shape.high >= most ? INFINITE : shape.high;
    this.#counted = Math.max(this.#low, this.#high === INFINITE ? 0 : this.#high);
    this.#all = (1 << shape.some.length) - 1;
    this.#lastRequired = properties.findLastIndex(({ isRequired }) => isRequired);
    writer.checkParts(properties.length * this.#counted * (this.#all + 1), shape.path);
  }

  write(): number {
    const { of, rules, space } = this.#writer;
    const start = rules.add(this.#shape.path);
    const inside = either([sequence(space, this.#keyAt(0, 0, 0)), ...this.#close(0, 0, 0)]);
    rules.set(start, sequence(literal(of, "{"), inside));
    for (const make of this.#pending) make();
    return start;
  }

  #part(id: string, make: () => Node): Node {
    let rule = this.#rules.get(id);
    if (rule === undefined) {
      this.#writer.of.meter.spend(2);
      const added = this.#writer.rules.add(this.#shape.path);
      this.#rules.set(id, added);
      this.#pending.push(() => this.#writer.rules.set(added, make()));
      rule = added;
    }
    return { kind: "tail", rule };
  }

  #close(at: number, count: number, found: number): Node[] {
    const isWhole = at > this.#lastRequired && count >= this.#low && found === this.#all;
    return isWhole ? [sequence(this.#writer.space, literal(this.#writer.of, "}"))] : [];
  }

  /** A comma and another key, or the end. */
  #rest(at: number, count: number, found: number): Node {
    const n = Math.min(count, this.#counted);
    return this.#part(`rest${at},${n},${found}`, () => {
      const more = sequence(this.#writer.comma(), this.#keyAt(at, n, found));
      return either([more, ...this.#close(at, n, found)]);
    });
  }

  /** A key from property `at` on must come; `count`: keys so far; `found`: which of `some` there are. */
  #keyAt(at: number, count: number, found: number): Node {
    return this.#part(`key${at},${count},${found}`, () => {
      if (count >= this.#high) return NEVER;
      const property = this.#properties[at];
      if (property === undefined) return either(this.#otherPairs(at, count, found));
      const pairs = this.#knownPairs(property, at, count, found);
      return either(property.isRequired ? pairs : [...pairs, this.#keyAt(at + 1, count, found)]);
    });
  }

  #knownPairs({ key, value }: Property, at: number, count: number, found: number): Node[] {
    const { strings } = this.#writer;
    const fitting = subsets(this.#all & ~found).filter((set) =>
      this.#some(set).every(({ language }) => strings.matches(language, key)),
    );
    return fitting.map((set) =>
      sequence(
        this.#writer.key(key),
        this.#writer.value(this.#valueOf(value, set)),
        this.#rest(at + 1, count + 1, found | set),
      ),
    );
  }

  #otherPairs(at: number, count: number, found: number): Node[] {
    const { of, strings, space } = this.#writer;
    const pairs: Node[] = [];
    for (const other of this.#others) {
      for (const set of subsets(this.#all & ~found)) {
        const wanted = this.#some(set).map(({ language }) => language);
        const language = of.every([other.language, ...wanted]);
        if (!of.alive(language)) continue;
        pairs.push(
          sequence(
            literal(of, '"'),
            { kind: "lexeme", expression: strings.closed(language) },
            literal(of, ":"),
            space,
            this.#writer.value(this.#valueOf(other.value, set)),
            this.#rest(at, count + 1, found | set),
          ),
        );
      }
    }
    return pairs;
  }

  #some(set: number): readonly KeyRule[] {
    return this.#shape.some.filter((_, i) => set & (1 << i));
  }

  #valueOf(value: MaybeBoth, set: number): MaybeBoth {
    return this.#some(set).reduce((all, one) => both(all, one.both), value);
  }
}

/** The sets of the bits, the empty one first. */
function subsets(bits: number): number[] {
  const sets = [0];
  for (let bit = 1; bit <= bits; bit <<= 1) {
    if (bits & bit) sets.push(...sets.map((set) => set | bit));
  }
  return sets;
}
