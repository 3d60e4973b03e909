// Gemma 4's calls: `call:f{key:<|"|>text<|"|>,n:1}`, keys without quotes, strings between marks.

import type { BareKeysForm } from "../../../api/answer-format.ts";
import { accept, follows, has, type Reading, type Source, space, upTo } from "../source.ts";
import { type CallContext, escaped, NoCall, nameUpTo } from "./call-reader.ts";

export function* readBareKeysCall(
  { source, sink }: CallContext,
  { quote }: BareKeysForm,
): Reading<void> {
  const name = (yield* nameUpTo(source, "{")).trim();
  if (name === "") throw new NoCall("a call without a name");
  sink.call(name, "");
  yield* readMembers(source, quote, (text) => sink.arguments(text));
  sink.endCall();
}

/** Behind the opening brace. */
function* readMembers(source: Source, quote: string, emit: (text: string) => void): Reading<void> {
  emit("{");
  for (let count = 0; ; count++) {
    yield* space(source);
    if (yield* accept(source, "}")) break;
    if (!(yield* has(source, 1))) return;
    yield* accept(source, quote); // a key with quotes is understood, too
    let key = yield* nameUpTo(source, ":");
    if (key.endsWith(quote)) key = key.slice(0, -quote.length);
    emit(`${count > 0 ? ", " : ""}${JSON.stringify(key.trim())}: `);
    yield* readValue(source, quote, emit);
    yield* space(source);
    yield* accept(source, ",");
  }
  emit("}");
}

function* readValue(source: Source, quote: string, emit: (text: string) => void): Reading<void> {
  yield* space(source);
  if (yield* follows(source, quote)) {
    source.take(quote.length);
    emit('"');
    const end = yield* upTo(source, [quote], (text) => emit(escaped(text)));
    if (end === undefined) return;
    source.take(quote.length);
    emit('"');
  } else if (yield* accept(source, "{")) yield* readMembers(source, quote, emit);
  else if (yield* accept(source, "[")) {
    emit("[");
    for (let count = 0; ; count++) {
      yield* space(source);
      if (yield* accept(source, "]")) break;
      if (!(yield* has(source, 1))) return;
      if (count > 0) emit(", ");
      yield* readValue(source, quote, emit);
      yield* space(source);
      yield* accept(source, ",");
    }
    emit("]");
  } else {
    let word = "";
    while ((yield* has(source, 1)) && /[^,}\]\s]/.test(source.charAt(0))) word += source.take(1);
    if (source.isDone && word === "") return;
    emit(isJson(word) ? word : JSON.stringify(word));
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
