// Whether a block type can hold a tensor, for a conversion. If not, the tensor stays F32. The scales of block types are
// F16, so they have the problem of F16 itself (src/dtypes/half-range.ts).

import type { DType } from "../../dtypes/dtype.ts";
import {
  largestHalf,
  percentText,
  type RangeCheck,
  sizeText,
  smallestNormalHalf,
} from "../../dtypes/half-range.ts";

/** Blocks of 8 bits lose at most 1 %; ten times that means a scale that F16 cannot hold. */
const mostBlockError = 0.1;

/** For types with F16 scales of blocks. Only pieces with unusual values are checked in detail, because that takes time. */
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
    if (largest === 0 || (largest >= smallestNormalHalf && largest <= largestHalf)) return;
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
