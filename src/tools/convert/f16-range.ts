// Whether F16 can hold a tensor. It has 5 bits of exponent: nothing beyond 65504, fewer than 11 bits below 2^-14
// (6.1e-5), nothing below 2^-25. A tensor that would lose by that stays F32; how much it would lose is counted here.
//
// Ordinary weights pass: a few per thousand of them are below 6.1e-5, with errors that drown in the others' rounding.

import { f16ToF32, f32ToF16 } from "../../base/half.ts";

const largestHalf = 65504;
const smallestNormal = 2 ** -14;

/** Of the values that are not 0, the share that may become 0. */
const mostZeroed = 0.01;

/** The largest error that rounding to 11 bits makes; more than that, of all values together, is underflow. */
const mostError = 2 ** -11;

export class HalfRange {
  #values = 0;
  #beyond = 0;
  #small = 0;
  #zeroed = 0;
  #nonzero = 0;
  #largest = 0;
  #squares = 0;
  #errors = 0;

  add(values: Float32Array): void {
    this.#values += values.length;
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      const size = Math.abs(value);
      if (size === 0) continue;
      this.#nonzero++;
      if (!(size <= largestHalf)) {
        this.#beyond++; // infinities and NaN, too: they are no weights, and F32 keeps them visible
        if (!(size <= this.#largest)) this.#largest = size;
        continue;
      }
      if (size > this.#largest) this.#largest = size;
      const half = f16ToF32[f32ToF16(value)]!;
      if (size < smallestNormal) this.#small++;
      if (half === 0) this.#zeroed++;
      this.#squares += value * value;
      this.#errors += (value - half) ** 2;
    }
  }

  /** Why the tensor cannot be F16; undefined when it can. */
  problem(): string | undefined {
    const { largest } = this.#texts();
    if (this.#beyond > 0) {
      return `${this.#beyond} of ${this.#values} values are beyond F16's largest (65504); the largest is ${largest}`;
    }
    const small = `${this.#small} of ${this.#values} values are below F16's smallest normal (6.1e-5)`;
    if (this.#zeroed > mostZeroed * this.#nonzero) {
      return `${small}, and ${this.#zeroed} would become 0; the largest is ${largest}`;
    }
    if (this.#errors > mostError ** 2 * this.#squares) {
      const error = Math.sqrt(this.#errors / this.#squares);
      return `${small} and would lose ${(100 * error).toPrecision(2)}% of the tensor; the largest is ${largest}`;
    }
    return undefined;
  }

  #texts(): { largest: string } {
    return {
      largest: Number.isFinite(this.#largest) ? this.#largest.toPrecision(4) : "not finite",
    };
  }
}
