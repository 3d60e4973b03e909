// Calls with a tag for each argument: `<function=f><parameter=k>v</parameter></function>`. Values are plain text; the tool's
// schema says whether they are strings, or the tag does (`string="true"`). They become JSON while they come.

import type { TaggedForm } from "../../../api/answer-format.ts";
import { accept, acceptMarker, follows, has, type Reading, type Source, upTo } from "../source.ts";
import {
  type CallContext,
  countedName,
  escaped,
  NoCall,
  nameUpTo,
  schemaOf,
  typesOf,
} from "./call-reader.ts";
import { pythonLiteral } from "./python.ts";

export function* readTaggedCall(context: CallContext, form: TaggedForm): Reading<void> {
  const { source, sink } = context;
  const { name } = yield* readName(context, form);
  sink.call(name, "");
  let count = 0;
  let isWhole = true;
  while (yield* acceptMarker(source, form.beforeKey)) {
    const { key, isString } = yield* readKey(source, form);
    sink.arguments(`${count++ === 0 ? "{" : ", "}${JSON.stringify(key)}: `);
    isWhole = yield* readValue(context, form, name, key, isString);
  }
  if (source.isDone && count > 0 && !isWhole) return; // it breaks off in a value
  if (count > 0) sink.arguments("}");
  sink.endCall();
}

/** GLM writes a call without arguments as `<tool_call>f</tool_call>`: the end of the call ends the name, too. */
function* readName({ source, format }: CallContext, form: TaggedForm): Reading<{ name: string }> {
  if (form.afterName.first.trim() !== "" || form.afterName.last !== undefined) {
    const { name } = yield* countedName(source, form.afterName);
    return { name: name.trim() };
  }
  let name = "";
  const stops = [form.beforeKey.trim(), format.call.end.trim()].filter((stop) => stop !== "");
  yield* upTo(source, stops, (text) => {
    name += text;
  });
  if (name.trim() === "") throw new NoCall("a call without a name");
  return { name: name.trim() };
}

/** A key, and whether its tag says that the value is a string. */
function* readKey(
  source: Source,
  form: TaggedForm,
): Reading<{ key: string; isString: boolean | undefined }> {
  const { string, other } = form.afterKey;
  if (string === other) return { key: yield* nameUpTo(source, string), isString: undefined };
  let shared = 0;
  while (shared < string.length && string[shared] === other[shared]) shared++;
  const key = yield* nameUpTo(source, string.slice(0, shared));
  if (yield* accept(source, string.slice(shared))) return { key, isString: true };
  if (yield* accept(source, other.slice(shared))) return { key, isString: false };
  // Another type in the tag ("type=\"object\""): the rest up to the end of the tag is skipped.
  yield* nameUpTo(source, lastTag(string));
  return { key, isString: false };
}

const lastTag = (text: string): string => {
  const core = text.trimEnd();
  const at = Math.max(core.lastIndexOf('"'), 0);
  return core.slice(at);
};

/** Says whether the value is whole. */
function* readValue(
  context: CallContext,
  form: TaggedForm,
  name: string,
  key: string,
  isString: boolean | undefined,
): Reading<boolean> {
  const { source, sink, tools } = context;
  const types = typesOf(schemaOf(tools, name, key));
  const isText = isString ?? (types.size === 1 && types.has("string"));
  const core = form.afterValue.trim();
  const lead = form.afterValue.slice(0, form.afterValue.indexOf(core));
  const stops = lead === "" ? [core] : [lead + core, core];
  if (form.hasCdata && (yield* follows(source, "<![CDATA["))) {
    source.take("<![CDATA[".length);
    sink.arguments('"');
    yield* upTo(source, ["]]>"], (text) => sink.arguments(escaped(text)));
    yield* accept(source, "]]>");
    sink.arguments('"');
    return yield* acceptMarker(source, form.afterValue);
  }
  if (isText) {
    sink.arguments('"');
    const end = yield* upTo(source, stops, (text) => sink.arguments(escaped(text)));
    if (end === undefined) return false;
    sink.arguments('"');
  } else {
    let text = "";
    const end = yield* upTo(source, stops, (piece) => {
      text += piece;
    });
    if (end === undefined) return false;
    sink.arguments(jsonOf(text, types, isString === undefined));
  }
  yield* acceptMarker(source, form.afterValue);
  yield* has(source, 1);
  return true;
}

/** Text as JSON: as it stands if it is, otherwise as a string. */
function jsonOf(text: string, types: ReadonlySet<string>, mayBeString: boolean): string {
  const value = text.trim();
  try {
    const parsed: unknown = JSON.parse(value);
    const isOther = types.size > 0 && mayBeString && types.has("string");
    // "5" for {"type": ["string", "null"]} is a string; null is null.
    if (isOther && parsed !== null && !types.has(jsonType(parsed))) return JSON.stringify(text);
    return value;
  } catch {
    if (value === "True" || value === "False") return value.toLowerCase();
    if (value === "None") return "null";
    // {'key': 'value'} for an object or a list.
    const isOpen = value.startsWith("{") || value.startsWith("[");
    const mayBeText = types.size === 0 || types.has("string");
    const literal = isOpen && !mayBeText ? pythonLiteral(value) : undefined;
    return literal ?? JSON.stringify(text);
  }
}

function jsonType(value: unknown): string {
  if (Array.isArray(value)) return "array";
  return typeof value;
}
