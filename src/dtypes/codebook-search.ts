// The search behind the quantizers of IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S: which scale and which points of the codebook
// fit a sub-block of values best. All five are one search with other numbers (CodebookSearch).
//
// Signs are taken off first, so that a digit L stands for scale * (2 L + 1). For each scale of a ladder every value is rounded to
// a digit, and digits that are no point become the nearest point of a list (codebook-neighbours.ts). The scale that then fits the
// points best, by weighted least squares, is kept if it loses least. Every rounding shows in the result: the order of the
// float32 steps is ggml's (quantize_row_iq2_xxs_impl and its like).

import { UsageError } from "../base/errors.ts";
import { plainSearch } from "./block-search.ts";
import type { CodebookNeighbours } from "./codebook-neighbours.ts";
import type { DType } from "./dtype.ts";
import { clamp, nearestInt, storeF16, sumOfSquares } from "./float32-math.ts";
import {
  addPoint,
  type LadderInput,
  type LadderSearch,
  ladderScales,
  newLadderFits,
  subBlockTuples,
} from "./ladder-search.ts";
import { fitPositive } from "./scale-search.ts";

const f = Math.fround;

export interface CodebookSearch {
  readonly neighbours: () => CodebookNeighbours;
  /** Values of a sub-block. */
  readonly size: 16 | 32;
  /** The ladder: `steps` scales to each side of the middle one, `delta` of a digit apart. */
  readonly steps: number;
  readonly delta: number;
  /** The ladder's middle: the scale at which the largest value has the largest digit, or that of a search without a codebook. */
  readonly start: "largest" | "positive";
  /** A sub-block whose largest value is below this counts as zero. */
  readonly zero: number;
  /** Whether eight signs are seven bits: an odd number of minus signs then costs the value that matters least its own. */
  readonly evenSigns: boolean;
  /** Mean squares that are added to a value's own, when its importance is weighed. */
  readonly spread: 1 | 2;
  /** The cost of an error without an importance matrix; undefined: the type needs one. */
  readonly weigh: ((value: number, sigma2: number) => number) | undefined;
  /** Which points are chosen anew for the scale that was found: those that were no rounding, all if one was none, or all. */
  readonly refit: "changed" | "all-if-changed" | "all";
}

/** Results of the search for a block of 256 values. */
interface CodebookFits {
  /** One for each sub-block, none below 0; NaN if the sums overflowed. */
  readonly scales: Float32Array;
  /** Numbers of points, one for `width` values each. */
  readonly points: Uint16Array;
  /** Bit n of a byte is set where value n of eight is negative. */
  readonly signs: Uint8Array;
}

// Scratch of one sub-block.
const input: LadderInput = {
  values: new Float32Array(32),
  weights: new Float32Array(32),
  roots: new Float32Array(32),
  products: new Float32Array(32),
};
const { values, weights, roots } = input;
const inverses = new Float32Array(ladderScales);
const scales = new Float32Array(ladderScales);
const tried = newLadderFits();
const chosen = new Uint16Array(subBlockTuples); // points
const isRounding = new Uint8Array(subBlockTuples); // of the chosen ones
const positiveQuants = new Uint8Array(32);

/** Fills `fits` for the 256 values from x[at] on; `column` is where their importance begins. */
function fitCodebook(
  search: CodebookSearch,
  x: Float32Array,
  at: number,
  importance: Float32Array | undefined,
  column: number,
  ladder: LadderSearch,
): void {
  const { size, spread } = search;
  const neighbours = search.neighbours();
  const pointsEach = size / neighbours.width;
  const sigma2 = f(f(spread * sumOfSquares(x, at, 256)) / 256);
  fits.points.fill(0);
  fits.signs.fill(0);
  for (let subBlock = 0; subBlock < 256 / size; subBlock++) {
    const from = at + size * subBlock;
    const signs = fits.signs.subarray((size / 8) * subBlock, (size / 8) * (subBlock + 1));
    weigh(search, x, from, importance, column + size * subBlock, sigma2);
    takeSigns(search, x, from, signs);
    const scale = fitSubBlock(search, neighbours, ladder);
    if (scale === undefined) {
      fits.scales[subBlock] = 0;
      signs.fill(0);
      continue;
    }
    // ggml expects none below 0, and handles it: minus signs for all.
    if (scale < 0) for (let k = 0; k < signs.length; k++) signs[k] = signMask(search) & ~signs[k]!;
    fits.scales[subBlock] = Math.abs(scale);
    fits.points.set(chosen.subarray(0, pointsEach), pointsEach * subBlock);
  }
}

function weigh(
  search: CodebookSearch,
  x: Float32Array,
  from: number,
  importance: Float32Array | undefined,
  column: number,
  sigma2: number,
): void {
  for (let i = 0; i < search.size; i++) {
    const value = x[from + i]!;
    const weight =
      importance === undefined
        ? search.weigh!(value, sigma2)
        : f(importance[column + i]! * f(Math.sqrt(f(sigma2 + f(value * value)))));
    weights[i] = weight;
    roots[i] = Math.sqrt(weight);
  }
}

function signMask({ evenSigns }: CodebookSearch): number {
  return evenSigns ? 127 : 255;
}

/** Magnitudes to `values`, signs to `signs`. */
function takeSigns(search: CodebookSearch, x: Float32Array, from: number, signs: Uint8Array): void {
  for (let eight = 0; eight < search.size; eight += 8) {
    let byte = 0;
    let negatives = 0;
    for (let i = eight; i < eight + 8; i++) {
      const value = x[from + i]!;
      const isNegative = !(value >= 0);
      values[i] = isNegative ? -value : value;
      if (isNegative) byte |= 1 << (i & 7);
      if (isNegative) negatives++;
    }
    if (search.evenSigns && negatives % 2 === 1) {
      const least = leastImportant(x, from, eight);
      values[least] = -values[least]!;
      byte ^= 1 << (least & 7);
    }
    signs[eight / 8] = byte & signMask(search);
  }
}

/** Which of eight values costs least with the wrong sign. */
function leastImportant(x: Float32Array, from: number, eight: number): number {
  let least = eight;
  let leastCost = Number.POSITIVE_INFINITY;
  for (let i = eight; i < eight + 8; i++) {
    const value = x[from + i]!;
    const cost = f(f(weights[i]! * value) * value);
    if (i > eight && !(cost < leastCost)) continue;
    least = i;
    leastCost = cost;
  }
  return least;
}

/** The scale, with the points in `chosen`; undefined for a sub-block that counts as zero, NaN if sums overflowed. */
function fitSubBlock(
  search: CodebookSearch,
  neighbours: CodebookNeighbours,
  ladder: LadderSearch,
): number | undefined {
  const { size, steps, delta, refit } = search;
  const { width, digitValues } = neighbours;
  let max = values[0]!;
  for (let i = 1; i < size; i++) if (!(max > values[i]!)) max = values[i]!;
  if (max < search.zero) return undefined;
  let scale = f(max / (2 * digitValues - 1));
  if (search.start === "positive") {
    scale = fitPositive(values, size, digitValues + 1, positiveQuants, weights);
    max = f(scale * digitValues);
    if (max <= 0) return undefined;
  }
  const count = 2 * steps + 1;
  for (let step = 0; step < count; step++) {
    inverses[step] = f(2 * digitValues - 1 + f((step - steps) * delta)) / max;
    scales[step] = 1 / inverses[step]!;
  }
  for (let i = 0; i < size; i++) input.products[i] = weights[i]! * values[i]!;
  ladder(neighbours, input, size, inverses, scales, count, tried);
  const tuples = size / width;
  let isFound = isAllFound(count, tuples);
  const { sumsQX, sumsQQ } = tried;
  let best = 0;
  let bestStep = -1;
  for (let step = 0; step < count; step++) {
    const sumQX = sumsQX[step]!;
    const sumQQ = sumsQQ[step]!;
    if (!(sumQQ > 0 && f(sumQX * sumQX) > f(best * sumQQ))) continue;
    scale = f(sumQX / sumQQ);
    best = f(scale * sumQX);
    bestStep = step;
  }
  let isChanged = takePoints(bestStep, tuples, refit === "all-if-changed");
  if (refit === "all") isChanged = true;
  if (scale > 0 && isChanged) {
    inverses[0] = 1 / scale;
    scales[0] = scale;
    ladder(neighbours, input, size, inverses, scales, 1, tried);
    isFound &&= isAllFound(1, tuples);
    sumsQX[0] = 0;
    sumsQQ[0] = 0;
    for (let tuple = 0; tuple < tuples; tuple++) {
      if (refit !== "changed" || isRounding[tuple] === 0) chosen[tuple] = tried.points[tuple]!;
      addPoint(neighbours.digits, width, chosen[tuple]!, input, tuple, tried, 0);
    }
    if (sumsQQ[0]! > 0) scale = f(sumsQX[0]! / sumsQQ[0]!);
  }
  return isFound ? scale : Number.NaN;
}

/** Chooses the points of a step, or the first of the codebook where none is best; whether one of them is no rounding. */
function takePoints(step: number, tuples: number, isChangedWithout: boolean): boolean {
  let isChanged = step < 0 && isChangedWithout;
  for (let tuple = 0; tuple < tuples; tuple++) {
    const at = subBlockTuples * step + tuple;
    chosen[tuple] = step < 0 ? 0 : tried.points[at]!;
    isRounding[tuple] = step < 0 ? 1 : tried.isRounding[at]!;
    if (isRounding[tuple] === 0) isChanged = true;
  }
  return isChanged;
}

function isAllFound(count: number, tuples: number): boolean {
  for (let step = 0; step < count; step++) {
    for (let tuple = 0; tuple < tuples; tuple++) {
      if (tried.points[subBlockTuples * step + tuple]! < 0) return false;
    }
  }
  return true;
}

const fits: CodebookFits = {
  scales: new Float32Array(16),
  points: new Uint16Array(64),
  signs: new Uint8Array(32),
};
const multiples = new Uint8Array(16);

/** Stores the results for a block. `multiples[n]` stands for 2 m + 1 times the block's scale, m in [0, 16). */
type StoreBlock = (dst: Uint8Array, to: number, fits: CodebookFits, multiples: Uint8Array) => void;

export interface CodebookWriter {
  readonly name: string;
  readonly blockBytes: number;
  readonly search: CodebookSearch;
  /** The factor with which the block's scale is stored: ggml found it by trying. */
  readonly fudge: number;
  /** Whether nothing at all is stored where all scales are 0. */
  readonly clears: boolean;
  readonly store: StoreBlock;
}

/** DType.quantize of such a type. Every block begins with its scale; all bytes behind it are zero when `store` is called. */
export function codebookQuantizer(writer: CodebookWriter): NonNullable<DType["quantize"]> {
  const { name, blockBytes, search, fudge, clears, store } = writer;
  return (src, srcOffset, dst, dstOffset, blocks, importance, { ladder } = plainSearch) => {
    if (!importance && !search.weigh) throw needsImportance(name);
    for (let block = 0; block < blocks; block++) {
      const to = dstOffset + blockBytes * block;
      const column = importance ? (256 * block) % importance.length : 0;
      fitCodebook(search, src, srcOffset + 256 * block, importance, column, ladder);
      const d = roundScales(256 / search.size);
      dst.fill(0, to, to + blockBytes);
      storeF16(dst, to, f(d * fudge));
      if (d > 0 || (d === 0 && !clears)) store(dst, to, fits, multiples);
    }
  };
}

export function needsImportance(name: string): UsageError {
  return new UsageError(
    `${name}: its quantizer needs an importance matrix, and got none. Make one with "lantern imatrix"`,
  );
}

/** Sets `multiples`, and returns the block's scale; NaN if sums overflowed, so that readers of the block see it. */
function roundScales(subBlocks: number): number {
  const { scales } = fits;
  let largest = 0;
  for (let i = 0; i < subBlocks; i++) {
    if (Number.isNaN(scales[i])) return Number.NaN;
    if (scales[i]! > largest) largest = scales[i]!;
  }
  multiples.fill(0);
  if (largest === 0) return 0;
  const d = f(largest / 31);
  const inverse = f(1 / d);
  for (let i = 0; i < subBlocks; i++) {
    multiples[i] = clamp(nearestInt(f(0.5 * f(f(inverse * scales[i]!) - 1))), 0, 15);
  }
  return d;
}

/** `multiples`, two to a byte. */
export function storeNibbles(
  dst: Uint8Array,
  to: number,
  nibbles: Uint8Array,
  count: number,
): void {
  for (let i = 0; i < count; i += 2) dst[to + i / 2] = nibbles[i]! | (nibbles[i + 1]! << 4);
}

/** Little-endian. */
export function storeU32(dst: Uint8Array, to: number, value: number): void {
  for (let i = 0; i < 4; i++) dst[to + i] = (value >>> (8 * i)) & 255;
}
