// Reading a request's body: its size, its JSON, its fields. Every field is either in the route's schema, in its list of
// harmless ones, or refused by name; null counts as not given, as OpenAI's clients mean it.

import type * as z from "zod";
import { bodyTooLarge, invalidRequest, unsupportedField } from "./errors.ts";
import type { Call } from "./route.ts";

/** A field that is known and not done here. */
export interface Refusal {
  why: string;
  /** Values that ask for nothing, and may pass: `n: 1`, `tools: []`. */
  fine?: (value: unknown) => boolean;
}

export interface FieldRules {
  /** Known fields that change nothing of the answer. */
  accepted: readonly string[];
  refused: Readonly<Record<string, Refusal>>;
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
    throw invalidRequest("the body: expected a JSON object");
  }
  return checkFields(body as Record<string, unknown>, schema, rules, "");
}

/** The same for an object inside the body: `options` of Ollama's requests. */
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
      throw invalidRequest(`unknown field "${shown}"`, shown, "unknown_parameter");
    }
    if (!refusal.fine?.(value)) throw unsupportedField(shown, refusal.why);
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

/** Of a union, what its first kind says is seldom what was meant: name the whole instead. */
function issueText({ message, input }: { message: string; input?: unknown }): string {
  const text = message.replace(/^Invalid input: /, "").replace(/^Invalid input$/, "wrong type");
  return typeof input === "number" ? `${text}, got ${input}` : text;
}

/** The body as JSON, whatever its fields. */
export async function readJson(call: Call): Promise<unknown> {
  const text = await readText(call);
  if (text.trim() === "") throw invalidRequest("the body is empty: expected a JSON object");
  try {
    return JSON.parse(text);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.slice(0, 200) : "";
    throw invalidRequest(`the body is not JSON: ${reason}`, null, "invalid_json");
  }
}

/** The body as text, and no more of it than the server's limit. */
async function readText({ request, server }: Call): Promise<string> {
  const limit = server.settings.maxBodyBytes;
  if (Number(request.headers.get("content-length") ?? 0) > limit) throw bodyTooLarge(limit);
  if (!request.body) return "";
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let bytes = 0;
  let text = "";
  const reader = request.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (bytes > limit) {
      reader.cancel().catch(() => {});
      throw bodyTooLarge(limit);
    }
    text += decode(() => decoder.decode(value, { stream: true }));
  }
  return text + decode(() => decoder.decode());
}

function decode(run: () => string): string {
  try {
    return run();
  } catch {
    throw invalidRequest("the body is not UTF-8", null, "invalid_json");
  }
}
