// Tests whether F16 can hold a tensor. If not, the tensor stays as it is: convert, quantize and open() all ask here.
//
// F16 has 5 bits of exponent: nothing beyond 65504, fewer than 11 bits below 2^-14 (6.1e-5), nothing below 2^-25.
// Ordinary weights pass: a few per thousand are below 6.1e-5, and their errors are small against the rounding of the
// others.

import { f16ToF32, f32ToF16 } from "../base/half.ts";

export interface RangeCheck {
  /** Takes the next values of the tensor: whole blocks. */
  add(values: Float32Array): void;
  /** Why the type cannot hold the tensor, with the counts; undefined if it can. */
  problem(): string | undefined;
}

export const largestHalf = 65504;
export const smallestNormalHalf: number = 2 ** -14;

/** The bits of these two as float32: without the sign, floats are ordered like their bits, NaN above all others. */
const largestBits = 0x477fe000;
const smallestBits = 0x38800000;

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
  /** Bits of the largest magnitude. */
  #largest = 0;
  #squares = 0;
  #errors = 0;

  add(values: Float32Array): void {
    const bits = new Int32Array(values.buffer, values.byteOffset, values.length);
    let [largest, squares, zeros] = [this.#largest, this.#squares, 0];
    for (let i = 0; i < values.length; i++) {
      const size = bits[i]! & 0x7fffffff;
      if (size > largest) largest = size; // a NaN stays
      if (size >= smallestBits && size <= largestBits) {
        const value = values[i]!;
        squares += value * value;
      } else if (size === 0) zeros++;
      else if (size > largestBits) this.#beyond++;
      // Infinities and NaN are beyond, too: F16 has them, but F32 shows where they came from.
      else squares += this.#addSmall(values[i]!);
    }
    this.#values += values.length;
    this.#nonzero += values.length - zeros;
    this.#largest = largest;
    this.#squares = squares;
  }

  /** Returns its square. */
  #addSmall(value: number): number {
    this.#small++;
    const half = f16ToF32(f32ToF16(value));
    if (half === 0) this.#zeroed++;
    this.#errors += (value - half) ** 2;
    return value * value;
  }

  /** Whether no value was infinite or NaN. */
  get isFinite(): boolean {
    return Number.isFinite(floatOf(this.#largest));
  }

  problem(): string | undefined {
    const largest = `the largest is ${sizeText(floatOf(this.#largest))}`;
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

function floatOf(bits: number): number {
  return new Float32Array(Int32Array.of(bits).buffer)[0]!;
}

export function sizeText(size: number): string {
  return Number.isFinite(size) ? size.toPrecision(4) : "not finite";
}

export function percentText(share: number): string {
  return `${(100 * share).toPrecision(2)}%`;
}
