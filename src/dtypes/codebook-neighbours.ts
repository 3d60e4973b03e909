// Which points of a codebook are near which digits: what the quantizers of the IQ1, IQ2 and IQ3 types look up after they have
// rounded each value by itself. Most roundings are no point of the codebook; for those a list has the points at the few smallest
// distances, and a search tries them all.
//
// A code is the digits of a point, 2 or 3 bits each, the first lowest. Only codes that rounding can give have a list: 6561 of 8
// digits (0 to 2), or 4096 of 4 digits (0 to 7). Tables are computed at first use and take at most a megabyte; the order within
// a list (by distance, then by number) is part of what makes files equal ggml's.

import type { Codebook } from "./codebooks.ts";

export interface CodebookNeighbours {
  /** Values of a point, and digits that one may have. */
  readonly width: 4 | 8;
  readonly levels: 3 | 8;
  /** [points, width]: digits 0, 1, 2, ... */
  readonly digits: Uint8Array;
  /** By code: the point's number, or, where it is none, -1 - (where its list begins). */
  readonly pointOf: Int32Array;
  /** A list is its length and then its points. */
  readonly lists: Uint16Array;
}

/** `distances`: how many different distances a list reaches over. */
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

/** Bits of a digit in a code. */
export function digitBits({ width }: Pick<CodebookNeighbours, "width">): number {
  return width === 8 ? 2 : 3;
}

function build(codebook: Float32Array, width: 4 | 8, distances: number): CodebookNeighbours {
  const levels = width === 8 ? 3 : 8;
  const bits = digitBits({ width });
  const values = [...new Set(codebook)].sort((a, b) => a - b);
  const digits = Uint8Array.from(codebook, (value) => values.indexOf(value)); // [points, width]
  const points = digits.length / width;
  const pointOf = new Int32Array(1 << (bits * width));
  for (let point = 0; point < points; point++) {
    let code = 0;
    for (let i = 0; i < width; i++) code |= digits[point * width + i]! << (bits * i);
    pointOf[code] = point + 1; // until all codes are known: 0 is none
  }

  // A code is two halves, and its distance to a point the sum of theirs.
  const half = width / 2;
  const halves = levels ** half;
  const low = halfDistances(digits, width, 0, levels);
  const high = halfDistances(digits, width, half, levels);
  const distance = new Uint8Array(points);
  const lists: number[] = [];
  for (let upper = 0; upper < halves; upper++) {
    for (let lower = 0; lower < halves; lower++) {
      const code =
        packed(lower, half, levels, bits) | (packed(upper, half, levels, bits) << (bits * half));
      if (pointOf[code]! > 0) {
        pointOf[code] = pointOf[code]! - 1;
        continue;
      }
      for (let point = 0; point < points; point++) {
        distance[point] = low[lower * points + point]! + high[upper * points + point]!;
      }
      pointOf[code] = -1 - lists.length;
      appendNearest(lists, distance, distances);
    }
  }
  return { width, levels, digits, pointOf, lists: Uint16Array.from(lists) };
}

/** [levels^half, points]: squared distances of the digits from `first` on to every combination of digits. */
function halfDistances(
  digits: Uint8Array,
  width: number,
  first: number,
  levels: number,
): Uint8Array {
  const half = width / 2;
  const points = digits.length / width;
  const result = new Uint8Array(levels ** half * points);
  for (let combination = 0; combination < levels ** half; combination++) {
    for (let point = 0; point < points; point++) {
      let sum = 0;
      for (let i = 0, rest = combination; i < half; i++, rest = Math.floor(rest / levels)) {
        sum += (digits[point * width + first + i]! - (rest % levels)) ** 2;
      }
      result[combination * points + point] = sum;
    }
  }
  return result;
}

/** The digits of a number in base `levels` at `bits` bits each. */
function packed(number: number, count: number, levels: number, bits: number): number {
  let code = 0;
  for (let i = 0, rest = number; i < count; i++, rest = Math.floor(rest / levels)) {
    code |= (rest % levels) << (bits * i);
  }
  return code;
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
