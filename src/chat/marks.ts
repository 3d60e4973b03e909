// Marks of the origin of each character of a text while a template is rendered: the template itself, or the messages of people,
// tools and documents (words). The marks of a text are a text of the same length, with one letter for each UTF-16 unit, so that an
// operation that cuts or joins a text cuts or joins its marks in the same way.
//
// A value of the library that has no marks consists of words: an operation that is not handled here loses the marks, and with them
// the special tokens of its result, but it never turns words into the template's text. The operations that templates use are in
// `changes`, each computed once more with marks and compared with the library's result.

import type { RenderedPrompt } from "../base/rendered-prompt.ts";
import type { Node } from "./budget-rules.ts";
import { type Costs, type JinjaValue, pythonText } from "./jinja-values.ts";

const TEMPLATE = "t";
const WORDS = "w";

/** A text and its marks; undefined: it is all words. */
export interface Marked {
  readonly text: string;
  readonly marks: string | undefined;
}

/** A value of the library that may have marks. */
interface MarkedValue extends JinjaValue {
  marks?: string;
}

const marksOf = (value: JinjaValue): string | undefined => (value as MarkedValue).marks;

/** Whether it has characters of the template, as far as is known. */
function hasMarks(value: JinjaValue | undefined): boolean {
  return value !== undefined && marksOf(value) !== undefined;
}

/** A value's text as it is written; a value other than a text (a number, say) is words. */
export function markedOf(value: JinjaValue | undefined): Marked {
  const inner = value?.value;
  if (value !== undefined && typeof inner === "string") {
    return { text: inner, marks: marksOf(value) };
  }
  const isNothing = value?.type === "NullValue" || value?.type === "UndefinedValue";
  return wordsOf(value === undefined || isNothing ? "" : String(value));
}

export function wordsOf(text: string): Marked {
  return { text, marks: undefined };
}

/** Python's str() of a value, with the marks of its texts: numbers, lists and objects are words. */
export function pythonMarked(value: JinjaValue | undefined, budget: Costs): Marked {
  const text = pythonText(value, budget, true);
  return typeof value?.value === "string" ? markedOf(value) : wordsOf(text);
}

/** Gives a text its marks, if they belong to this text; otherwise it stays words. */
export function giveMarks(value: JinjaValue, marked: Marked | undefined): JinjaValue {
  return marked !== undefined && marked.text === value.value ? giveJoined(value, marked) : value;
}

/** The same for a text that is joined of others, and may be long: only its length is compared. */
export function giveJoined(value: JinjaValue, { text, marks }: Marked): JinjaValue {
  const { length } = value.value as string;
  if (marks !== undefined && length === text.length && length === marks.length) {
    (value as MarkedValue).marks = marks;
  }
  return value;
}

/** The template says all of it. */
export function giveToTemplate(value: JinjaValue): JinjaValue {
  const { value: text } = value;
  return typeof text === "string"
    ? giveJoined(value, { text, marks: TEMPLATE.repeat(text.length) })
    : value;
}

export function concat(parts: readonly Marked[]): Marked {
  let text = "";
  let marks: string | undefined;
  for (const part of parts) {
    if (part.marks !== undefined) marks ??= WORDS.repeat(text.length);
    if (marks !== undefined) marks += part.marks ?? WORDS.repeat(part.text.length);
    text += part.text;
  }
  return { text, marks };
}

export function slice({ text, marks }: Marked, from: number, to: number): Marked {
  return { text: text.slice(from, to), marks: marks?.slice(from, to) };
}

/** A change that keeps every character's position, such as upper(); if a text's length changes, all of it is words. */
export function changed({ marks }: Marked, text: string): Marked {
  return text.length === marks?.length ? { text, marks } : wordsOf(text);
}

/** The stretches of a text that come one after the other, with something between them. */
export function stretches(whole: Marked, pieces: readonly string[], between: number): Marked[] {
  let at = 0;
  return pieces.map((piece) => {
    // `between` of 0: white space, of any length.
    const from = between === 0 ? whole.text.indexOf(piece, at) : at;
    at = from + piece.length + between;
    return slice(whole, from, from + piece.length);
  });
}

/** The result of a rendering. */
export function rendered(value: JinjaValue): RenderedPrompt {
  const { text, marks = "" } = markedOf(value);
  const template: number[] = [];
  for (let from = marks.indexOf(TEMPLATE); from >= 0; ) {
    const end = marks.indexOf(WORDS, from);
    const to = end < 0 ? marks.length : end;
    template.push(from, to);
    from = marks.indexOf(TEMPLATE, to);
  }
  return { text, template };
}

/** The marked result, or results of a list; undefined: not known. */
type Change = (
  text: Marked,
  args: readonly (JinjaValue | undefined)[],
  result: unknown,
) => Marked | readonly Marked[] | undefined;

const trimmed =
  (isLeft: boolean): Change =>
  (whole, _, result) => {
    const from = isLeft ? whole.text.length - whole.text.trimStart().length : 0;
    return slice(whole, from, from + (result as string).length);
  };
const inPlace: Change = (whole, _, result) => changed(whole, result as string);

const strip = trimmed(true);

/** Filters and methods of texts, by name. */
const changes: ReadonlyMap<unknown, Change> = new Map<unknown, Change>([
  ["strip", strip],
  ["trim", strip],
  ["lstrip", strip],
  ["rstrip", trimmed(false)],
  ["upper", inPlace],
  ["lower", inPlace],
  ["title", inPlace],
  ["capitalize", inPlace],
  ["indent", indented],
  ["replace", replaced],
  [
    "split",
    (whole, [separator], result) => {
      const pieces = (result as readonly JinjaValue[]).map(({ value }) => value as string);
      const between = typeof separator?.value === "string" ? separator.value.length : 0;
      return stretches(whole, pieces, between);
    },
  ],
]);

/** The text put in front of lines is the template's. */
function indented(whole: Marked, _: unknown, result: unknown): Marked | undefined {
  const [from, to] = [whole.text.split("\n"), (result as string).split("\n")];
  if (from.length !== to.length) return undefined;
  const parts: Marked[] = [];
  let at = 0;
  for (const [i, line] of to.entries()) {
    const { length } = from[i]!;
    const width = line.length - length;
    if (i > 0) parts.push(slice(whole, at - 1, at)); // the line break
    parts.push({ text: line.slice(0, width), marks: TEMPLATE.repeat(width) });
    parts.push(slice(whole, at, at + length));
    at += length + 1;
  }
  return concat(parts);
}

/** The replacement of words is words as well: otherwise words would decide how many marks there are. */
function replaced(whole: Marked, args: readonly (JinjaValue | undefined)[]): Marked | undefined {
  const [old, by, ...more] = args;
  if (typeof old?.value !== "string" || old.value === "" || typeof by?.value !== "string") {
    return undefined;
  }
  const most = more[0]?.type === "IntegerValue" ? Number(more[0].value) : -1;
  const instead = markedOf(by);
  const parts: Marked[] = [];
  let from = 0;
  for (let done = 0; most < 0 || done < most; done++) {
    const at = whole.text.indexOf(old.value, from);
    if (at < 0) break;
    const end = at + old.value.length;
    const isWords = slice(whole, at, end).marks?.includes(WORDS) ?? true;
    parts.push(slice(whole, from, at), isWords ? wordsOf(instead.text) : instead);
    from = end;
  }
  parts.push(slice(whole, from, whole.text.length));
  return concat(parts);
}

/** Python's text[start:stop:step], by characters, or text[at], by units. */
function cut(whole: Marked, [at, ...rest]: readonly (JinjaValue | undefined)[]): Marked {
  const numberOf = (value: JinjaValue | undefined): number | undefined =>
    typeof value?.value === "number" ? value.value : undefined;
  const { length } = whole.text;
  if (rest.length === 0) {
    const index = numberOf(at) ?? length;
    const from = index < 0 ? length + index : index;
    return slice(whole, from, from + 1);
  }
  const [start, stop, step = 1] = [at, ...rest].map(numberOf);
  const places: number[] = [0];
  for (const char of whole.text) places.push(places.at(-1)! + char.length);
  const count = places.length - 1;
  const [least, most] = step < 0 ? [-1, count - 1] : [0, count];
  const inside = (index: number): number =>
    Math.min(most, Math.max(least, index < 0 ? count + index : index));
  const from = start === undefined ? (step < 0 ? most : least) : inside(start);
  const to = stop === undefined ? (step < 0 ? least : most) : inside(stop);
  const parts: Marked[] = [];
  if (step === 0) return wordsOf(""); // as the library has it
  if (step === 1) return slice(whole, places[from]!, places[Math.max(from, to)]!);
  for (let i = from; step < 0 ? i > to : i < to; i += step) {
    parts.push(slice(whole, places[i]!, places[i + 1]!));
  }
  return concat(parts);
}

/** Marks the result of a filter or a method. */
export function markChange(
  name: unknown,
  operand: JinjaValue,
  args: readonly (JinjaValue | undefined)[],
  result: JinjaValue,
): void {
  const isMarked = [operand, ...args].some(hasMarks);
  if (!isMarked || hasMarks(result)) return;
  const found = changes.get(name)?.(markedOf(operand), args, result.value);
  if (found === undefined) return;
  if (!Array.isArray(found)) giveMarks(result, found as Marked);
  else for (const [i, one] of found.entries()) giveMarks((result.value as JinjaValue[])[i]!, one);
}

/** Marks the value of a node of the program. `operands`: the values of its parts, in the order of its rule (budget-rules.ts). */
export function markNode(
  node: Node,
  operands: readonly (JinjaValue | undefined)[],
  result: JinjaValue,
): void {
  const [first, ...rest] = operands;
  if (node.type === "StringLiteral") giveToTemplate(result);
  else if (!operands.some((value) => hasMarks(value) || Array.isArray(value?.value))) return;
  else if (node.type === "BinaryExpression" && typeof result.value === "string") {
    giveJoined(result, concat(operands.map(markedOf)));
  } else if (node.type === "MemberExpression" && typeof first?.value === "string") {
    if (typeof result.value === "string") giveMarks(result, cut(markedOf(first), rest));
  } else if (node.type === "FilterExpression" && first !== undefined) {
    const filter = node.filter as Node;
    const name = filter.type === "CallExpression" ? (filter.callee as Node).value : filter.value;
    if (name === "join" && Array.isArray(first.value)) markJoin(first.value, rest[0], result);
    else markChange(name, first, rest, result);
  }
}

/** list|join(separator). */
function markJoin(
  list: readonly JinjaValue[],
  separator: JinjaValue | undefined,
  result: JinjaValue,
): void {
  const between = markedOf(separator);
  const parts = list.flatMap((item, i) => (i === 0 ? [markedOf(item)] : [between, markedOf(item)]));
  giveMarks(result, concat(parts));
}
