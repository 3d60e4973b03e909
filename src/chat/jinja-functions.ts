// Functions for templates that @huggingface/jinja lacks (jinja-gaps.ts calls them), on the library's own values.

import { filterFunctions, memberOf, splitArgs } from "./jinja-filters.ts";
import {
  APPEND,
  FILTER,
  FORMAT,
  LARGEST,
  LIST,
  NOT,
  OBJECT,
  SMALLEST,
  SORTED_PAIRS,
  TEST,
  TEXT,
  WRITTEN,
} from "./jinja-gaps.ts";
import { isTrue, testNames, truth } from "./jinja-tests.ts";
import type { Costs, JinjaFunction, JinjaValue, Wrap } from "./jinja-values.ts";
import { listOf, pythonText } from "./jinja-values.ts";
import { concat, giveMarks, type Marked, markedOf, pythonMarked, slice, wordsOf } from "./marks.ts";

export function gapFunctions(budget: Costs, wrap: Wrap): Readonly<Record<string, JinjaFunction>> {
  const best = (isBetter: (a: number | string, b: number | string) => boolean): JinjaFunction => {
    return (all) => {
      const [[list], named] = splitArgs(all);
      const key = named.get("attribute");
      const rank = (item: JinjaValue): number =>
        (key === undefined ? item : memberOf(item, key, wrap)).value as number;
      let found: JinjaValue | undefined;
      for (const item of listOf(list)) {
        if (found === undefined || isBetter(rank(item), rank(found))) found = item;
      }
      return found ?? wrap(undefined);
    };
  };
  const prefixed = (
    prefix: string,
    functions: Readonly<Record<string, JinjaFunction>>,
  ): Readonly<Record<string, JinjaFunction>> =>
    Object.fromEntries(Object.entries(functions).map(([name, run]) => [prefix + name, run]));
  const tests = Object.fromEntries(
    testNames().flatMap((name): [string, JinjaFunction][] => [
      [name, ([value, ...args]) => wrap(isTrue(name, value, args))],
      [`not ${name}`, ([value, ...args]) => wrap(!isTrue(name, value, args))],
    ]),
  );
  return {
    ...prefixed(FILTER, filterFunctions(budget, wrap)),
    ...prefixed(TEST, tests),
    [NOT]: ([value]) => wrap(!truth(value)),
    [LIST]: ([value]) => (isNothing(value) ? wrap([]) : value!),
    [OBJECT]: ([value]) => (isNothing(value) ? wrap({}) : value!),
    // Texts, numbers and empty values are as the library writes them.
    [WRITTEN]: ([value]) => {
      const inner = value?.value;
      const isPythons =
        typeof inner === "boolean" || Array.isArray(inner) || value?.type === "ObjectValue";
      if (!isPythons) return value ?? wrap(undefined);
      const text = pythonText(value, budget);
      budget.take(text.length);
      return wrap(text);
    },
    [FORMAT]: (all) => {
      const [[text, ...values], named] = splitArgs(all);
      const written = values.map((value) => pythonMarked(value, budget));
      const names = new Map([...named].map(([key, value]) => [key, pythonMarked(value, budget)]));
      const longest = [...written, ...names.values()].reduce(
        (most, one) => Math.max(most, one.text.length),
        0,
      );
      budget.take((String(text?.value).length / 2) * longest);
      const result = formatted(markedOf(text), written, names);
      return giveMarks(wrap(result.text), result);
    },
    [APPEND]: ([list, item]) => {
      budget.take(1);
      listOf(list).push(item ?? wrap(undefined));
      return wrap(null);
    },
    [TEXT]: ([value]) => {
      const text = pythonMarked(value, budget);
      budget.take(text.text.length);
      return giveMarks(wrap(text.text), text);
    },
    [SORTED_PAIRS]: ([object]) => {
      if (!(object?.value instanceof Map)) throw new Error("expected an object to sort");
      const entries = [...(object.value as Map<string, JinjaValue>)];
      budget.take(entries.length);
      const areNumbers = entries.every(([key]) => /^-?\d+$/.test(key));
      const list = wrap([]);
      const pairs = entries.map(([key, value]) => {
        const pair = wrap([areNumbers ? Number(key) : key]);
        listOf(pair).push(value);
        return pair;
      });
      const order = areNumbers
        ? (a: string, b: string) => Number(a) - Number(b)
        : (a: string, b: string) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1);
      const keys = new Map(pairs.map((pair, at) => [pair, entries[at]![0]]));
      pairs.sort((a, b) => order(keys.get(a)!, keys.get(b)!));
      listOf(list).push(...pairs);
      return list;
    },
    [SMALLEST]: best((a, b) => a < b),
    [LARGEST]: best((a, b) => a > b),
  };
}

const isNothing = (value: JinjaValue | undefined): boolean =>
  value?.value === undefined || value.value === null;

/** Python's str.format: {}, {0} and {name}. */
function formatted(
  form: Marked,
  values: readonly Marked[],
  names: ReadonlyMap<string, Marked>,
): Marked {
  const parts: Marked[] = [];
  let [at, next] = [0, 0];
  for (const { index, 0: field, 1: name } of form.text.matchAll(/\{\{|\}\}|\{(\w*)\}/g)) {
    parts.push(slice(form, at, index));
    at = index + field.length;
    if (name === undefined) parts.push(slice(form, index, index + 1));
    else if (/^\d*$/.test(name)) {
      parts.push(values[name === "" ? next++ : Number(name)] ?? wordsOf(""));
    } else parts.push(names.get(name) ?? slice(form, index, at));
  }
  return concat([...parts, slice(form, at, form.text.length)]);
}
