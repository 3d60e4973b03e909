// The sources of a weight's values: a tensor of the file, a range of its rows (fused tensors are read as several
// weights, without a copy), a vector with each value several times, or numbers that the architecture computes.

import { ModelError } from "../base/errors.ts";
import { bytesFor } from "../dtypes/dtype.ts";
import type { Weight } from "./graph.ts";

/** Reads bytes of a tensor of the file from `byteOffset` on. */
export type ReadTensor = (name: string, target: Uint8Array, byteOffset: number) => Promise<void>;

/** Reads bytes of a weight from `byteOffset` on. */
export type ReadWeight = (target: Uint8Array, byteOffset: number) => Promise<void>;

export function weightReader(weight: Weight, read: ReadTensor): ReadWeight {
  const { source } = weight;
  if (source === undefined) return (target, at) => read(weight.name, target, at);
  if ("values" in source) {
    const { buffer, byteOffset, byteLength } = source.values;
    const bytes = new Uint8Array(buffer, byteOffset, byteLength);
    return async (target, at) => target.set(bytes.subarray(at, at + target.length));
  }
  if ("times" in source) return timesReader(weight, source, read);
  const start = firstByte(weight, source.row);
  return (target, at) => read(source.tensor, target, start + at);
}

/** Reads a vector with each value `times` times. */
function timesReader(
  { dtype, shape }: Weight,
  { tensor, times }: { readonly tensor: string; readonly times: number },
  read: ReadTensor,
): ReadWeight {
  const size = bytesFor(dtype, 1);
  const once = new Uint8Array((shape[0]! / times) * size);
  return async (target, at) => {
    await read(tensor, once, 0);
    for (let i = 0; i < target.length; i++) {
      const byte = at + i;
      target[i] = once[Math.floor(byte / size / times) * size + (byte % size)]!;
    }
  };
}

/** The first byte of a row of the tensor that the weight is a part of. */
function firstByte({ dtype, shape }: Weight, row: number): number {
  const rowElements = shape.slice(1).reduce((product, dim) => product * dim, 1);
  return bytesFor(dtype, row * rowElements);
}

/** Locations of a tensor of the file, in parts of the same size; undefined: not in local files. */
type TensorParts<Part> = (tensor: string) => readonly Part[] | undefined;

/** Locations of a weight's bytes, in parts of the same size; undefined: not in local files, or not as they are. */
export function weightParts<Part extends { readonly offset: number }>(
  weight: Weight,
  partsOf: TensorParts<Part>,
): readonly Part[] | undefined {
  const { source } = weight;
  if (source === undefined) return partsOf(weight.name);
  if ("values" in source || "times" in source) return undefined;
  const parts = partsOf(source.tensor);
  if (parts?.length !== 1) return undefined; // rows of several parts are read by weightReader()
  const [part] = parts as [Part];
  return [{ ...part, offset: part.offset + firstByte(weight, source.row) }];
}

/** The tensor of the file that has the weight's values; undefined: they are not in the file. */
export function tensorOf({ name, source }: Weight): string | undefined {
  if (source === undefined) return name;
  return "tensor" in source ? source.tensor : undefined;
}

/** `count` rows of a matrix from row `from` on, or values of a vector, as a weight of its own. */
export function rowsOf(weight: Weight, from: number, count: number): Weight {
  const { name, shape, dtype } = weight;
  const rows = shape[0]!;
  if (from < 0 || count < 1 || from + count > rows) {
    throw new ModelError(
      `model: ${name} has ${rows} rows, expected ${from + count}: rows ${from} to ${from + count - 1} are read`,
    );
  }
  return {
    name: `${name}[${from}:${from + count}]`,
    shape: [count, ...shape.slice(1)],
    dtype,
    source: { tensor: name, row: from },
  };
}

/** A vector with each value `times` times. */
export function timesOf({ name, shape, dtype }: Weight, times: number): Weight {
  if (shape.length !== 1 || dtype.blockElems > 1) {
    throw new ModelError(`model: ${name} is ${dtype.name} [${shape}], expected a vector of floats`);
  }
  return {
    name: `${name}[x${times}]`,
    shape: [shape[0]! * times],
    dtype,
    source: { tensor: name, times },
  };
}
