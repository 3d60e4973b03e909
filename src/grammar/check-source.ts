// Whether a grammar's source has the fields that its kind needs. Sources come from requests and files, so that their types
// are only a promise.

import { byName } from "../base/by-name.ts";
import { GrammarError, GrammarSizeError } from "./errors.ts";
import type { Meter } from "./meter.ts";

type Fields = Readonly<Record<string, unknown>>;
type Check = (value: unknown, path: string, source: Fields) => void;

const LONGEST_SOURCE = 8_000_000;

/** The checks by the field that names the kind. */
const CHECKS: Readonly<Record<string, Check>> = byName({
  gbnf: checkText,
  schema: () => {}, // json-schema/ reports its errors
  regex: checkText,
  choices: listOf(checkText),
  tags: listOf(checkTag),
  reasoning: checkReasoning,
  sequence: listOf(checkKind),
  either: listOf(checkKind),
  repeat: checkRepeat,
  literal: checkText,
  without: listOf(checkText),
});
const KINDS: readonly string[] = Object.keys(CHECKS);

/** The deepest nesting of lists and objects, so that readers of a source may be recursive. */
const DEEPEST = 500;

export function checkSource(source: unknown, meter: Meter): void {
  checkDepth(source, meter);
  checkKind(source, "grammar");
}

function checkDepth(source: unknown, meter: Meter): void {
  const open: [value: unknown, depth: number][] = [[source, 0]];
  for (let at = open.pop(); at !== undefined; at = open.pop()) {
    const [value, depth] = at;
    if (typeof value !== "object" || value === null) continue;
    if (depth > DEEPEST) {
      throw new GrammarSizeError(
        `grammar: it is nested too deep, expected at most ${DEEPEST} levels. Use fewer levels`,
      );
    }
    const inner = Object.values(value);
    meter.spend(1 + inner.length / 8);
    for (const one of inner) if (typeof one === "object") open.push([one, depth + 1]);
  }
}

function checkKind(source: unknown, path: string): void {
  if (!isRecord(source)) throw wrong(path, source, `an object with one of ${KINDS.join(", ")}`);
  const kinds = KINDS.filter((kind) => Object.hasOwn(source, kind));
  const [kind] = kinds;
  if (kind === undefined || kinds.length > 1) {
    const found = kinds.length > 1 ? kinds : Object.keys(source);
    throw new GrammarError(
      `${path}: has ${found.join(", ") || "no fields"}, expected one of ${KINDS.join(", ")}`,
    );
  }
  CHECKS[kind]!(source[kind], `${path}.${kind}`, source);
}

function checkTag(tag: unknown, path: string): void {
  if (!isRecord(tag)) throw wrong(path, tag, "an object with begin, content and end");
  checkText(tag.begin, `${path}.begin`);
  checkText(tag.end, `${path}.end`);
  if (tag.trigger !== undefined) checkText(tag.trigger, `${path}.trigger`);
  checkKind(tag.content, `${path}.content`);
}

function checkReasoning(marks: unknown, path: string, source: Fields): void {
  if (!isRecord(marks)) throw wrong(path, marks, "an object with end, and perhaps start");
  checkText(marks.end, `${path}.end`);
  if (marks.start !== undefined) checkText(marks.start, `${path}.start`);
  checkKind(source.content, "grammar.content");
}

function checkRepeat(item: unknown, path: string, { low, high }: Fields): void {
  checkKind(item, path);
  for (const count of high === undefined ? [low] : [low, high]) {
    const isCount = Number.isInteger(count) && (count as number) >= 0;
    if (!isCount) throw wrong(path, count, "counts: low, and perhaps high");
  }
}

function checkText(value: unknown, path: string): void {
  if (typeof value !== "string") throw wrong(path, value, "a text");
  if (value.length <= LONGEST_SOURCE) return;
  throw new GrammarError(`${path}: ${value.length} characters, expected at most ${LONGEST_SOURCE}`);
}

function listOf(check: (item: unknown, path: string) => void): Check {
  return (value, path) => {
    if (!Array.isArray(value)) throw wrong(path, value, "a list");
    for (const [i, item] of value.entries()) check(item, `${path}[${i}]`);
  };
}

function isRecord(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function wrong(path: string, value: unknown, expected: string): GrammarError {
  const type = value === null ? "null" : Array.isArray(value) ? "a list" : typeof value;
  return new GrammarError(`${path}: got ${type}, expected ${expected}`);
}
