// Reads a request's body: its size, its JSON, its fields. Every field is either in the route's schema, or in its list
// of harmless ones, or refused by name; null counts as not given, as OpenAI's clients mean it.

import type * as z from "zod";
import { unknownName } from "../base/options.ts";
import { bodyTooLarge, invalidRequest, unsupportedField } from "./errors.ts";
import { JsonReader } from "./json-reader.ts";
import type { Call } from "./route.ts";

/** A field that is known but not supported here. */
export interface Refusal {
  why: string;
  /** Values that request nothing and are accepted: `n: 1`, `tools: []`. */
  fine?: (value: unknown) => boolean;
}

export interface FieldRules {
  /** Known fields that do not change the answer. */
  accepted: readonly string[];
  refused: Readonly<Record<string, Refusal>>;
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
  return checkFields(body as Record<string, unknown>, schema, rules, "");
}

/** The same for an object inside the body, such as `options` in Ollama's requests. */
export function checkFields<S extends z.ZodObject>(
  body: Readonly<Record<string, unknown>>,
  schema: S,
  rules: FieldRules,
  prefix: string,
): z.infer<S> {
  const given: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(body)) {
    if (value === null || rules.accepted.includes(name)) continue;
    if (Object.hasOwn(schema.shape, name)) {
      given[name] = value;
      continue;
    }
    const refusal = Object.hasOwn(rules.refused, name) ? rules.refused[name]! : undefined;
    const shown = prefix + name.slice(0, 200);
    if (!refusal) {
      const known = Object.keys(schema.shape).map((field) => prefix + field);
      const text = unknownName("field", shown, known);
      throw invalidRequest(text, shown, "unknown_parameter");
    }
    if (!refusal.fine?.(value) && !rules.isFine?.(name, body))
      throw unsupportedField(shown, refusal.why);
  }
  const parsed = schema.safeParse(given, { reportInput: true });
  if (parsed.success) return parsed.data as z.infer<S>;
  const [issue] = parsed.error.issues;
  const path = prefix + pathText(issue!.path);
  throw invalidRequest(`"${path}": ${issueText(issue!)}`, path, "invalid_type");
}

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
 * (json-reader.ts). A large body needs a turn: only a few are in memory at a time.
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

/** app.ts gives the turn back when the request's handler is done. */
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
