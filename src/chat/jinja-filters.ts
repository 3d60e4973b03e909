// Filters and methods of Jinja and Python that @huggingface/jinja lacks or computes differently, on the library's own values.
// jinja-gaps.ts rewrites them to calls: the operand comes first, then the positional arguments, then the named ones.

import { isTrue, truth } from "./jinja-tests.ts";
import {
  type Costs,
  type JinjaFunction,
  type JinjaValue,
  listOf,
  type Wrap,
} from "./jinja-values.ts";
import {
  changed,
  giveMarks,
  type Marked,
  markedOf,
  pythonMarked,
  slice,
  stretches,
} from "./marks.ts";

type Keywords = ReadonlyMap<string, JinjaValue>;

/** Splits the arguments of a call into positional and named ones. */
export function splitArgs(args: readonly JinjaValue[]): [readonly JinjaValue[], Keywords] {
  const last = args.at(-1);
  if (last?.type !== "KeywordArgumentsValue") return [args, new Map()];
  return [args.slice(0, -1), last.value as Keywords];
}

/** The member "first" or 0, also of a nested one: "function.name". */
export function memberOf(value: JinjaValue | undefined, key: JinjaValue, wrap: Wrap): JinjaValue {
  let found = value;
  const path = typeof key.value === "string" ? key.value.split(".") : [key.value];
  for (const part of path) {
    const inner: unknown = found?.value;
    if (inner instanceof Map) found = (inner as Map<string, JinjaValue>).get(String(part));
    else if (Array.isArray(inner)) found = (inner as JinjaValue[]).at(Number(part));
    else found = undefined;
  }
  return found ?? wrap(undefined);
}

const capitalized = (text: string): string =>
  text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase();

/** Python's strip(characters). */
function stripped(whole: Marked, characters: string | undefined): Marked {
  const { text } = whole;
  const isOuter = (char: string): boolean =>
    characters === undefined ? char.trim() === "" : characters.includes(char);
  let [from, to] = [0, text.length];
  while (from < to && isOuter(text[from]!)) from++;
  while (to > from && isOuter(text[to - 1]!)) to--;
  return slice(whole, from, to);
}

/** Python's int(text, base); undefined where it would raise an error. */
function parsed(value: unknown, base: number): number | undefined {
  if (typeof value !== "string")
    return typeof value === "boolean" ? Number(value) : Math.trunc(Number(value));
  const digits = value
    .trim()
    .toLowerCase()
    .replace(/^([-+]?)0[xob]/, "$1");
  const number = Number.parseInt(digits, base);
  return Number.isNaN(number) ? undefined : number;
}

/** Python's rsplit(): from the right, at most `most` times. */
function splitFromRight(text: string, separator: string | undefined, most: number): string[] {
  const pieces = separator === undefined ? text.trim().split(/\s+/) : text.split(separator);
  if (most < 0 || pieces.length <= most + 1) return pieces;
  const head = pieces.slice(0, pieces.length - most).join(separator ?? " ");
  return [head, ...pieces.slice(pieces.length - most)];
}

export function filterFunctions(
  budget: Costs,
  wrap: Wrap,
): Readonly<Record<string, JinjaFunction>> {
  /** A list of values of the library. */
  const listFrom = (items: readonly JinjaValue[]): JinjaValue => {
    budget.take(items.length);
    const list = wrap([]);
    listOf(list).push(...items);
    return list;
  };
  const itemsOf = (value: JinjaValue | undefined): readonly JinjaValue[] => {
    const inner = value?.value;
    if (inner === undefined || inner === null) return [];
    if (typeof inner === "string") return [...inner].map((character) => wrap(character));
    if (inner instanceof Map) return [...inner.keys()].map((key) => wrap(key));
    return listOf(value);
  };
  const textFrom = (value: JinjaValue | undefined): Marked => pythonMarked(value, budget);
  const out = (marked: Marked): JinjaValue => {
    budget.take(marked.text.length);
    return giveMarks(wrap(marked.text), marked);
  };
  const inPlace =
    (change: (text: string) => string) =>
    (value: JinjaValue | undefined): JinjaValue => {
      const marked = textFrom(value);
      return out(changed(marked, change(marked.text)));
    };
  /** Filters of one value, which `map` applies to each. */
  const single: Readonly<
    Record<
      string,
      (value: JinjaValue | undefined, args: readonly JinjaValue[], named: Keywords) => JinjaValue
    >
  > = {
    capitalize: inPlace(capitalized),
    upper: inPlace((text) => text.toUpperCase()),
    lower: inPlace((text) => text.toLowerCase()),
    string: (value) => out(textFrom(value)),
    trim: (value, [characters], named) =>
      out(
        stripped(textFrom(value), (characters ?? named.get("chars"))?.value as string | undefined),
      ),
    length: (value) => wrap(itemsOf(value).length),
    int: (value, [first, second], named) => {
      const base = second ?? named.get("base");
      const number = parsed(value?.value, base === undefined ? 10 : Number(base.value));
      return number === undefined ? (first ?? named.get("default") ?? wrap(0)) : wrap(number);
    },
  };
  /** The items that pass (or fail) a test, themselves or by an attribute. */
  const selected =
    (isWanted: boolean, hasAttribute: boolean): JinjaFunction =>
    (all) => {
      const [[operand, ...args]] = splitArgs(all);
      const key = hasAttribute ? args.shift() : undefined;
      const [test, ...rest] = args;
      return listFrom(
        itemsOf(operand).filter((item) => {
          budget.step();
          const value = key === undefined ? item : memberOf(item, key, wrap);
          const passes =
            test === undefined ? truth(value) : isTrue(String(test.value), value, rest);
          return passes === isWanted;
        }),
      );
    };
  return {
    ...Object.fromEntries(
      Object.entries(single).map(([name, apply]): [string, JinjaFunction] => [
        name,
        (all) => {
          const [[operand, ...args], named] = splitArgs(all);
          return apply(operand, args, named);
        },
      ]),
    ),
    first: ([operand]) => itemsOf(operand)[0] ?? wrap(undefined),
    last: ([operand]) => itemsOf(operand).at(-1) ?? wrap(undefined),
    sum: (all) => {
      const [[operand, start], named] = splitArgs(all);
      const key = named.get("attribute");
      const numbers = itemsOf(operand).map((item) =>
        Number((key === undefined ? item : memberOf(item, key, wrap)).value),
      );
      return wrap(numbers.reduce((sum, one) => sum + one, Number(start?.value ?? 0)));
    },
    wordcount: ([operand]) => wrap(textFrom(operand).text.match(/\w+/g)?.length ?? 0),
    select: selected(true, false),
    reject: selected(false, false),
    selectattr: selected(true, true),
    rejectattr: selected(false, true),
    map: (all) => {
      const [[operand, filter, ...args], named] = splitArgs(all);
      const key = named.get("attribute");
      const apply = key === undefined ? single[String(filter?.value)] : undefined;
      if (key === undefined && apply === undefined) {
        throw new Error(`map: the filter ${JSON.stringify(filter?.value)} is not supported`);
      }
      return listFrom(
        itemsOf(operand).map((item) => {
          budget.step();
          if (key === undefined) return apply!(item, args, named);
          const value = memberOf(item, key, wrap);
          return value.type === "UndefinedValue" ? (named.get("default") ?? value) : value;
        }),
      );
    },
    /** Text times a number, or numbers. */
    times: ([left, right]) => {
      const [a, b] = [left?.value, right?.value];
      const [text, count] = typeof a === "string" ? [a, b] : [b, a];
      if (typeof text === "string" && typeof count === "number") {
        const times = Math.max(0, Math.trunc(count));
        budget.take(text.length * times);
        const { marks } = markedOf(typeof a === "string" ? left : right);
        const all = { text: text.repeat(times), marks: marks?.repeat(times) };
        return giveMarks(wrap(all.text), all);
      }
      const isNumeric = [a, b].every((one) => typeof one === "number" || typeof one === "boolean");
      if (!isNumeric) throw new Error(`cannot multiply ${left?.type} and ${right?.type}`);
      const product = wrap(Number(a) * Number(b));
      const isFloat = left?.type === "FloatValue" || right?.type === "FloatValue";
      if (!isFloat || product.type === "FloatValue") return product;
      const float = wrap(0.5) as { type: string; value: unknown }; // stays a float where it is whole
      float.value = product.value;
      return float;
    },
    rsplit: ([text, separator, most]) => {
      const by = separator?.value as string | undefined;
      const pieces = splitFromRight(String(text?.value), by, Number(most?.value ?? -1));
      const marked = stretches(markedOf(text), pieces, by?.length ?? 0);
      return listFrom(pieces.map((piece, i) => giveMarks(wrap(piece), marked[i])));
    },
    pop: ([from, key, otherwise]) => {
      if (from?.value instanceof Map) {
        const name = String(key?.value);
        const found = (from.value as Map<string, JinjaValue>).get(name) ?? otherwise;
        (from.value as Map<string, JinjaValue>).delete(name);
        return found ?? wrap(undefined);
      }
      const list = listOf(from);
      return list.splice(Number(key?.value ?? list.length - 1), 1)[0] ?? wrap(undefined);
    },
    keys: ([object]) => listFrom([...mapOf(object).keys()].map((key) => wrap(key))),
    values: ([object]) => listFrom([...mapOf(object).values()]),
    items: ([object]) =>
      listFrom([...mapOf(object)].map(([key, value]) => listFrom([wrap(key), value]))),
    get: ([object, key, otherwise]) =>
      mapOf(object).get(String(key?.value)) ?? otherwise ?? wrap(null),
  };
}

function mapOf(value: JinjaValue | undefined): ReadonlyMap<string, JinjaValue> {
  if (value?.value instanceof Map) return value.value as Map<string, JinjaValue>;
  throw new Error(`expected an object, got ${value?.type ?? "nothing"}`);
}
