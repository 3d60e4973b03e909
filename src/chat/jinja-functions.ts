// Functions for templates that @huggingface/jinja lacks (jinja-gaps.ts calls them), on the library's own values.

import { APPEND, LARGEST, SMALLEST, SORTED_PAIRS, TEXT } from "./jinja-gaps.ts";

/** What a rendering may cost (budget.ts). */
interface Costs {
  step(): void;
  take(units: number): void;
}

/** A value of the library. */
export interface JinjaValue {
  readonly type: string;
  readonly value: unknown;
}

/** Makes a value of the library of one of JavaScript's. */
type Wrap = (value: unknown) => JinjaValue;

export type JinjaFunction = (args: readonly JinjaValue[]) => JinjaValue;

export function gapFunctions(budget: Costs, wrap: Wrap): Readonly<Record<string, JinjaFunction>> {
  const best = (isBetter: (a: number | string, b: number | string) => boolean): JinjaFunction => {
    return ([list]) => {
      let found: JinjaValue | undefined;
      for (const item of listOf(list)) {
        const isFirst = found === undefined;
        if (isFirst || isBetter(item.value as number, found!.value as number)) found = item;
      }
      return found ?? wrap(undefined);
    };
  };
  return {
    [APPEND]: ([list, item]) => {
      budget.take(1);
      listOf(list).push(item ?? wrap(undefined));
      return wrap(null);
    },
    [TEXT]: ([value]) => {
      const text = pythonText(value, budget, true);
      budget.take(text.length);
      return wrap(text);
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

function listOf(value: JinjaValue | undefined): JinjaValue[] {
  if (Array.isArray(value?.value)) return value.value as JinjaValue[];
  throw new Error(`expected a list, got ${value?.type ?? "nothing"}`);
}

/** Python's str(), and repr() for what is inside of lists and objects. */
function pythonText(value: JinjaValue | undefined, budget: Costs, isOutside = false): string {
  budget.step();
  const inner = value?.value;
  if (typeof inner === "string") return isOutside ? inner : quoted(inner);
  if (typeof inner === "boolean") return inner ? "True" : "False";
  if (inner === null || inner === undefined) return isOutside && inner === undefined ? "" : "None";
  if (typeof inner === "number") {
    return value?.type === "FloatValue" && Number.isInteger(inner)
      ? inner.toFixed(1)
      : String(inner);
  }
  if (Array.isArray(inner)) {
    return `[${inner.map((item) => pythonText(item as JinjaValue, budget)).join(", ")}]`;
  }
  if (inner instanceof Map) {
    const members = [...(inner as Map<string, JinjaValue>)].map(
      ([key, item]) => `${quoted(key)}: ${pythonText(item, budget)}`,
    );
    return `{${members.join(", ")}}`;
  }
  return String(inner);
}

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text
    .replaceAll("\\", "\\\\")
    .replaceAll("\n", "\\n")
    .replaceAll("\r", "\\r")
    .replaceAll("\t", "\\t")
    .replaceAll(quote, `\\${quote}`);
  return quote + body + quote;
}
