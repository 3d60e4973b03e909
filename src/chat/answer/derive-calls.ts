// The form of a model's calls, from how its template writes two of them back (probes.ts): the texts between names, keys and
// values that are known are the marks.

import type {
  CallForm,
  CallFormat,
  Counted,
  JsonForm,
  TaggedForm,
  Wrapper,
} from "../../api/answer-format.ts";
import { isObject } from "./calls/call-reader.ts";
import { CONTENT, FIRST, type Probes, SECOND } from "./probes.ts";
import { between, commonPrefix, commonSuffix, fromTag, jsonEnd, toTag } from "./texts.ts";

/** The range of a call in a text: from its first character that is not part of a mark to the last. */
interface Place {
  readonly from: number;
  readonly to: number;
}

interface Found {
  readonly form: CallForm;
  readonly first: Place;
  /** The range of the second call; undefined if there is none. */
  readonly second: Place | undefined;
}

export function deriveCalls(
  probes: Probes,
  reasoning: Wrapper | undefined,
  content: Wrapper | undefined,
): CallFormat | undefined {
  const { oneCall } = probes;
  if (oneCall === undefined) return undefined;
  const two = probes.twoCalls?.includes(SECOND.name) ? probes.twoCalls : undefined;
  const found = findCalls(two ?? oneCall, two !== undefined);
  if (found === undefined) return undefined;
  const text = two ?? oneCall;
  const { form, first } = found;
  // Calls in messages of their own repeat the name between them: then each message is read by itself.
  const isApart =
    found.second !== undefined && /zq_\w*/.test(text.slice(first.to, found.second.from));
  const second = isApart ? undefined : found.second;
  const isList = form.kind === "json" && form.isList;
  const before = text.slice(
    headerLength(text, first.from, probes, [reasoning, content]),
    first.from,
  );
  const gap = gapOf(probes, before);
  const turnEnd = turnEndOf(probes, content);
  const after = text.slice((second ?? first).to);
  const tail = isApart
    ? commonPrefix(after, text.slice(found.second!.to))
    : withoutEnd(after, turnEnd);
  const endsReasoning = form.kind === "tagged" || form.kind === "nested";
  const shared = { gap, form, endsReasoning };
  if (isList || form.kind === "python") {
    const section = { start: before, end: firstMark(tail, form) };
    return { ...shared, section, call: { start: "", end: "" }, separator: "" };
  }
  if (second === undefined) {
    const call = { start: before, end: tail };
    return { ...shared, section: { start: "", end: "" }, call, separator: "" };
  }
  const middle = text.slice(first.to, second.from);
  let start = commonSuffix(before, middle);
  if (start !== before && start !== middle) start = fromTag(start);
  if (start.includes("<|open|>")) start = start.slice(start.indexOf("<|open|>"));
  if (start.trim() === "") start = "";
  const rest = middle.slice(0, middle.length - start.length);
  const end = start === "" ? "" : commonPrefix(rest, tail);
  return {
    ...shared,
    section: {
      start: before.slice(0, before.length - start.length),
      end: firstMark(tail.slice(end.length), form),
    },
    call: { start, end },
    separator: rest.slice(end.length),
  };
}

/**
 * The length of the text before the calls: the beginning that a turn of plain text has as well, reasoning, and the end of plain
 * text.
 */
function headerLength(
  text: string,
  to: number,
  probes: Probes,
  wrappers: readonly (Wrapper | undefined)[],
): number {
  const content = probes.content ?? "";
  const head = content.slice(0, Math.max(0, content.indexOf(CONTENT)));
  let length = toTag(commonPrefix(text, head)).length;
  for (const end of [...wrappers.map((wrapper) => wrapper?.end.trim()), "<|message|>"]) {
    if (end === undefined || end === "") continue;
    const at = text.lastIndexOf(end, to);
    if (at >= length) length = at + end.length;
  }
  return length;
}

/** The first mark of a text, or the text up to it. */
function firstMark(text: string, form: CallForm): string {
  if (form.kind === "nested") return text;
  return /^\s*(<\|close\|>\w+<\|sep\|>|\S*?<[^<>]*>|\[[^[\]]*\]|[^<[]+)/.exec(text)?.[0] ?? text;
}

/** Whitespace that the template puts between plain text and a call. */
function gapOf({ contentAndCall }: Probes, before: string): string {
  const at = contentAndCall?.indexOf(CONTENT) ?? -1;
  if (at < 0 || contentAndCall!.indexOf(FIRST.name) < at) return "";
  const rest = contentAndCall!.slice(at + CONTENT.length);
  const spaces = rest.slice(0, rest.length - rest.trimStart().length);
  return before.trim() === "" ? "" : spaces;
}

function turnEndOf({ content = "" }: Probes, wrapper: Wrapper | undefined): string {
  const at = content.indexOf(CONTENT);
  const end = at < 0 ? "" : content.slice(at + CONTENT.length);
  const close = wrapper?.end ?? "";
  return close !== "" && end.startsWith(close) ? end.slice(close.length) : end;
}

function withoutEnd(text: string, end: string): string {
  if (end !== "" && text.endsWith(end)) return text.slice(0, text.length - end.length);
  const tag = /^\s*(<[^<>]*>|\[[^[\]]*\])/.exec(end)?.[1];
  const at = tag === undefined ? -1 : text.indexOf(tag);
  return at < 0 ? text : text.slice(0, at);
}

function findCalls(text: string, hasSecond: boolean): Found | undefined {
  return (
    findJson(text, hasSecond) ??
    findNamed(text, hasSecond) ??
    findPython(text) ??
    findBareKeys(text, hasSecond) ??
    findNested(text, hasSecond) ??
    findTagged(text, hasSecond)
  );
}

function findJson(text: string, hasSecond: boolean): Found | undefined {
  const object = objectAround(text, text.indexOf(FIRST.name), FIRST.textKey);
  if (object === undefined) return undefined;
  const form = jsonForm(JSON.parse(text.slice(object.from, object.to)));
  if (form === undefined) return undefined;
  const before = text.slice(0, object.from).trimEnd();
  if (before.endsWith("[")) {
    const from = before.length - 1;
    const to = jsonEnd(text, from);
    if (to > 0) {
      return { form: { ...form, isList: true }, first: { from, to }, second: undefined };
    }
  }
  const at = hasSecond ? text.indexOf(SECOND.name, object.to) : -1;
  return { form, first: object, second: objectAround(text, at, SECOND.numberKey) };
}

/** The largest JSON object around a position that has a key in it. */
function objectAround(text: string, at: number, key: string): Place | undefined {
  let found: Place | undefined;
  for (let from = text.lastIndexOf("{", at); at >= 0 && from >= 0; ) {
    const to = jsonEnd(text, from);
    if (to > at && text.slice(from, to).includes(`"${key}"`)) found = { from, to };
    from = from === 0 ? -1 : text.lastIndexOf("{", from - 1);
  }
  return found;
}

function jsonForm(object: unknown, innerKey?: string): JsonForm | undefined {
  if (!isObject(object)) return undefined;
  const keyOf = (isIt: (value: unknown) => boolean): string | undefined =>
    Object.keys(object).find((key) => isIt(object[key]));
  const isArguments = (value: unknown): boolean =>
    (isObject(value) && Object.hasOwn(value, FIRST.textKey)) ||
    (typeof value === "string" && value.includes(FIRST.textKey));
  const nameKey = keyOf((value) => value === FIRST.name);
  const idKey =
    keyOf((value) => value === FIRST.id) ??
    Object.keys(object).find((key) => /(^|_)id$/.test(key) && !isObject(object[key]));
  const parts = { kind: "json", idKey, innerKey, isList: false } as const;
  if (nameKey !== undefined) return { ...parts, nameKey, argumentsKey: keyOf(isArguments) };
  if (isObject(object[FIRST.name])) {
    return { ...parts, nameKey: undefined, argumentsKey: undefined };
  }
  const inner = keyOf((value) => isObject(value) && Object.values(value).includes(FIRST.name));
  return inner === undefined ? undefined : jsonForm(object[inner], inner);
}

/** Name, then arguments as JSON. */
function findNamed(text: string, hasSecond: boolean): Found | undefined {
  const first = namedPlace(text, FIRST.name, FIRST.textKey, 0);
  if (first === undefined) return undefined;
  const second = hasSecond ? namedPlace(text, SECOND.name, SECOND.numberKey, first.to) : undefined;
  const afterFirst = first.after;
  const idAt = afterFirst.indexOf(FIRST.id);
  const head = text.slice(0, first.from);
  const idBefore = head.lastIndexOf(FIRST.id);
  const isBefore = idBefore >= 0 && head.length - idBefore < 120;
  const secondIdBefore =
    second === undefined ? -1 : text.slice(0, second.from).lastIndexOf(SECOND.id);
  const form: CallForm = {
    kind: "named",
    afterName:
      idAt < 0
        ? counted(afterFirst, second?.after)
        : { first: afterFirst.slice(idAt + FIRST.id.length), last: undefined },
    idAfterName: idAt < 0 ? undefined : afterFirst.slice(0, idAt),
    idBeforeName: isBefore ? head.slice(idBefore + FIRST.id.length) : undefined,
    idPrefix: undefined,
  };
  return {
    form,
    first: { from: isBefore ? idBefore : first.from, to: first.to },
    second:
      second === undefined
        ? undefined
        : { from: isBefore ? secondIdBefore : second.from, to: second.to },
  };
}

function namedPlace(
  text: string,
  name: string,
  key: string,
  from: number,
): (Place & { after: string }) | undefined {
  const at = text.indexOf(name, from);
  const open = at < 0 ? -1 : text.indexOf("{", at);
  const to = open < 0 ? -1 : jsonEnd(text, open);
  if (to < 0 || !text.slice(open, to).includes(`"${key}"`)) return undefined;
  return { from: at, to, after: text.slice(at + name.length, open) };
}

/** The text after two names: if only a number differs, the number counts the calls. */
function counted(first: string, second: string | undefined): Counted {
  if (second === undefined || second === first) return { first, last: undefined };
  const start = commonPrefix(first, second);
  const match = /^\d+/.exec(first.slice(start.length));
  return match === null
    ? { first, last: undefined }
    : { first: start, last: first.slice(start.length + match[0].length) };
}

function findPython(text: string): Found | undefined {
  const at = text.indexOf(`${FIRST.name}(${FIRST.textKey}=`);
  if (at < 0) return undefined;
  const isList = text.slice(0, at).trimEnd().endsWith("[");
  const from = isList ? text.lastIndexOf("[", at) : at;
  const last = Math.max(text.lastIndexOf(`${SECOND.name}(`), at);
  const close = text.indexOf(")", last);
  const to = isList ? text.indexOf("]", close) + 1 : close + 1;
  return { form: { kind: "python" }, first: { from, to }, second: undefined };
}

function findBareKeys(text: string, hasSecond: boolean): Found | undefined {
  const at = text.indexOf(`${FIRST.name}{`);
  if (at < 0) return undefined;
  const key = text.indexOf(`${FIRST.textKey}:`, at);
  const quote = between(text, key + FIRST.textKey.length + 1, text.indexOf(FIRST.text, key));
  if (quote === undefined || quote === "") return undefined;
  const place = (from: number): Place => ({ from, to: text.indexOf("}", from) + 1 });
  const second = hasSecond ? text.indexOf(`${SECOND.name}{`, at) : -1;
  return {
    form: { kind: "bare-keys", quote },
    first: place(at),
    second: second < 0 ? undefined : place(second),
  };
}

/** A tag for each argument that is named like it. */
function findNested(text: string, hasSecond: boolean): Found | undefined {
  const open = text.indexOf(`<${FIRST.textKey}>`);
  const close = text.indexOf(`</${FIRST.textKey}>`);
  if (open < 0 || close < open) return undefined;
  const mark = text.slice(text.indexOf(FIRST.text) + FIRST.text.length, close);
  const at = text.lastIndexOf(FIRST.name, open);
  if (at < 0) return undefined;
  const last = `</${FIRST.numberKey}>`;
  const first = { from: at, to: text.indexOf(last) + last.length };
  const after = text.slice(at + FIRST.name.length, Math.min(open, text.indexOf("<zq_", at)));
  const secondAt = hasSecond ? text.indexOf(SECOND.name, first.to) : -1;
  const secondLast = `</${SECOND.numberKey}>`;
  return {
    form: {
      kind: "nested",
      mark,
      afterName: {
        first: after.endsWith(mark) ? after.slice(0, -mark.length) : after,
        last: undefined,
      },
    },
    first,
    second:
      secondAt < 0
        ? undefined
        : { from: secondAt, to: text.indexOf(secondLast, secondAt) + secondLast.length },
  };
}

function findTagged(text: string, hasSecond: boolean): Found | undefined {
  const key = text.indexOf(FIRST.textKey);
  const at = text.lastIndexOf(FIRST.name, key);
  const value = text.indexOf(FIRST.text, key);
  const key2 = text.indexOf(FIRST.numberKey, value);
  const value2 = text.indexOf(String(FIRST.number), key2);
  if ([key, at, value, key2, value2].some((place) => place < 0)) return undefined;
  const toKey = text.slice(at + FIRST.name.length, key);
  const toSecondKey = text.slice(value + FIRST.text.length, key2);
  const shared = commonSuffix(toKey, toSecondKey);
  const tagAt = shared.lastIndexOf("<");
  if (tagAt < 0) return undefined;
  const beforeKey = shared.slice(tagAt);
  const afterValue = commonPrefix(
    toSecondKey.slice(0, toSecondKey.length - beforeKey.length),
    text.slice(value2 + String(FIRST.number).length),
  ).trimEnd();
  const secondAt = hasSecond ? text.indexOf(SECOND.name, value2) : -1;
  const secondKey = text.indexOf(SECOND.numberKey, secondAt);
  const second = secondAt < 0 ? undefined : text.lastIndexOf(SECOND.name, secondKey);
  const afterName = (name: number, length: number, to: number): string =>
    text.slice(name + length, to - beforeKey.length);
  const form: TaggedForm = {
    kind: "tagged",
    afterName: counted(
      afterName(at, FIRST.name.length, key),
      second === undefined ? undefined : afterName(second, SECOND.name.length, secondKey),
    ),
    beforeKey,
    afterKey: {
      string: text.slice(key + FIRST.textKey.length, value),
      other: text.slice(key2 + FIRST.numberKey.length, value2),
    },
    afterValue,
    hasCdata: false,
  };
  const end = (from: number): number =>
    text.indexOf(afterValue.trim(), from) + afterValue.trim().length;
  return {
    form,
    first: { from: at, to: end(value2) },
    second: second === undefined ? undefined : { from: second, to: end(secondKey) },
  };
}
