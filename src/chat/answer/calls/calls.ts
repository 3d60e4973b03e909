// Calls in an answer, in any form: one after the other, in a section or not.

import type { AnswerTool, CallForm, CallFormat } from "../../../api/answer-format.ts";
import { NotJson } from "../json-value.ts";
import { acceptMarker, has, type Reading, space } from "../source.ts";
import { readBareKeysCall } from "./bare-keys.ts";
import { type CallContext, NoCall } from "./call-reader.ts";
import { readJsonCalls } from "./json-calls.ts";
import { readNamedCall } from "./named.ts";
import { readNestedCall } from "./nested.ts";
import { readPythonCalls } from "./python.ts";
import { readTaggedCall } from "./tagged.ts";

/** A reader for each form, behind the start of a call. */
const readers: {
  readonly [K in CallForm["kind"]]: (
    context: CallContext,
    form: Extract<CallForm, { kind: K }>,
  ) => Reading<void>;
} = {
  json: readJsonCalls,
  named: readNamedCall,
  tagged: readTaggedCall,
  python: readPythonCalls,
  "bare-keys": readBareKeysCall,
  nested: readNestedCall,
};

const readCall = (context: CallContext): Reading<void> =>
  (readers[context.format.form.kind] as (context: CallContext, form: CallForm) => Reading<void>)(
    context,
    context.format.form,
  );

/** "<function=" of "<tool_call>\n<function=": models leave the outer tag out. */
export function innerStart(start: string): string | undefined {
  const at = start.lastIndexOf("<");
  return at > 0 && start.slice(0, at).trim() !== "" ? start.slice(at) : undefined;
}

/** Texts at which calls begin. */
export function callStarts({ section, call }: CallFormat, tools: readonly AnswerTool[]): string[] {
  const starts = [section.start.trim(), call.start.trim()].filter((start) => start !== "");
  const inner = innerStart(call.start);
  if (inner !== undefined) for (const { name } of tools) starts.push(inner.trim() + name);
  return starts;
}

/**
 * Reads all calls from the start of the first. A call that breaks off after its name keeps the part that was read; text that turns
 * out not to be a call is given back as text.
 */
export function* readCalls(context: CallContext): Reading<string> {
  const { source, sink, format } = context;
  const before = sink.calls;
  source.record();
  try {
    yield* acceptMarker(source, format.section.start);
    do {
      yield* acceptStart(context);
      yield* readCall(context);
      yield* acceptMarker(source, format.call.end);
    } while (yield* isNextCall(context));
    yield* acceptMarker(source, format.section.end);
    source.recorded();
    return "";
  } catch (error) {
    if (!(error instanceof NoCall || error instanceof NotJson)) throw error;
    const text = source.recorded();
    if (sink.calls > before) sink.endCall();
    return sink.calls > before ? "" : text;
  }
}

function* acceptStart({ source, format }: CallContext): Reading<void> {
  const { start } = format.call;
  if (yield* acceptMarker(source, start)) return;
  const inner = innerStart(start);
  if (inner === undefined || !(yield* acceptMarker(source, inner))) {
    throw new NoCall(`expected ${JSON.stringify(start)}`);
  }
}

function* isNextCall({ source, format }: CallContext): Reading<boolean> {
  const { section, call, separator, form } = format;
  if (form.kind === "python") return false;
  if (separator.trim() !== "") yield* acceptMarker(source, separator);
  const start = call.start.trim();
  if (start !== "") {
    // The closing tag of a call that was opened without its outer tag.
    const isNext = yield* comesNext(source, start);
    if (isNext) return true;
    const inner = innerStart(call.start);
    if (inner !== undefined && (yield* comesNext(source, inner.trim()))) return true;
    // Several sections, one after the other.
    if (section.start.trim() !== "" && section.end.trim() === "") {
      return yield* acceptMarker(source, section.start);
    }
    return false;
  }
  if (section.end.trim() === "" && section.start.trim() === "") return false;
  yield* space(source);
  return (yield* has(source, 1)) && (source.charAt(0) === "{" || source.charAt(0) === "[");
}

/** Whether `literal` comes next, with whitespace before it or without. Reads the whitespace only if it does. */
function* comesNext(source: CallContext["source"], literal: string): Reading<boolean> {
  let spaces = 0;
  while ((yield* has(source, spaces + 1)) && /\s/.test(source.charAt(spaces))) spaces++;
  while (source.length < spaces + literal.length && !source.isEnded) {
    if (!literal.startsWith(source.rest.slice(spaces))) return false;
    yield;
  }
  return source.rest.startsWith(literal, spaces);
}
