// The types that a conversion writes, and the number that stands for each in general.file_type ("mostly" that type:
// vectors are always F32, and a tensor that a type cannot hold keeps F32).

import type { DType } from "../../dtypes/dtype.ts";
import { dtypeByName } from "../../dtypes/table.ts";

const fileTypes = { f32: 0, f16: 1, q8_0: 7, bf16: 32 } as const;

/** "auto" keeps every matrix in the type that it has. */
export type ConvertType = keyof typeof fileTypes | "auto";

export const convertTypes: readonly ConvertType[] = [
  "auto",
  ...(Object.keys(fileTypes) as (keyof typeof fileTypes)[]),
];

/** What every value fits into: vectors, and tensors that leave the range of the type asked for. */
export const exactType: DType = dtypeByName("f32")!;

/** For rows that are no whole number of blocks. */
export const halfType: DType = dtypeByName("f16")!;

/** general.file_type of a file whose matrices are mostly of this type. */
export function fileTypeOf(dtype: DType): number {
  return Object.hasOwn(fileTypes, dtype.name)
    ? fileTypes[dtype.name as keyof typeof fileTypes]
    : fileTypes.f32;
}
