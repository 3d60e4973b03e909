// Sets of Unicode code points as ascending ranges, and how they are written: as UTF-8, or inside a JSON string.

import { EPSILON, type Expressions } from "./expressions.ts";

/** [from, to, from, to, ...], ascending and apart. */
export type CodePoints = readonly number[];

const ALL_CODE_POINTS: CodePoints = [0, 0xd7ff, 0xe000, 0x10ffff];

export function normalize(ranges: readonly (readonly [number, number])[]): CodePoints {
  const sorted = [...ranges].sort((a, b) => a[0] - b[0]);
  const result: number[] = [];
  for (const [from, to] of sorted) {
    const last = result.length - 1;
    if (last > 0 && from <= result[last]! + 1) result[last] = Math.max(result[last]!, to);
    else result.push(from, to);
  }
  return result;
}

function pairs(set: CodePoints): [number, number][] {
  const result: [number, number][] = [];
  for (let i = 0; i < set.length; i += 2) result.push([set[i]!, set[i + 1]!]);
  return result;
}

export function complement(set: CodePoints): CodePoints {
  const result: [number, number][] = [];
  let next = 0;
  for (const [from, to] of pairs(set)) {
    if (from > next) result.push([next, from - 1]);
    next = to + 1;
  }
  if (next <= 0x10ffff) result.push([next, 0x10ffff]);
  return normalize(result);
}

function intersect(a: CodePoints, b: CodePoints): CodePoints {
  const result: [number, number][] = [];
  let j = 0;
  for (const [from, to] of pairs(a)) {
    while (j < b.length && b[j + 1]! < from) j += 2;
    for (let k = j; k < b.length && b[k]! <= to; k += 2) {
      result.push([Math.max(from, b[k]!), Math.min(to, b[k + 1]!)]);
    }
  }
  return normalize(result);
}

export function unite(...sets: readonly CodePoints[]): CodePoints {
  return uniteAll(sets);
}

export function uniteAll(sets: readonly CodePoints[]): CodePoints {
  return normalize(sets.flatMap(pairs));
}

function encode(point: number): number[] {
  if (point < 0x80) return [point];
  if (point < 0x800) return [0xc0 | (point >> 6), 0x80 | (point & 63)];
  if (point < 0x10000) {
    return [0xe0 | (point >> 12), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63)];
  }
  return [
    0xf0 | (point >> 18),
    0x80 | ((point >> 12) & 63),
    0x80 | ((point >> 6) & 63),
    0x80 | (point & 63),
  ];
}

/** All byte sequences between two of the same length, where every byte after the first is a continuation. */
function between(of: Expressions, low: readonly number[], high: readonly number[]): number {
  if (low.length === 0) return EPSILON;
  const [first, last] = [low[0]!, high[0]!];
  const [lowRest, highRest] = [low.slice(1), high.slice(1)];
  if (first === last) return of.concat(of.range(first, first), between(of, lowRest, highRest));
  const least = lowRest.map(() => 0x80);
  const most = lowRest.map(() => 0xbf);
  const lowIsLeast = lowRest.every((byte) => byte === 0x80);
  const highIsMost = highRest.every((byte) => byte === 0xbf);
  const parts: number[] = [];
  const from = lowIsLeast ? first : first + 1;
  const to = highIsMost ? last : last - 1;
  if (!lowIsLeast) parts.push(of.concat(of.range(first, first), between(of, lowRest, most)));
  if (from <= to) parts.push(of.concat(of.range(from, to), between(of, least, most)));
  if (!highIsMost) parts.push(of.concat(of.range(last, last), between(of, least, highRest)));
  return of.any(parts);
}

const LENGTHS: readonly (readonly [number, number])[] = [
  [0, 0x7f],
  [0x80, 0x7ff],
  [0x800, 0xffff],
  [0x10000, 0x10ffff],
];

/** One character of the set, as UTF-8. Surrogates have no UTF-8 form and are left out. */
export function utf8(of: Expressions, set: CodePoints): number {
  const parts: number[] = [];
  of.meter.spend(2 * set.length);
  for (const [from, to] of pairs(intersect(set, ALL_CODE_POINTS))) {
    for (const [least, most] of LENGTHS) {
      const low = Math.max(from, least);
      const high = Math.min(to, most);
      if (low <= high) parts.push(between(of, encode(low), encode(high)));
    }
  }
  return of.any(parts);
}

/** Writes one character of a set. */
export type WriteCharacter = (set: CodePoints) => number;

export function plainCharacters(of: Expressions): WriteCharacter {
  const known = new Map<string, number>();
  return (set) => {
    const key = set.join();
    const written = known.get(key) ?? utf8(of, set);
    known.set(key, written);
    return written;
  };
}

const RAW_IN_JSON: CodePoints = complement(
  normalize([
    [0, 0x1f],
    [0x22, 0x22],
    [0x5c, 0x5c],
    [0xd800, 0xdfff],
  ]),
);

const SHORT_ESCAPES: Readonly<Record<number, string>> = {
  34: '"',
  92: "\\",
  8: "b",
  12: "f",
  10: "n",
  13: "r",
  9: "t",
};

/** Inside a JSON string: characters are escaped only where they must be, so that a text has one form. */
export function jsonCharacters(of: Expressions): WriteCharacter {
  const known = new Map<string, number>();
  const ascii = (text: string): number => of.literal(new TextEncoder().encode(text));
  const digit = (value: number): number => {
    const text = value.toString(16);
    return of.or(ascii(text), ascii(text.toUpperCase()));
  };
  const escaped = (point: number): number => {
    const short = SHORT_ESCAPES[point];
    const forms = short === undefined ? [] : [ascii(`\\${short}`)];
    if (point < 0x20) forms.push(of.sequence(ascii(`\\u00${point >> 4}`), digit(point & 15)));
    return of.any(forms);
  };
  return (set) => {
    const key = set.join();
    let written = known.get(key);
    if (written === undefined) {
      const parts = [utf8(of, intersect(set, RAW_IN_JSON))];
      for (const [from, to] of pairs(set)) {
        for (let point = from; point <= Math.min(to, 0x5c); point++) {
          if (point < 0x20 || point === 0x22 || point === 0x5c) parts.push(escaped(point));
        }
      }
      written = of.any(parts);
      known.set(key, written);
    }
    return written;
  };
}
