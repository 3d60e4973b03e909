// Reads a request's body: its size, its JSON, its fields. A field is in the route's schema; or it would change the meaning of the
// answer, and is refused by name; or it is ignored and named (ignored-fields.ts). null counts as not given, as OpenAI's clients mean
// it.

import type * as z from "zod";
import { unknownName } from "../../src/base/options.ts";
import { bodyTooLarge, invalidRequest, unsupportedField } from "./errors.ts";
import type { IgnoredFields } from "./ignored-fields.ts";
import { JsonReader } from "./json-reader.ts";
import type { Call } from "./route.ts";

/** A field that is known but not supported here. */
export interface Refusal {
  why: string;
  /** Values that request nothing and are accepted: `n: 1`, `tools: []`. */
  fine?: (value: unknown) => boolean;
  /** The answer means the same without it, so it is refused with --strict-fields only. */
  isAdvice?: boolean;
}

export interface FieldRules {
  /** Known fields that have no meaning here, and are never refused. */
  accepted: readonly string[];
  refused: Readonly<Record<string, Refusal>>;
  /** Changes a body into one that the schema knows: other names of fields, tools that only a vendor's cloud can run. */
  adjust?: (body: Record<string, unknown>, ignored: IgnoredFields) => void;
  /** Whether a refused field requests nothing in combination with the others. */
  isFine?: (name: string, body: Readonly<Record<string, unknown>>) => boolean;
}

export const noRules: FieldRules = { accepted: [], refused: {} };

export const emptyList = (value: unknown): boolean => Array.isArray(value) && value.length === 0;
export const oneOf =
  (...values: unknown[]): ((value: unknown) => boolean) =>
  (value) =>
    values.includes(value);

/** The fields of a JSON body, checked. */
export async function readFields<S extends z.ZodObject>(
  call: Call,
  schema: S,
  rules: FieldRules,
): Promise<z.infer<S>> {
  const body = await readJson(call);
  if (typeof body !== "object" || body === null || Array.isArray(body)) {
    throw invalidRequest("the body is not a JSON object, expected one");
  }
  call.asksStream = (body as { stream?: unknown }).stream;
  return checkFields(body as Record<string, unknown>, schema, rules, "", call.ignored);
}

/** The same for an object inside the body, such as `options` in Ollama's requests. */
export function checkFields<S extends z.ZodObject>(
  body: Readonly<Record<string, unknown>>,
  schema: S,
  rules: FieldRules,
  prefix: string,
  ignored: IgnoredFields,
): z.infer<S> {
  const all = rules.adjust ? { ...body } : body;
  rules.adjust?.(all as Record<string, unknown>, ignored);
  const given: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(all)) {
    if (value === null) continue;
    if (rules.accepted.includes(name)) {
      ignored.see(prefix + name);
      continue;
    }
    if (Object.hasOwn(schema.shape, name)) {
      given[name] = value;
      continue;
    }
    const refusal = Object.hasOwn(rules.refused, name) ? rules.refused[name]! : undefined;
    const shown = prefix + name.slice(0, 200);
    if (refusal && (refusal.fine?.(value) || rules.isFine?.(name, all))) continue;
    if (refusal && (ignored.isStrict || !refusal.isAdvice)) {
      throw unsupportedField(shown, refusal.why);
    }
    if (!refusal && ignored.isStrict) {
      const known = Object.keys(schema.shape).map((field) => prefix + field);
      throw invalidRequest(unknownName("field", shown, known), shown, "unknown_parameter");
    }
    ignored.see(shown);
  }
  return parsed(given, schema, prefix, ignored);
}

/** Unknown nested fields are taken out and named: the rest is parsed. */
function parsed<S extends z.ZodObject>(
  given: Record<string, unknown>,
  schema: S,
  prefix: string,
  ignored: IgnoredFields,
): z.infer<S> {
  for (;;) {
    const result = schema.safeParse(given, { reportInput: true });
    if (result.success) return result.data as z.infer<S>;
    const { issues } = result.error;
    const issue = issues.find(({ code }) => code !== "unrecognized_keys");
    if (issue === undefined && !ignored.isStrict) {
      for (const unknown of issues) {
        if (unknown.code !== "unrecognized_keys") continue;
        const at = prefix + pathText(unknown.path);
        const object = valueAt(given, unknown.path);
        for (const key of unknown.keys) {
          delete object[key];
          ignored.see(`${at}.${key}`);
        }
      }
      continue;
    }
    const { path, ...wrong } = issue ?? issues[0]!;
    const shown = prefix + pathText(path);
    throw invalidRequest(`"${shown}": ${issueText(wrong)}`, shown, "invalid_type");
  }
}

function valueAt(from: Record<string, unknown>, path: readonly PropertyKey[]): Fields {
  return path.reduce((value: Fields, part) => value[part] as Fields, from);
}

type Fields = Record<PropertyKey, unknown>;

/** messages[2].content */
function pathText(path: readonly PropertyKey[]): string {
  return path
    .map((part, at) =>
      typeof part === "number" ? `[${part}]` : at === 0 ? String(part) : `.${String(part)}`,
    )
    .join("");
}

/** For a union, the message about its first member is rarely useful: name the whole instead. */
function issueText({ message, input }: { message: string; input?: unknown }): string {
  const text = message.replace(/^Invalid input: /, "").replace(/^Invalid input$/, "wrong type");
  return typeof input === "number" ? `${text}, got ${input}` : text;
}

/** Bodies up to this size are parsed in one go. */
const smallBody = 65_536;

/**
 * The body as JSON, with any fields, up to the server's size limit. `budget`: how much work its values may cause
 * (json-reader.ts). A large body waits in a queue: only a few are in memory at a time.
 */
export async function readJson(call: Call, budget?: number): Promise<unknown> {
  const { request, server } = call;
  const limit = server.settings.maxBodyBytes;
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > limit) throw bodyTooLarge(limit);
  const json = new JsonReader(budget);
  if (!request.body) return json.end();
  if (announced > smallBody) await enterLarge(call);
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let bytes = 0;
  const reader = request.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      bytes += value.length;
      if (bytes > limit) throw bodyTooLarge(limit);
      if (bytes > smallBody) await enterLarge(call);
      // A client may send megabytes at once; yield between pieces so that other requests are served.
      for (let at = 0; at < value.length; at += smallBody) {
        json.push(decode(decoder, value.subarray(at, at + smallBody)));
        if (bytes > smallBody) await pause();
      }
    }
    json.push(decode(decoder));
  } catch (error) {
    reader.cancel().catch(() => {});
    throw error;
  }
  return json.end();
}

/** app.ts gives the queue's entry back when the request's handler is done. */
async function enterLarge(call: Call): Promise<void> {
  call.large ??= await call.server.large.enter(call.client, call.signal);
}

/** Yields to other work. */
function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

function decode(decoder: TextDecoder, bytes?: Uint8Array): string {
  try {
    return bytes ? decoder.decode(bytes, { stream: true }) : decoder.decode();
  } catch {
    throw invalidRequest("the body is not UTF-8", null, "invalid_json");
  }
}
