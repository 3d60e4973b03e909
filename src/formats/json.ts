// Reads untrusted JSON from model files: checks size, UTF-8, depth and (where it matters) duplicate keys. Every
// failure is a FormatError that names the file.

import { FormatError, messageOf } from "../base/errors.ts";
import type { ByteSource } from "../platform/platform.ts";

export type JsonObject = Readonly<Record<string, unknown>>;

export interface JsonFacts {
  format: string;
  file: string;
  field: string;
}

/** Real headers and configurations nest 4 to 6 levels deep; a tokenizer about 8. */
const deepest = 64;
/** The largest tokenizers have two million values. A parsed value takes many times the memory of its text. */
const mostValues = 16_000_000;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads a whole file as a JSON object; `mostBytes` is the largest reasonable size for this kind of file. */
export async function readJsonFile(
  source: ByteSource,
  mostBytes: number,
  format: string,
): Promise<JsonObject> {
  const facts = { format, file: source.name, field: "JSON" };
  if (source.size > mostBytes) {
    throw new FormatError(format, {
      ...facts,
      field: "file size",
      got: source.size,
      expected: `at most ${mostBytes} bytes`,
    });
  }
  return parseJsonObject(await source.read(0, source.size), facts);
}

export function parseJsonObject(bytes: Uint8Array, facts: JsonFacts): JsonObject {
  const text = decodeText(bytes, facts);
  checkDepth(text, facts);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const got = messageOf(error);
    throw new FormatError(
      facts.format,
      { ...facts, got, expected: "valid JSON" },
      { cause: error },
    );
  }
  if (isObject(value)) return value;
  throw new FormatError(facts.format, { ...facts, got: describe(value), expected: "an object" });
}

export function decodeText(bytes: Uint8Array, facts: JsonFacts): string {
  try {
    return utf8.decode(bytes);
  } catch (error) {
    const expected = "valid UTF-8";
    throw new FormatError(facts.format, { ...facts, got: bytes, expected }, { cause: error });
  }
}

/**
 * JSON.parse silently keeps the last of two equal keys. This finds duplicates at every depth; `text` is already known
 * to be valid JSON.
 */
export function checkUniqueKeys(text: string, facts: JsonFacts): void {
  const open: Set<string>[] = []; // one per open object or array; arrays never get a key
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === "{" || c === "[") open.push(new Set());
    else if (c === "}" || c === "]") open.pop();
    else if (c === '"') {
      const start = i;
      i = endOfString(text, start);
      if (!isKey(text, i + 1)) continue;
      const key = JSON.parse(text.slice(start, i + 1)) as string;
      const keys = open.at(-1)!;
      if (keys.has(key)) {
        throw new FormatError(facts.format, {
          ...facts,
          got: key,
          expected: "keys that occur once",
        });
      }
      keys.add(key);
    }
  }
}

/** The index of the quote that closes the string which opens at `start` (or the text's end). */
function endOfString(text: string, start: number): number {
  let i = start + 1;
  while (i < text.length && text[i] !== '"') i += text[i] === "\\" ? 2 : 1;
  return i;
}

function isKey(text: string, afterString: number): boolean {
  let i = afterString;
  while (i < text.length && " \t\n\r".includes(text[i]!)) i++;
  return text[i] === ":";
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An own property; undefined if it is absent or null, which configurations use for "not set". */
export function field(object: JsonObject, key: string): unknown {
  return Object.hasOwn(object, key) ? (object[key] ?? undefined) : undefined;
}

/** Describes a JSON value of any size for a message, in one short word or number. */
export function describe(value: unknown): string {
  if (value === undefined || value === null) return "nothing";
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "object") return "an object";
  return typeof value === "string" ? JSON.stringify(value.slice(0, 80)) : String(value);
}

/** Checks depth and number of values before parsing, so that no parser recurses into thousands of brackets. */
function checkDepth(text: string, facts: JsonFacts): void {
  let depth = 0;
  let commas = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '"') i = endOfString(text, i);
    else if (c === "}" || c === "]") depth--;
    else if (c === "," && ++commas > mostValues) {
      const got = `more than ${mostValues} values`;
      throw new FormatError(facts.format, { ...facts, got, expected: `at most ${mostValues}` });
    } else if ((c === "{" || c === "[") && ++depth > deepest) {
      const got = `more than ${deepest} levels`;
      const expected = `at most ${deepest} levels of nesting`;
      throw new FormatError(facts.format, { ...facts, got, expected });
    }
  }
}
