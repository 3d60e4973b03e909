// Reads the lines of a batch's input, {"custom_id", "method", "url", "body"}, and reports the errors of each. Bytes come in
// pieces; only one line at a time is in memory.

import { batchLimits, type LineError } from "./batch.ts";

/** The byte range of a line in its file, without the line end. */
export interface LinePlace {
  readonly start: number;
  readonly end: number;
}

export interface RawLine extends LinePlace {
  /** From 1. */
  readonly number: number;
  /** undefined: the line is too long. */
  readonly bytes: Uint8Array | undefined;
}

const newline = 0x0a;

/** Lines between line ends, empty ones too. */
export async function* rawLines(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<RawLine> {
  let held: Uint8Array[] = [];
  let length = 0;
  let start = 0;
  let number = 1;
  const take = (): RawLine => {
    const isTooLong = length > batchLimits.lineBytes;
    const bytes = isTooLong ? undefined : joined(held, length);
    const line = { number, start, end: start + length, bytes };
    start += length + 1;
    number++;
    held = [];
    length = 0;
    return line;
  };
  const hold = (bytes: Uint8Array): void => {
    length += bytes.length;
    // Only the length of a line that is too long is needed.
    if (length <= batchLimits.lineBytes) held.push(bytes);
    else held = [];
  };
  for await (const piece of pieces) {
    let at = 0;
    for (;;) {
      const end = piece.indexOf(newline, at);
      if (end < 0) break;
      hold(piece.subarray(at, end));
      yield take();
      at = end + 1;
    }
    if (at < piece.length) hold(piece.slice(at));
  }
  if (length > 0) yield take();
}

function joined(parts: readonly Uint8Array[], length: number): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** One request of an input file. */
export interface InputLine {
  readonly customId: string;
  readonly url: string;
  readonly body: Readonly<Record<string, unknown>>;
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** A line's request, or its error; undefined: the line is empty. */
export function parseLine(line: RawLine): InputLine | LineError | undefined {
  const wrong = (code: string, message: string, param: string | null = null): LineError => ({
    code,
    message,
    param,
    line: line.number,
  });
  if (line.bytes === undefined) {
    const got = line.end - line.start;
    return wrong(
      "line_too_long",
      `line ${line.number} has ${got} bytes, and a line may have ${batchLimits.lineBytes}`,
    );
  }
  let value: unknown;
  try {
    const text = utf8.decode(line.bytes).trim();
    if (text === "") return undefined;
    value = JSON.parse(text);
  } catch (error) {
    const reason = error instanceof SyntaxError ? error.message : "it is not UTF-8";
    return wrong("invalid_json_line", `line ${line.number} is not JSON: ${reason.slice(0, 200)}`);
  }
  if (!isObject(value))
    return wrong(
      "invalid_json_line",
      `line ${line.number} is not a JSON object, expected {"custom_id", "method", "url", "body"}`,
    );
  const { custom_id: customId, method, url, body } = value;
  const expected = (param: string, what: string): LineError =>
    wrong(
      "invalid_request",
      `line ${line.number}: "${param}": got ${shown(value[param])}, expected ${what}`,
      param,
    );
  if (!isName(customId)) {
    return expected("custom_id", `a text of 1 to ${batchLimits.customIdLength} letters`);
  }
  if (method !== "POST") return expected("method", '"POST"');
  if (typeof url !== "string") return expected("url", 'a path such as "/v1/chat/completions"');
  if (!isObject(body)) return expected("body", "an object: the body of the request");
  if (body.stream === true) {
    return wrong(
      "invalid_request",
      `line ${line.number}: "body.stream": got true, but a batch has whole answers. Leave it out`,
      "body.stream",
    );
  }
  return { customId, url, body };
}

function isName(value: unknown): value is string {
  return typeof value === "string" && value !== "" && value.length <= batchLimits.customIdLength;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function shown(value: unknown): string {
  return value === undefined ? "nothing" : JSON.stringify(value).slice(0, 100);
}

/** Characters of a prompt that are the sort key of its line. */
const keyLength = 400;

/** The beginning of a request's prompt: lines with the same beginning are computed one after the other, so that a shared prefix is computed once. */
export function orderKey(body: Readonly<Record<string, unknown>>): string {
  const parts: string[] = [String(body.model ?? "")];
  const { prompt, input, system, instructions, tools } = body;
  let length = 0;
  const add = (value: unknown): void => {
    if (length >= keyLength || value === undefined || value === null) return;
    const text = textOf(value).slice(0, keyLength - length);
    length += text.length;
    parts.push(text);
  };
  add(tools);
  add(instructions);
  add(system);
  for (const message of Array.isArray(body.messages) ? body.messages : []) {
    add(isObject(message) ? message.content : message);
    if (length >= keyLength) break;
  }
  add(prompt);
  add(input);
  return parts.join("\u0000");
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  // A list may be long: its beginning is enough.
  return JSON.stringify(Array.isArray(value) ? value.slice(0, 100) : value);
}
