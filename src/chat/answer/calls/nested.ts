// MiniMax M3's calls: arguments, members of objects and elements of arrays are tags in one another, each after the same mark:
// `M<invoke name="f">M<city>TokyoM</city>M</invoke>`. The schema gives the type of a value.

import type { NestedForm } from "../../../api/answer-format.ts";
import { accept, follows, has, type Reading, upTo } from "../source.ts";
import {
  type CallContext,
  countedName,
  escaped,
  isObject,
  nameUpTo,
  typesOf,
} from "./call-reader.ts";

export function* readNestedCall(context: CallContext, form: NestedForm): Reading<void> {
  const { source, sink, tools } = context;
  const { name } = yield* countedName(source, form.afterName);
  sink.call(name.trim(), "");
  const parameters = tools.find((tool) => tool.name === name.trim())?.parameters;
  const isWhole = yield* readMembers(context, form, parameters, "{");
  if (isWhole) sink.endCall();
}

/** Members up to a closing tag, which is not read. Nothing is written for none of them: the caller knows what that means. */
function* readMembers(
  context: CallContext,
  form: NestedForm,
  schema: unknown,
  open: "{" | "[",
): Reading<boolean> {
  const { source, sink } = context;
  let count = 0;
  for (;;) {
    if (yield* follows(source, `${form.mark}</`)) break;
    if (!(yield* accept(source, `${form.mark}<`))) break;
    const key = yield* nameUpTo(source, ">");
    sink.arguments(count++ === 0 ? open : ", ");
    if (open === "{") sink.arguments(`${JSON.stringify(key)}: `);
    if (!(yield* readValue(context, form, memberSchema(schema, key, open), key))) return false;
  }
  if (count > 0) sink.arguments(open === "{" ? "}" : "]");
  return !source.isDone;
}

function* readValue(
  context: CallContext,
  form: NestedForm,
  schema: unknown,
  key: string,
): Reading<boolean> {
  const { source, sink } = context;
  const close = `${form.mark}</${key}>`;
  const types = typesOf(schema);
  const isNested =
    (types.has("object") || types.has("array") || types.size === 0) &&
    (yield* follows(source, `${form.mark}<`)) &&
    !(yield* follows(source, close));
  if (isNested) {
    const isArray = types.has("array") && (yield* follows(source, `${form.mark}<item>`));
    yield* readMembers(context, form, schema, isArray ? "[" : "{");
    return yield* accept(source, close);
  }
  if (types.size === 1 && types.has("string")) {
    sink.arguments('"');
    const end = yield* upTo(source, [close], (text) => sink.arguments(escaped(text)));
    if (end === undefined) return false;
    sink.arguments('"');
  } else {
    let text = "";
    const end = yield* upTo(source, [close], (piece) => {
      text += piece;
    });
    if (end === undefined) return false;
    sink.arguments(text === "" ? emptyOf(types) : jsonOf(text, types));
  }
  source.take(close.length);
  yield* has(source, 1);
  return true;
}

const emptyOf = (types: ReadonlySet<string>): string =>
  types.has("array") ? "[]" : types.has("object") ? "{}" : '""';

function jsonOf(text: string, types: ReadonlySet<string>): string {
  try {
    const value: unknown = JSON.parse(text);
    const isString = types.has("string") && typeof value !== "string" && types.size === 1;
    return isString ? JSON.stringify(text) : text.trim();
  } catch {
    return JSON.stringify(text);
  }
}

/** The schema of a member or an element, in whichever branch of the schema has it. */
function memberSchema(schema: unknown, key: string, open: "{" | "["): unknown {
  if (!isObject(schema)) return undefined;
  if (open === "[" && schema.items !== undefined) return schema.items;
  if (open === "{" && isObject(schema.properties) && Object.hasOwn(schema.properties, key)) {
    return schema.properties[key];
  }
  for (const name of ["anyOf", "oneOf", "allOf"] as const) {
    const branches = schema[name];
    if (!Array.isArray(branches)) continue;
    for (const branch of branches) {
      const found = memberSchema(branch, key, open);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}
