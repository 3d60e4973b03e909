// Checks that every format's tensor table must pass: rows in whole blocks, sizes that do not overflow, ranges inside
// the file, no overlapping tensors.

import { FormatError } from "../base/errors.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { allDTypes } from "../dtypes/table.ts";
import type { TensorInfo } from "./model-file.ts";

/** The most dimensions that a tensor may have in any format. */
export const mostDimensions = 4;

export interface TensorClaim {
  format: string;
  file: string;
  name: string;
  dtype: DType;
  /** Outermost first, as the file claims it. */
  shape: readonly number[];
}

/** Bytes of a tensor, after checks: each dimension at least 1, the product exact, rows in whole blocks. */
export function tensorBytes(claim: TensorClaim): number {
  const { format, file, name, dtype, shape } = claim;
  const error = (field: string, got: unknown, expected: string): FormatError =>
    new FormatError(format, {
      file,
      field: `tensor ${JSON.stringify(name)} ${field}`,
      got,
      expected,
    });
  if (shape.length < 1 || shape.length > mostDimensions) {
    throw error("dimension count", shape.length, `1 to ${mostDimensions}`);
  }
  let elems = 1;
  for (const dim of shape) {
    if (!(Number.isSafeInteger(dim) && dim >= 1))
      throw error("shape", shape, "dimensions of 1 or more");
    elems *= dim;
  }
  const rowElems = shape.at(-1)!;
  if (rowElems % dtype.blockElems !== 0) {
    throw error("row length", rowElems, `a multiple of ${dtype.blockElems} (${dtype.name} blocks)`);
  }
  const bytes = bytesFor(dtype, elems);
  if (Number.isSafeInteger(elems) && Number.isSafeInteger(bytes)) return bytes;
  throw error("shape", shape, "fewer than 2^53 elements and bytes");
}

/** Checks all tensors of one file: inside its data section, and none overlapping another. */
export function checkTensorRanges(
  format: string,
  file: string,
  tensors: readonly TensorInfo[],
  fileSize: number,
): void {
  const sorted = [...tensors].sort((a, b) => a.offset - b.offset);
  let before: TensorInfo | undefined;
  for (const tensor of sorted) {
    const field = `tensor ${JSON.stringify(tensor.name)} data`;
    const end = tensor.offset + tensor.byteLength;
    if (end > fileSize) {
      const got = `bytes ${tensor.offset} to ${end}`;
      throw new FormatError(format, {
        file,
        field,
        got,
        expected: `an end within ${fileSize} bytes`,
      });
    }
    if (before && tensor.offset < before.offset + before.byteLength) {
      const got = `an overlap with ${JSON.stringify(before.name)} at byte ${tensor.offset}`;
      throw new FormatError(format, { file, field, got, expected: "tensors that do not overlap" });
    }
    before = tensor;
  }
}

/** "f32 (0), f16 (1), ...": for the error about an unknown type. */
export function knownTypes(): string {
  return allDTypes()
    .toSorted((a, b) => a.ggufId - b.ggufId)
    .map((dtype) => `${dtype.name} (${dtype.ggufId})`)
    .join(", ");
}
