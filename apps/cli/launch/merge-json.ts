// Sets a value in the text of a JSON file, which may have comments and commas before closing brackets (JSONC, as editors write it).
// The text is read with the place of every value, and only the place of the changed one is replaced.

import { UsageError } from "../../../src/index.ts";
import { isSame, type Json, lineEnd, type Setting, type Step } from "./settings.ts";

interface Place {
  readonly from: number;
  readonly to: number;
}
interface Member extends Place {
  readonly key: string;
  readonly value: Value;
}
type Value = Place &
  (
    | { readonly kind: "object"; readonly members: readonly Member[] }
    | { readonly kind: "array"; readonly items: readonly Value[] }
    | { readonly kind: "scalar"; readonly value: Json }
  );

const deepest = 100;

export function setInJson(text: string, { at, value }: Setting): string {
  const eol = lineEnd(text);
  if (text.replace(/^\uFEFF/, "").trim() === "") {
    return `${JSON.stringify(nested(at, value), null, 2).replaceAll("\n", eol)}${eol}`;
  }
  let place = new Reader(text).read();
  for (const [depth, step] of at.entries()) {
    const rest = nested(at.slice(depth + 1), value);
    const found = typeof step === "string" ? memberOf(place, step, at) : itemOf(place, step, at);
    if (found === undefined) return inserted(text, place, step, rest, eol);
    place = found;
  }
  if (isSame(jsonOf(place), value)) return text;
  const own = indentAt(text, place.from);
  return text.slice(0, place.from) + written(value, own, unitOf(text), eol) + text.slice(place.to);
}

/** The value under the rest of the path. */
function nested(at: readonly Step[], value: Json): Json {
  return at.reduceRight<Json>(
    (inner, step) => (typeof step === "string" ? { [step]: inner } : [withKey(step, inner)]),
    value,
  );
}

function withKey({ key, is }: Exclude<Step, string>, value: Json): Json {
  return { [key]: is, ...(value as { [key: string]: Json }) };
}

function memberOf(place: Value, key: string, at: readonly Step[]): Value | undefined {
  if (place.kind !== "object") throw wrongKind("an object", place, key, at);
  return place.members.findLast((member) => member.key === key)?.value; // of two, programs take the last
}

function itemOf(place: Value, step: Exclude<Step, string>, at: readonly Step[]): Value | undefined {
  if (place.kind !== "array") throw wrongKind("a list", place, step.key, at);
  return place.items.find((item) => {
    const found = jsonOf(item) as { [key: string]: Json } | null;
    return typeof found === "object" && found?.[step.key] === step.is;
  });
}

function wrongKind(wanted: string, got: Value, key: string, at: readonly Step[]): UsageError {
  const where = at.map((step) => (typeof step === "string" ? step : step.key)).join(".");
  const kind = got.kind === "scalar" ? JSON.stringify(got.value) : `an ${got.kind}`;
  return new UsageError(`it has ${kind} where "${key}" of ${where} would be, expected ${wanted}`);
}

function inserted(text: string, place: Value, step: Step, rest: Json, eol: string): string {
  const parts = place.kind === "object" ? place.members : place.kind === "array" ? place.items : [];
  const own = indentAt(text, place.from);
  const unit = unitOf(text);
  const last = parts.at(-1);
  const isSpread = last === undefined || text.slice(place.from, last.from).includes("\n");
  const inner = isSpread && last ? indentAt(text, last.from) : own + unit;
  const body = written(typeof step === "string" ? rest : withKey(step, rest), inner, unit, eol);
  const entry = typeof step === "string" ? `${JSON.stringify(step)}: ${body}` : body;
  if (last === undefined) {
    // Comments of an empty object stay.
    const inside = text.slice(place.from + 1, place.to - 1).trimEnd();
    const start = text.slice(0, place.from + 1) + inside;
    return `${start}${eol}${inner}${entry}${eol}${own}${text.slice(place.to - 1)}`;
  }
  const between = isSpread ? eol + inner : " ";
  return `${text.slice(0, last.to)},${between}${entry}${text.slice(last.to)}`;
}

function written(value: Json, indent: string, unit: string, eol: string): string {
  return JSON.stringify(value, null, unit).replaceAll("\n", eol + indent);
}

/** The blanks at the start of the line of a place. */
function indentAt(text: string, at: number): string {
  const start = text.lastIndexOf("\n", at - 1) + 1;
  return /^[ \t]*/.exec(text.slice(start, at))![0];
}

function unitOf(text: string): string {
  return /\n([ \t]+)\S/.exec(text)?.[1] ?? "  ";
}

function jsonOf(value: Value): Json {
  if (value.kind === "scalar") return value.value;
  if (value.kind === "array") return value.items.map(jsonOf);
  return Object.fromEntries(value.members.map((member) => [member.key, jsonOf(member.value)]));
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
    if (text.startsWith("\uFEFF")) this.#at = 1;
  }

  read(): Value {
    const value = this.#value(0);
    this.#blank();
    if (this.#at < this.#text.length) throw this.#wrong("the end of the file");
    return value;
  }

  #value(depth: number): Value {
    if (depth > deepest) throw this.#wrong(`at most ${deepest} objects in each other`);
    this.#blank();
    const first = this.#text[this.#at];
    if (first === "{" || first === "[") return this.#list(first, depth);
    const from = this.#at;
    return { kind: "scalar", from, value: this.#scalar(), to: this.#at };
  }

  #list(open: "{" | "[", depth: number): Value {
    const from = this.#at++;
    const close = open === "{" ? "}" : "]";
    const members: Member[] = [];
    const items: Value[] = [];
    for (;;) {
      this.#blank();
      if (this.#text[this.#at] === close) break;
      if (open === "[") items.push(this.#value(depth + 1));
      else members.push(this.#member(depth));
      this.#blank();
      if (this.#text[this.#at] === ",") this.#at++;
      else if (this.#text[this.#at] !== close) throw this.#wrong(`"," or "${close}"`);
    }
    const to = ++this.#at;
    return open === "{"
      ? { kind: "object", from, to, members }
      : { kind: "array", from, to, items };
  }

  #member(depth: number): Member {
    const from = this.#at;
    if (this.#text[from] !== '"') throw this.#wrong("a key in quotes");
    const key = this.#scalar() as string;
    this.#blank();
    if (this.#text[this.#at] !== ":") throw this.#wrong('":"');
    this.#at++;
    const value = this.#value(depth + 1);
    return { from, to: value.to, key, value };
  }

  #scalar(): Json {
    const pattern = /"(?:[^"\\\n\r]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null/y;
    pattern.lastIndex = this.#at;
    const [found] = pattern.exec(this.#text) ?? [];
    if (found === undefined) throw this.#wrong("a value");
    try {
      const value = JSON.parse(found) as Json;
      this.#at += found.length;
      return value;
    } catch {
      throw this.#wrong("a value");
    }
  }

  /** Blanks and comments. */
  #blank(): void {
    const pattern = /(?:[ \t\r\n]+|\/\/[^\n]*|\/\*[\s\S]*?\*\/)*/y;
    pattern.lastIndex = this.#at;
    this.#at += pattern.exec(this.#text)![0].length;
  }

  #wrong(expected: string): UsageError {
    const line = this.#text.slice(0, this.#at).split("\n").length;
    const got = this.#text.slice(this.#at, this.#at + 20).split("\n")[0];
    return new UsageError(
      `it is damaged: line ${line}: got ${got ? JSON.stringify(got) : "the end of the line or file"}, expected ${expected}`,
    );
  }
}
