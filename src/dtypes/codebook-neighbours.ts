// The points of a codebook that are nearest to given digits. The quantizers of the IQ1, IQ2 and IQ3 types round every value to a
// digit first. Most roundings are not a point of the codebook: a list then has the points at the smallest distances, and the
// quantizer tries all of them.
//
// A key is the digits of 4 or 8 values, 3 or 2 bits each, the first value lowest. Only keys that rounding can give have a list:
// 4096 of 4 digits (0 to 7), or 6561 of 8 digits (0 to 2). The tables are computed at first use and take at most a megabyte. The
// order of a list (by distance, then by number) decides between equal errors, and is ggml's.

import type { Codebook } from "./codebooks.ts";

export interface CodebookNeighbours {
  /** Values of a point, and the number of values of a digit. */
  readonly width: 4 | 8;
  readonly digitValues: 3 | 8;
  /** [points, width]: digits 0, 1, 2, ... */
  readonly digits: Uint8Array;
  /** By key: the point's number, or, where it is none, -1 - (where its list begins). */
  readonly pointOf: Int32Array;
  /** A list is its length and then its points. */
  readonly lists: Uint16Array;
}

/** `distances`: the number of different distances that a list covers. */
export function neighboursOf(
  codebook: Codebook,
  width: 4 | 8,
  distances: number,
): () => CodebookNeighbours {
  let built: CodebookNeighbours | undefined;
  return () => {
    built ??= build(codebook(), width, distances);
    return built;
  };
}

/** Bits of a digit in a key. */
export function digitBits({ width }: Pick<CodebookNeighbours, "width">): number {
  return width === 8 ? 2 : 3;
}

function build(codebook: Float32Array, width: 4 | 8, distances: number): CodebookNeighbours {
  const digitValues = width === 8 ? 3 : 8;
  const bits = digitBits({ width });
  const values = [...new Set(codebook)].sort((a, b) => a - b);
  const digits = Uint8Array.from(codebook, (value) => values.indexOf(value)); // [points, width]
  const points = digits.length / width;
  const pointOf = new Int32Array(1 << (bits * width));
  for (let point = 0; point < points; point++) {
    let key = 0;
    for (let i = 0; i < width; i++) key |= digits[point * width + i]! << (bits * i);
    pointOf[key] = point + 1; // until all keys are known: 0 is none
  }

  // A key is two halves, and its distance to a point the sum of theirs.
  const half = width / 2;
  const halves = digitValues ** half;
  const low = halfDistances(digits, width, 0, digitValues);
  const high = halfDistances(digits, width, half, digitValues);
  const distance = new Uint8Array(points);
  const lists: number[] = [];
  for (let upper = 0; upper < halves; upper++) {
    for (let lower = 0; lower < halves; lower++) {
      const key =
        packed(lower, half, digitValues, bits) |
        (packed(upper, half, digitValues, bits) << (bits * half));
      if (pointOf[key]! > 0) {
        pointOf[key] = pointOf[key]! - 1;
        continue;
      }
      for (let point = 0; point < points; point++) {
        distance[point] = low[lower * points + point]! + high[upper * points + point]!;
      }
      pointOf[key] = -1 - lists.length;
      appendNearest(lists, distance, distances);
    }
  }
  return { width, digitValues, digits, pointOf, lists: Uint16Array.from(lists) };
}

/** [digitValues^half, points]: squared distances of the digits from `first` on to every combination of digits. */
function halfDistances(
  digits: Uint8Array,
  width: number,
  first: number,
  digitValues: number,
): Uint8Array {
  const half = width / 2;
  const points = digits.length / width;
  const result = new Uint8Array(digitValues ** half * points);
  for (let combination = 0; combination < digitValues ** half; combination++) {
    for (let point = 0; point < points; point++) {
      let sum = 0;
      for (let i = 0, rest = combination; i < half; i++, rest = Math.floor(rest / digitValues)) {
        sum += (digits[point * width + first + i]! - (rest % digitValues)) ** 2;
      }
      result[combination * points + point] = sum;
    }
  }
  return result;
}

/** The digits of a number in base `digitValues` at `bits` bits each. */
function packed(number: number, count: number, digitValues: number, bits: number): number {
  let key = 0;
  for (let i = 0, rest = number; i < count; i++, rest = Math.floor(rest / digitValues)) {
    key |= (rest % digitValues) << (bits * i);
  }
  return key;
}

const counts = new Uint16Array(256);

/** The points at the `distances` smallest distances that occur, nearest first, behind their number. */
function appendNearest(lists: number[], distance: Uint8Array, distances: number): void {
  counts.fill(0);
  for (const each of distance) counts[each]!++;
  const start = lists.length;
  lists.push(0);
  for (let reached = 0, at = 0; reached < distances && at < counts.length; at++) {
    if (counts[at] === 0) continue;
    reached++;
    for (let point = 0; point < distance.length; point++) {
      if (distance[point] === at) lists.push(point);
    }
  }
  lists[start] = lists.length - start - 1;
}
