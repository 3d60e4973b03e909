// Values as bytes between machines: JSON, and marks for values that JSON lacks (bytes, vectors, infinities, maps, regular
// expressions). Any other value is refused when it is sent, never changed.

import { UsageError } from "../../src/base/errors.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

/** The key that marks a stand-in for another value. A plain object with this key is refused. */
const MARK = "$lantern";

export function encode(value: unknown): Uint8Array {
  return encoder.encode(encodeText(value));
}

/** The same as text: several can be joined to the text of an array. */
export function encodeText(value: unknown): string {
  return JSON.stringify(toPlain(value));
}

/** Throws a UsageError for bytes that encode() cannot have written. */
export function decode(bytes: Uint8Array): unknown {
  try {
    return fromPlain(JSON.parse(decoder.decode(bytes)));
  } catch (error) {
    throw new UsageError(
      `cluster: got a message of ${bytes.length} bytes that is not one of Lantern's. Does something else write to these subjects, or another version of Lantern?`,
      { cause: error },
    );
  }
}

/** Copies only the parts that must change: most messages are a token of an answer, which is plain already. */
function toPlain(value: unknown): unknown {
  if (typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number") {
    return Number.isFinite(value) ? value : { [MARK]: String(value) };
  }
  if (value === undefined) return { [MARK]: "undefined" };
  if (typeof value !== "object" || value === null) {
    if (typeof value === "function" || typeof value === "symbol" || typeof value === "bigint") {
      throw new UsageError(`cluster: a ${typeof value} cannot be sent to another machine`);
    }
    return value;
  }
  if (Array.isArray(value)) return value.map(toPlain);
  if (value instanceof Uint8Array) return { [MARK]: "bytes", data: toBase64(value) };
  if (value instanceof Float32Array) return { [MARK]: "floats", data: toBase64(bytesOf(value)) };
  if (value instanceof Int32Array) return { [MARK]: "ints", data: toBase64(bytesOf(value)) };
  if (value instanceof Map) return { [MARK]: "map", data: [...value].map(toPlain) };
  if (value instanceof RegExp) return { [MARK]: "regex", data: [value.source, value.flags] };
  if (Object.hasOwn(value, MARK)) throw new UsageError(`cluster: got an object with a key ${MARK}`);
  let plain = value as Record<string, unknown>;
  for (const key of Object.keys(value)) {
    const one = (value as Record<string, unknown>)[key];
    const changed = one === undefined ? undefined : toPlain(one);
    if (changed === one) continue; // JSON leaves out undefined values
    if (plain === value) plain = { ...plain };
    plain[key] = changed;
  }
  return plain;
}

/** The value of each mark; the constructors check the data. */
const marks: ReadonlyMap<unknown, (data: never) => unknown> = new Map<
  unknown,
  (data: never) => unknown
>([
  ["Infinity", () => Infinity],
  ["-Infinity", () => -Infinity],
  ["NaN", () => NaN],
  ["undefined", () => undefined],
  ["bytes", (data: string) => fromBase64(data)],
  ["floats", (data: string) => new Float32Array(fromBase64(data).buffer)],
  ["ints", (data: string) => new Int32Array(fromBase64(data).buffer)],
  ["map", (data: [unknown, unknown][]) => new Map(data.map((pair) => fromPlain(pair) as never))],
  ["regex", ([source, flags]: [string, string]) => new RegExp(source, flags)],
]);

/** Changes the value itself: it was just parsed, and has no other user. */
function fromPlain(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) {
      if (typeof value[i] === "object") value[i] = fromPlain(value[i]);
    }
    return value;
  }
  if (Object.hasOwn(value, MARK)) {
    const { [MARK]: mark, data } = value as Record<string, unknown>;
    const read = marks.get(mark);
    if (!read) throw new Error(`unknown mark ${String(mark).slice(0, 20)}`);
    return read(data as never);
  }
  const plain = value as Record<string, unknown>;
  for (const key of Object.keys(plain)) {
    const one = plain[key];
    if (typeof one === "object") plain[key] = fromPlain(one);
  }
  return plain;
}

function bytesOf({ buffer, byteOffset, byteLength }: Float32Array | Int32Array): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/** As in browsers: whole triples at a time, so that pieces can be joined. */
const PIECE = 3 * 8192;

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) {
    text += btoa(String.fromCharCode(...bytes.subarray(at, at + PIECE)));
  }
  return text;
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
