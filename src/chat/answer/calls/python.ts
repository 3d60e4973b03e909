// Calls as Python writes them: `[f(a=1, b="x"), g()]`.

import { accept, has, type Reading, Source, space } from "../source.ts";
import { type CallContext, escaped, NoCall, nameUpTo } from "./call-reader.ts";

export function* readPythonCalls({ source, sink }: CallContext): Reading<void> {
  yield* space(source);
  const isList = yield* accept(source, "[");
  for (;;) {
    yield* space(source);
    if (isList && (yield* accept(source, "]"))) return;
    const name = (yield* nameUpTo(source, "(")).trim();
    if (!/^[\w.-]+$/.test(name)) throw new NoCall("no name before a parenthesis");
    sink.call(name, "");
    yield* readArguments(source, (text) => sink.arguments(text));
    if (source.isDone) return;
    sink.endCall();
    yield* space(source);
    if (!(yield* accept(source, ",")) && !isList) return;
    if (source.isDone) return;
  }
}

function* readArguments(source: Source, emit: (text: string) => void): Reading<void> {
  let count = 0;
  for (;;) {
    yield* space(source);
    if (yield* accept(source, ")")) {
      if (count > 0) emit("}");
      return;
    }
    if (!(yield* has(source, 1))) return;
    const key = (yield* nameUpTo(source, "=")).trim();
    emit(`${count++ === 0 ? "{" : ", "}${JSON.stringify(key)}: `);
    yield* readPythonValue(source, emit);
    yield* space(source);
    yield* accept(source, ",");
  }
}

/** A text that is one Python literal, as JSON; undefined if it is none. */
export function pythonLiteral(text: string): string | undefined {
  const source = new Source();
  source.push(text);
  source.end();
  let json = "";
  try {
    const reading = readPythonValue(source, (part) => {
      json += part;
    });
    while (!reading.next().done);
    JSON.parse(json);
  } catch (error) {
    if (error instanceof NoCall || error instanceof SyntaxError) return undefined;
    throw error;
  }
  return source.rest.trim() === "" ? json : undefined;
}

const words: Readonly<Record<string, string>> = { True: "true", False: "false", None: "null" };

/** A Python literal as JSON. */
function* readPythonValue(source: Source, emit: (text: string) => void): Reading<void> {
  yield* space(source);
  if (!(yield* has(source, 1))) return;
  const first = source.charAt(0);
  if (first === '"' || first === "'") yield* readString(source, emit);
  else if (first === "[" || first === "(") yield* readList(source, emit);
  else if (first === "{") yield* readDict(source, emit);
  else {
    let word = "";
    while ((yield* has(source, 1)) && /[\w.+-]/.test(source.charAt(0))) word += source.take(1);
    if (word === "") throw new NoCall("no value");
    emit(
      words[word] ??
        (/^(-?\d[\d.eE+-]*|true|false|null)$/.test(word) ? word : JSON.stringify(word)),
    );
  }
}

const escapes: Readonly<Record<string, string>> = {
  n: "\n",
  t: "\t",
  r: "\r",
  b: "\b",
  f: "\f",
  "0": "\0",
};

function* readString(source: Source, emit: (text: string) => void): Reading<void> {
  const quote = source.take(1);
  emit('"');
  for (;;) {
    if (!(yield* has(source, 1))) return;
    const char = source.take(1);
    if (char === quote) {
      emit('"');
      return;
    }
    if (char !== "\\") {
      emit(escaped(char));
      continue;
    }
    if (!(yield* has(source, 1))) return;
    const next = source.take(1);
    const digits = next === "u" ? 4 : next === "x" ? 2 : 0;
    if (digits > 0) {
      if (!(yield* has(source, digits))) return;
      emit(escaped(String.fromCharCode(Number.parseInt(source.take(digits), 16) || 0xfffd)));
    } else emit(escaped(escapes[next] ?? next));
  }
}

function* readList(source: Source, emit: (text: string) => void): Reading<void> {
  const close = source.take(1) === "[" ? "]" : ")";
  emit("[");
  for (let count = 0; ; count++) {
    yield* space(source);
    if (yield* accept(source, close)) break;
    if (!(yield* has(source, 1))) return;
    if (count > 0) emit(", ");
    yield* readPythonValue(source, emit);
    yield* space(source);
    yield* accept(source, ",");
  }
  emit("]");
}

function* readDict(source: Source, emit: (text: string) => void): Reading<void> {
  source.take(1);
  emit("{");
  for (let count = 0; ; count++) {
    yield* space(source);
    if (yield* accept(source, "}")) break;
    if (!(yield* has(source, 1))) return;
    if (count > 0) emit(", ");
    yield* readPythonValue(source, emit);
    yield* space(source);
    if (!(yield* accept(source, ":"))) {
      if (source.isDone) return;
      throw new NoCall("expected a colon");
    }
    emit(": ");
    yield* readPythonValue(source, emit);
    yield* space(source);
    yield* accept(source, ",");
  }
  emit("}");
}
