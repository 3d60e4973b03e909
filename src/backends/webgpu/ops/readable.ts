// The types of weights that the GPU reads: those whose values can be unpacked four at a time (../unpack/).

import type { DType } from "../../../dtypes/dtype.ts";

export function readable({ name, blockElems }: DType): true | string {
  if (blockElems === 1 || blockElems % 4 === 0) return true;
  return `the GPU reads four values at a time, and ${name} has blocks of ${blockElems}`;
}
