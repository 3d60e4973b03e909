// Which types of weights the GPU reads: those that have an unpacking (../unpack/).

import type { DType } from "../../../dtypes/dtype.ts";
import { unpackOf } from "../unpack/table.ts";

export function readable(dtype: DType): true | string {
  return unpackOf(dtype) ? true : `the GPU does not read ${dtype.name} weights`;
}
