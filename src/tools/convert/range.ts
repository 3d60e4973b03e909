// Whether a type can hold a tensor. If not, the tensor stays F32.
//
// F16 has 5 bits of exponent: nothing beyond 65504, fewer than 11 bits below 2^-14 (6.1e-5), nothing below 2^-25.
// Ordinary weights pass: a few per thousand are below 6.1e-5, and their errors are small against the rounding of the
// others. Block types have the same problem with their scales, which are F16.

import { f16ToF32, f32ToF16 } from "../../base/half.ts";
import type { DType } from "../../dtypes/dtype.ts";

export interface RangeCheck {
  /** Takes the next values of the tensor: whole blocks. */
  add(values: Float32Array): void;
  /** Why the type cannot hold the tensor, with the counts; undefined if it can. */
  problem(): string | undefined;
}

const largestHalf = 65504;
const smallestNormal = 2 ** -14;

/** The largest fraction of nonzero values that may become 0. */
const mostZeroed = 0.01;

/**
 * The largest relative error of the whole tensor due to small values: as much as rounding to 11 bits costs the others
 * at most.
 */
const mostHalfError = 2 ** -11;

export class HalfRange implements RangeCheck {
  #values = 0;
  #nonzero = 0;
  #beyond = 0;
  #small = 0;
  #zeroed = 0;
  #largest = 0;
  #squares = 0;
  #errors = 0;

  add(values: Float32Array): void {
    this.#values += values.length;
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      if (value === 0) continue;
      this.#nonzero++;
      const size = Math.abs(value);
      if (size > this.#largest || Number.isNaN(size)) this.#largest = size; // a NaN stays
      if (!(size <= largestHalf)) {
        this.#beyond++; // also infinities and NaN: F16 has them, but F32 shows where they came from
        continue;
      }
      this.#squares += value * value;
      if (size >= smallestNormal) continue;
      this.#small++;
      const half = f16ToF32[f32ToF16(value)]!;
      if (half === 0) this.#zeroed++;
      this.#errors += (value - half) ** 2;
    }
  }

  problem(): string | undefined {
    const largest = `the largest is ${sizeText(this.#largest)}`;
    if (this.#beyond > 0) {
      return `${this.#beyond} of ${this.#values} values are beyond F16's largest, 65504; ${largest}`;
    }
    const small = `${this.#small} of ${this.#values} values are below F16's smallest normal, 6.1e-5`;
    if (this.#zeroed > mostZeroed * this.#nonzero) {
      return `${small}, and ${this.#zeroed} would become 0; ${largest}`;
    }
    const error = Math.sqrt(this.#errors / this.#squares);
    if (!(error > mostHalfError)) return undefined;
    return `${small}, and the tensor would change by ${percentText(error)}; ${largest}`;
  }
}

/** Blocks of 8 bits lose at most 1 %; ten times that means a scale that F16 cannot hold. */
const mostBlockError = 0.1;

/**
 * For types whose blocks have F16 scales. Only pieces with unusual values are checked in detail, because that takes
 * time.
 */
export class BlockRange implements RangeCheck {
  readonly #dtype: DType;
  #values = 0;
  #lost = 0;
  #largest = 0;
  #worst = 0;

  constructor(dtype: DType) {
    this.#dtype = dtype;
  }

  add(values: Float32Array): void {
    this.#values += values.length;
    let largest = 0;
    for (let i = 0; i < values.length; i++) {
      const size = Math.abs(values[i]!);
      if (size > largest || Number.isNaN(size)) largest = size; // a NaN stays
    }
    if (largest > this.#largest || Number.isNaN(largest)) this.#largest = largest;
    if (largest === 0 || (largest >= smallestNormal && largest <= largestHalf)) return;
    this.#compare(values);
  }

  problem(): string | undefined {
    const largest = `the largest is ${sizeText(this.#largest)}`;
    if (this.#lost > 0) {
      return `${this.#lost} of ${this.#values} values are too large for ${this.#dtype.name}, whose scales are F16; ${largest}`;
    }
    if (!(this.#worst > mostBlockError)) return undefined;
    return `values are too small for ${this.#dtype.name}, whose scales are F16, and would change by ${percentText(this.#worst)}; ${largest}`;
  }

  #compare(values: Float32Array): void {
    const { blockElems, blockBytes } = this.#dtype;
    const blocks = values.length / blockElems;
    const packed = new Uint8Array(blocks * blockBytes);
    const back = new Float32Array(values.length);
    this.#dtype.quantize!(values, 0, packed, 0, blocks);
    this.#dtype.dequantize(packed, 0, back, 0, blocks);
    let squares = 0;
    let errors = 0;
    for (let i = 0; i < values.length; i++) {
      if (!Number.isFinite(back[i]!)) this.#lost++;
      squares += values[i]! ** 2;
      errors += (values[i]! - back[i]!) ** 2;
    }
    this.#worst = Math.max(this.#worst, Math.sqrt(errors / squares) || 0);
  }
}

function sizeText(size: number): string {
  return Number.isFinite(size) ? size.toPrecision(4) : "not finite";
}

function percentText(share: number): string {
  return `${(100 * share).toPrecision(2)}%`;
}
