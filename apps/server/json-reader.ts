// Parses JSON that arrives in pieces and may be hostile, without blocking the thread. One thread serves all clients,
// and JSON.parse() of 16 MB takes from a tenth of a second to three seconds.
//
// - Work is limited beforehand: a body with more or deeper values than any request needs is refused as soon as that is
//   seen.
// - Long strings are taken out as they arrive, decoded piece by piece, and put back into the parsed rest.

import { invalidRequest } from "./errors.ts";

/** A longer string in the JSON text is taken out. */
const longString = 1024;
/** Nesting of arrays and objects. */
const maxDepth = 256;
/** The cost of a value: roughly the time of JSON.parse() and later checks, relative to a number. */
const cost = { value: 1, string: 2, list: 4, object: 6, key: 2, keyOfMany: 40 };
/** Objects with more keys become hash tables. */
const manyKeys = 64;

/** Total cost allowed for a body: a million token ids, or 100,000 messages. */
const defaultBudget = 1_000_000;

const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a];
const [openList, closeList, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];

export class JsonReader {
  readonly #budget: number;
  /** Prefix of the placeholders for long strings: a client cannot guess it. */
  readonly #mark = crypto.randomUUID();
  readonly #strings: string[] = [];
  /** The JSON text without the long strings. */
  #rest = "";
  /** The current string: its text so far, and its decoded pieces if it is long. */
  #string = "";
  #pieces: string[] | undefined;
  #inString = false;
  /** In the current piece of the body: the start of the string, and the start of the part that is not copied yet. */
  #startAt = 0;
  #kept = 0;
  /** The last character was a backslash. */
  #escaped = false;
  /** The previous string was long; a colon after it would make it a key. */
  #afterLong = false;
  /** Number of keys so far in each enclosing object, 0 for lists. */
  readonly #keys = new Uint32Array(maxDepth + 1);
  #depth = 0;
  #spent = 0;

  constructor(budget: number = defaultBudget) {
    this.#budget = budget;
  }

  push(text: string): void {
    this.#kept = 0;
    let at = 0;
    while (at < text.length)
      at = this.#inString ? this.#readString(text, at) : this.#readRest(text, at);
    if (!this.#inString) this.#rest += text.slice(this.#kept);
  }

  /** Returns the parsed value. */
  end(): unknown {
    const text = this.#inString ? `${this.#rest}"${this.#string}` : this.#rest;
    if (text.trim() === "") throw invalidRequest("the body is empty, expected a JSON object");
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message.slice(0, 200) : "";
      throw invalidRequest(`the body is not JSON: ${reason}`, null, "invalid_json");
    }
    return this.#strings.length === 0 ? value : this.#putBack(value);
  }

  /** Reads up to the next string. */
  #readRest(text: string, from: number): number {
    for (let at = from; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code <= 0x20) continue;
      if (code === quote) {
        this.#spend(cost.string);
        this.#inString = true;
        this.#startAt = at;
        if (at + 1 === text.length) this.#rest += text.slice(this.#kept, at); // the string itself is yet to come
        return at + 1;
      }
      if (code === comma) this.#spend(cost.value);
      else if (code === colon) this.#countKey();
      else if (code === openList || code === openObject) this.#enter(code);
      else if (code === closeList || code === closeObject)
        this.#depth = Math.max(0, this.#depth - 1);
      this.#afterLong = false;
    }
    return text.length;
  }

  /** Reads up to the end of the string, or of the part that has arrived. */
  #readString(text: string, from: number): number {
    const end = this.#endOfString(text, from);
    const isWhole = from > 0 && end >= 0; // it started in this piece of the body
    if (isWhole && end - from <= longString) {
      this.#inString = false;
      return end + 1; // stays in the text
    }
    if (from > 0) this.#rest += text.slice(this.#kept, this.#startAt);
    this.#string += text.slice(from, end < 0 ? text.length : end);
    if (this.#string.length > longString) this.#takeOut();
    if (end < 0) return text.length;
    this.#endString();
    this.#kept = end + 1;
    return end + 1;
  }

  /** The index of the closing quote; -1 if it has not arrived yet. */
  #endOfString(text: string, from: number): number {
    let at = this.#escaped ? from + 1 : from;
    this.#escaped = false;
    for (;;) {
      const next = text.indexOf('"', at);
      const stop = next < 0 ? text.length : next;
      let slashes = 0;
      while (stop - 1 - slashes >= at && text.charCodeAt(stop - 1 - slashes) === backslash)
        slashes++;
      const isEscaped = slashes % 2 === 1;
      if (next < 0) this.#escaped = isEscaped;
      if (next < 0 || !isEscaped) return next;
      at = next + 1;
    }
  }

  /** Decodes the received part of a long string, except for an escape at its end that may be incomplete. */
  #takeOut(): void {
    this.#pieces ??= [];
    const text = this.#string;
    const last = text.lastIndexOf("\\", text.length - 1);
    let keep = text.length;
    // \uD83D\uDE00 is one character, but its halves may be decoded separately: concatenation joins them again.
    if (last >= 0 && text.length - last < 6) {
      let first = last;
      while (first > 0 && text.charCodeAt(first - 1) === backslash) first--;
      const startsEscape = (last - first) % 2 === 0;
      const needs = text.charCodeAt(last + 1) === 0x75 ? 6 : 2;
      if (startsEscape && text.length - last < needs) keep = last;
    }
    this.#pieces.push(decoded(text.slice(0, keep)));
    this.#string = text.slice(keep);
  }

  #endString(): void {
    this.#inString = false;
    const text = this.#string;
    this.#string = "";
    if (!this.#pieces) {
      this.#rest += `"${text}"`;
      return;
    }
    this.#pieces.push(decoded(text));
    this.#rest += `"${this.#mark}${this.#strings.length}"`;
    this.#strings.push(this.#pieces.join(""));
    this.#pieces = undefined;
    this.#afterLong = true;
  }

  #countKey(): void {
    if (this.#afterLong) throw invalidRequest("the body has a field whose name is too long");
    const keys = ++this.#keys[this.#depth]!;
    this.#spend(keys > manyKeys ? cost.keyOfMany : cost.key);
  }

  #enter(code: number): void {
    this.#spend(code === openList ? cost.list : cost.object);
    if (++this.#depth > maxDepth) {
      throw invalidRequest(`the body has more than ${maxDepth} nested lists and objects`);
    }
    this.#keys[this.#depth] = 0;
  }

  #spend(units: number): void {
    this.#spent += units;
    if (this.#spent <= this.#budget) return;
    throw invalidRequest(
      "the body has too many values, expected at most about a million numbers, or 100,000 messages. Send several requests",
      null,
      "too_many_values",
    );
  }

  #putBack(value: unknown): unknown {
    if (typeof value === "string") return this.#original(value);
    const waiting: unknown[] = [value];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const holder = next as Record<string, unknown>;
      for (const key of Object.keys(holder)) {
        const inner = holder[key];
        if (typeof inner === "string") {
          const original = this.#original(inner);
          if (original !== inner) setOwn(holder, key, original);
        } else if (typeof inner === "object" && inner !== null) waiting.push(inner);
      }
    }
    return value;
  }

  #original(text: string): string {
    return text.startsWith(this.#mark)
      ? this.#strings[Number(text.slice(this.#mark.length))]!
      : text;
  }
}

/** JSON.parse() makes "__proto__" an ordinary field; an assignment would not. */
function setOwn(holder: object, key: string, value: unknown): void {
  Object.defineProperty(holder, key, {
    value,
    writable: true,
    enumerable: true,
    configurable: true,
  });
}

/** Decodes a piece of a JSON string. */
function decoded(piece: string): string {
  try {
    return JSON.parse(`"${piece}"`) as string;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message.slice(0, 200) : "";
    throw invalidRequest(`the body is not JSON: ${reason}`, null, "invalid_json");
  }
}
