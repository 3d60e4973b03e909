// The common part of the readers of calls. A reader begins after the marker of a call and ends after the call.

import type { AnswerTool, CallFormat, Counted } from "../../../api/answer-format.ts";
import type { AnswerSink } from "../sink.ts";
import { accept, has, type Reading, type Source } from "../source.ts";

export interface CallContext {
  readonly source: Source;
  readonly sink: AnswerSink;
  readonly format: CallFormat;
  readonly tools: readonly AnswerTool[];
}

/** The text is not a call. If its name has not been given yet, it is plain text. */
export class NoCall extends Error {}

/** A name up to `end`, which is read too. Names of tools are short. */
export function* nameUpTo(source: Source, end: string): Reading<string> {
  const core = end.trimEnd();
  const first = core === "" ? end : core;
  let name = "";
  while (yield* has(source, 1)) {
    if (source.charAt(0) === first[0] && (yield* accept(source, first))) {
      for (const char of end.slice(first.length)) if (!(yield* accept(source, char))) break;
      return name;
    }
    name += source.take(1);
    if (name.length > 256 || name.includes("\n\n")) throw new NoCall("a name without an end");
  }
  throw new NoCall("the text ends in a name");
}

/** A name and the text after it, which may have a number in it. Gives both. */
export function* countedName(
  source: Source,
  after: Counted,
): Reading<{ name: string; count: string }> {
  const name = yield* nameUpTo(source, after.first);
  let count = "";
  if (after.last === undefined) return { name, count };
  while ((yield* has(source, 1)) && /\d/.test(source.charAt(0))) count += source.take(1);
  const core = after.last.trimEnd();
  if (!(yield* accept(source, core)))
    throw new NoCall(`expected ${JSON.stringify(core)} after a name`);
  for (const char of after.last.slice(core.length)) if (!(yield* accept(source, char))) break;
  return { name, count };
}

/** The schema of an argument; undefined if the tool has none. */
export function schemaOf(tools: readonly AnswerTool[], name: string, key: string): unknown {
  const parameters = tools.find((tool) => tool.name === name)?.parameters;
  const properties = isObject(parameters) ? parameters.properties : undefined;
  return isObject(properties) && Object.hasOwn(properties, key) ? properties[key] : undefined;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The types that a schema allows; empty if it does not say. */
export function typesOf(schema: unknown): ReadonlySet<string> {
  const found = new Set<string>();
  const look = (part: unknown, depth: number): void => {
    if (!isObject(part) || depth > 8) return;
    const { type } = part;
    for (const one of Array.isArray(type) ? type : [type]) {
      if (typeof one === "string") found.add(one);
    }
    const values = [
      ...(Array.isArray(part.enum) ? part.enum : []),
      ...("const" in part ? [part.const] : []),
    ];
    if (type === undefined) for (const value of values) found.add(typeOf(value));
    for (const key of ["anyOf", "oneOf", "allOf"] as const) {
      const parts = part[key];
      if (Array.isArray(parts)) for (const one of parts) look(one, depth + 1);
    }
  };
  look(schema, 0);
  return found;
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** The inside of a JSON string. */
export const escaped = (text: string): string => JSON.stringify(text).slice(1, -1);
