// The types that a conversion writes, and their numbers in general.file_type ("mostly" that type: vectors are always
// F32, and a tensor that a type cannot hold stays F32).

import type { DType } from "../../dtypes/dtype.ts";
import { dtypeByName } from "../../dtypes/table.ts";

const fileTypes = { f32: 0, f16: 1, q8_0: 7, bf16: 32 } as const;

/** "auto" keeps every matrix's own type. */
export type ConvertType = keyof typeof fileTypes | "auto";

export const convertTypes: readonly ConvertType[] = [
  "auto",
  ...(Object.keys(fileTypes) as (keyof typeof fileTypes)[]),
];

/** The type that holds every value: for vectors, and for tensors that exceed the range of the requested type. */
export const exactType: DType = dtypeByName("f32")!;

/** For rows that are not a whole number of blocks. */
export const halfType: DType = dtypeByName("f16")!;

/** general.file_type of a file with most matrices of this type. */
export function fileTypeOf(dtype: DType): number {
  return Object.hasOwn(fileTypes, dtype.name)
    ? fileTypes[dtype.name as keyof typeof fileTypes]
    : fileTypes.f32;
}
