// Calls as JSON objects, one by one or in an array: `{"name": "f", "arguments": {...}}`, `[{"f": {...}}]`.

import type { JsonForm } from "../../../api/answer-format.ts";
import { copyJson, NotJson, parseJson } from "../json-value.ts";
import { accept, has, type Reading, space } from "../source.ts";
import { type CallContext, NoCall } from "./call-reader.ts";

export function* readJsonCalls(context: CallContext, form: JsonForm): Reading<void> {
  const { source } = context;
  yield* space(source);
  const isList = yield* accept(source, "[");
  if (!isList) return yield* readObject(context, form);
  for (;;) {
    yield* space(source);
    if (yield* accept(source, "]")) return;
    yield* readObject(context, form);
    yield* space(source);
    yield* accept(source, ",");
    if (source.isDone) return;
  }
}

/** A call in the making: arguments may come before the name. */
class PendingCall {
  name: string | undefined;
  id = "";
  isBegun = false;
  held = "";
}

function* readObject(context: CallContext, form: JsonForm): Reading<void> {
  const pending = new PendingCall();
  yield* readMembers(context, form, pending);
  if (pending.name === undefined) throw new NoCall("an object without a name");
  begin(context, pending);
  context.sink.endCall();
}

function* readMembers(context: CallContext, form: JsonForm, pending: PendingCall): Reading<void> {
  const { source } = context;
  yield* space(source);
  if (!(yield* accept(source, "{"))) throw new NoCall("expected an object");
  for (;;) {
    yield* space(source);
    if (yield* accept(source, "}")) return;
    if (!(yield* has(source, 1))) return;
    const key = yield* parseJson(source);
    if (key === undefined) return;
    if (typeof key !== "string") throw new NoCall("a key that is no string");
    yield* space(source);
    if (!(yield* accept(source, ":"))) {
      if (source.isDone) return;
      throw new NoCall("expected a colon");
    }
    const isNameKey = form.nameKey === undefined;
    if (key === form.innerKey) yield* readMembers(context, form, pending);
    else if (key === form.nameKey) {
      pending.name = yield* readName(context);
      if (form.idKey === undefined || pending.id !== "") begin(context, pending);
    } else if (key === form.idKey) {
      pending.id = yield* readId(context);
      if (pending.isBegun) context.sink.lateId(pending.id);
    } else if (isNameKey || key === form.argumentsKey) {
      if (isNameKey) pending.name = key;
      // An id may still come, but names and arguments are not held back for it.
      if (pending.name !== undefined) begin(context, pending);
      yield* readArguments(context, pending);
    } else yield* copyJson(source, () => {});
    yield* space(source);
    if (!(yield* accept(source, ","))) {
      yield* space(source);
      if (yield* accept(source, "}")) return;
      if (source.isDone) return;
      throw new NoCall("expected a comma");
    }
  }
}

function begin({ sink }: CallContext, pending: PendingCall): void {
  if (pending.isBegun || pending.name === undefined) return;
  pending.isBegun = true;
  sink.call(pending.name, pending.id);
  sink.arguments(pending.held);
}

function* readName({ source }: CallContext): Reading<string> {
  const value = yield* parseJson(source);
  if (typeof value === "string" && value !== "") return value;
  throw new NoCall("the name is no string");
}

/** Some models count their calls. */
function* readId({ source }: CallContext): Reading<string> {
  const value = yield* parseJson(source);
  return typeof value === "string" || typeof value === "number" ? String(value) : "";
}

/** An object, or a string with an object in it. */
function* readArguments({ source, sink }: CallContext, pending: PendingCall): Reading<void> {
  const emit = (text: string): void => {
    if (pending.isBegun) sink.arguments(text);
    else pending.held += text;
  };
  yield* space(source);
  if ((yield* has(source, 1)) && source.charAt(0) === '"') {
    const value = yield* parseJson(source);
    if (typeof value === "string") emit(value);
    return;
  }
  try {
    yield* copyJson(source, emit);
  } catch (error) {
    if (!(error instanceof NotJson)) throw error;
    throw new NoCall(error.message, { cause: error });
  }
}
