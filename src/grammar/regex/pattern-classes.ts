// The named sets and the escapes of regular expressions: \d, \s, \w, \p{...}, \n, \x41, \u0041.

import { byName } from "../../base/by-name.ts";
import { type CodePoints, normalize } from "./code-points.ts";

export const DIGIT: CodePoints = [0x30, 0x39];
export const WORD: CodePoints = normalize([
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
]);
export const LINE_END: CodePoints = normalize([
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
]);
export const SPACE: CodePoints = normalize([
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
]);

const CONTROL: Readonly<Record<string, number>> = byName({
  n: 10,
  r: 13,
  t: 9,
  f: 12,
  v: 11,
  a: 7,
  e: 27,
});

/** The character that an escape stands for, with the escape's length; or a message about its error. `text` follows the \. */
export function classEscape(text: string): { point: number; length: number } | string {
  const first = String.fromCodePoint(text.codePointAt(0) ?? 0);
  const pair = /^u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})/.exec(text);
  if (pair) {
    const [high, low] = [Number.parseInt(pair[1]!, 16), Number.parseInt(pair[2]!, 16)];
    return { point: 0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff), length: pair[0].length };
  }
  const hex = /^(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|[ux]\{([0-9a-fA-F]{1,6})\})/.exec(text);
  if (hex) {
    const point = Number.parseInt((hex[1] ?? hex[2] ?? hex[3])!, 16);
    if (point > 0x10ffff) return "a code point beyond 10FFFF";
    return { point, length: hex[0].length };
  }
  const control = /^c([A-Za-z])/.exec(text);
  if (control) return { point: control[1]!.charCodeAt(0) & 31, length: 2 };
  const octal = /^0[0-7]{0,2}/.exec(text);
  if (octal) return { point: Number.parseInt(octal[0], 8), length: octal[0].length };
  const point = CONTROL[first];
  if (point !== undefined) return { point, length: 1 };
  if (/^[A-Za-z0-9]/.test(first)) return `the unknown escape \\${first}`;
  return { point: first.codePointAt(0)!, length: 1 };
}

const known = new Map<string, CodePoints | undefined>();

/** \p{name}, by asking this engine's own regular expressions once; `onAsk` hears of that before. */
export function propertySet(name: string, onAsk: () => void): CodePoints | undefined {
  if (known.has(name)) return known.get(name);
  onAsk();
  const set = askProperty(name);
  if (known.size < 200) known.set(name, set);
  return set;
}

function askProperty(name: string): CodePoints | undefined {
  let test: RegExp | undefined;
  for (const source of [name, `Script=${name}`]) {
    try {
      test ??= new RegExp(`\\p{${source}}+`, "gu");
    } catch {
      // an unknown property is a SyntaxError
    }
  }
  if (test === undefined) return undefined;
  const ranges: [number, number][] = [];
  for (let from = 0; from < 0x110000; from += 4096) {
    let text = "";
    for (let point = from; point < from + 4096; point++) text += String.fromCodePoint(point);
    for (const match of text.matchAll(test)) {
      const last = match[0].length - 1;
      // A text ends with a character of one unit or of two.
      const end = match[0].codePointAt(last - 1)! > 0xffff ? last - 1 : last;
      ranges.push([match[0].codePointAt(0)!, match[0].codePointAt(end)!]);
    }
  }
  return normalize(ranges);
}
