// One JSON value in arriving text, copied as it stands while it comes.

import { has, type Reading, type Source, space } from "./source.ts";

/** The text is not JSON. */
export class NotJson extends Error {}

const literals = ["true", "false", "null"];

/** Copies a value to `emit`, without the whitespace before it. Ends early, without an error, if the text ends inside of it. */
export function* copyJson(source: Source, emit: (text: string) => void): Reading<boolean> {
  yield* space(source);
  if (!(yield* has(source, 1))) return false;
  const first = source.charAt(0);
  if (first === "{" || first === "[") return yield* copyNested(source, emit);
  if (first === '"') return yield* copyString(source, emit);
  return yield* copyScalar(source, emit);
}

/** A value, parsed. undefined: the text ended inside of it. */
export function* parseJson(source: Source): Reading<unknown> {
  let text = "";
  const isWhole = yield* copyJson(source, (piece) => {
    text += piece;
  });
  if (!isWhole) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw new NotJson(`not JSON: ${text.slice(0, 80)}`, { cause });
  }
}

function* copyNested(source: Source, emit: (text: string) => void): Reading<boolean> {
  const closers: string[] = [];
  for (;;) {
    if (!(yield* has(source, 1))) return false;
    const char = source.charAt(0);
    if (char === '"') {
      if (!(yield* copyString(source, emit))) return false;
      continue;
    }
    source.take(1);
    if (char === "{" || char === "[") closers.push(char === "{" ? "}" : "]");
    else if (char === "}" || char === "]") {
      if (closers.pop() !== char) throw new NotJson(`"${char}" closes nothing`);
    }
    emit(char);
    if (closers.length === 0) return true;
  }
}

function* copyString(source: Source, emit: (text: string) => void): Reading<boolean> {
  emit(source.take(1));
  for (;;) {
    if (!(yield* has(source, 1))) return false;
    // All that has come of the string is one piece.
    const text = source.rest;
    let at = 0;
    while (at < text.length && text[at] !== '"' && text[at] !== "\\") at++;
    if (at > 0) emit(source.take(at));
    if (at === text.length) continue;
    if (text[at] === '"') {
      emit(source.take(1));
      return true;
    }
    if (!(yield* has(source, 2))) {
      return false;
    }
    emit(source.take(2));
  }
}

function* copyScalar(source: Source, emit: (text: string) => void): Reading<boolean> {
  let text = "";
  while ((yield* has(source, 1)) && /[\w.+-]/.test(source.charAt(0))) text += source.take(1);
  const isNumber = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text);
  if (!isNumber && !literals.includes(text)) {
    if (source.isDone && (text === "" || /^[-\w.+]+$/.test(text))) return false;
    throw new NotJson(`not a JSON value: "${text}"`);
  }
  emit(text);
  return true;
}
