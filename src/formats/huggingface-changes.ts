// Tensors of a Hugging Face folder that GGUF stores in another form: split, joined, transposed, reshaped, or with other values.
//
// The tables of names (huggingface-families.ts) list them; the functions here build those tables. Splitting and reordering rows
// needs no work: the new tensor records the locations of its parts. Other changes are made while a tensor is read
// (huggingface-read.ts).

import { FormatError } from "../base/errors.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { JsonObject } from "./json.ts";
import type { TensorInfo } from "./model-file.ts";
import { packedBytes } from "./packed-bytes.ts";

const floats: DType = dtypeByName("f32")!;

/** The way the values of a tensor are made of the stored ones. */
export type Change =
  | { readonly kind: "each"; readonly of: (value: number, index: number) => number }
  /** Row r of each matrix is column `first + r * step` of the stored one. */
  | { readonly kind: "columns"; readonly first: number; readonly step: number }
  /** -1, 0 or 1 times the mean of the values without their signs. */
  | { readonly kind: "ternary" }
  /** Groups of `size` columns in another order: group i is group order[i] of the stored ones. */
  | { readonly kind: "groups"; readonly size: number; readonly order: readonly number[] }
  /** MXFP4: row r of each matrix has the quants of row `first + r * step` of the stored bytes, and the scales of that row. */
  | {
      readonly kind: "packed";
      readonly scales: TensorInfo;
      readonly first: number;
      readonly step: number;
    }
  /** Not stored at all. */
  | { readonly kind: "constant"; readonly values: Float32Array };

/** A tensor as GGUF has it. */
export interface Presented {
  readonly name: string;
  readonly tensor: TensorInfo;
  readonly change?: Change;
  /** The tensor that the change reads, if it is not the folder's own. */
  readonly stored?: TensorInfo;
}

/** GGUF's name of a tensor, or the change of it. */
export type Target =
  | string
  | ((
      tensor: TensorInfo,
      config: JsonObject,
      /** All tensors of the folder, by their own names. */
      table: ReadonlyMap<string, TensorInfo>,
    ) => readonly Presented[]);

const changed =
  (of: (value: number) => number, shapeOf: (shape: readonly number[]) => readonly number[]) =>
  (name: string): Target =>
  (tensor) => {
    const shape = shapeOf(tensor.shape);
    const byteLength = bytesFor(floats, elemsOf(tensor));
    const changedTensor = { ...tensor, dtype: floats, shape, byteLength };
    return [{ name, tensor: changedTensor, change: { kind: "each", of } }];
  };

/** Norms with a weight that is stored as its difference from 1. */
export const plusOne: (name: string) => Target = changed(
  (value) => value + 1,
  (shape) => shape,
);

/** The decay of a scan, stored as the logarithm of its opposite. */
export const decay: (name: string) => Target = changed(
  (value) => -Math.exp(value),
  (shape) => shape,
);

/** The same for each head: [heads] becomes [heads, 1]. */
export const headDecay: (name: string) => Target = changed(
  (value) => -Math.exp(value),
  (shape) => [...shape, 1],
);

/** Another shape for the same values in the same order. */
export function reshaped(
  name: string,
  shapeOf: (shape: readonly number[], config: JsonObject) => readonly number[],
): Target {
  return (tensor, config) => [
    { name, tensor: { ...tensor, shape: shapeOf(tensor.shape, config) } },
  ];
}

/** Without the dimensions of 1 between the first and the last: [channels, 1, taps] becomes [channels, taps]. */
export function squeezed(name: string): Target {
  return reshaped(name, (shape) => shape.filter((dim, i) => dim !== 1 || i === 0));
}

/** Rows become columns, in every matrix of the tensor. */
export function transposed(name: string): Target {
  return (tensor) => [columnsOf(tensor, name, 0, 1, 1)];
}

/** [matrices, in, 2 * out] with the columns of one matrix before those of the other: two transposed tensors. */
export function transposedHalves(first: string, second: string): Target {
  return (tensor) => {
    const half = tensor.shape.at(-1)! / 2;
    return [columnsOf(tensor, first, 0, 1, 2), columnsOf(tensor, second, half, 1, 2)];
  };
}

/** [matrices, in, 2 * out] with the columns of two matrices by turns: two transposed tensors. */
export function transposedTurns(first: string, second: string): Target {
  return (tensor) => [columnsOf(tensor, first, 0, 2, 2), columnsOf(tensor, second, 1, 2, 2)];
}

/** The columns of one of `shares` tensors with the same number of columns. */
function columnsOf(
  tensor: TensorInfo,
  name: string,
  first: number,
  step: number,
  shares: number,
): Presented {
  const { shape, dtype } = tensor;
  if (shape.length < 2 || shape.at(-1)! % shares !== 0) {
    throw wrongShape(tensor, `a matrix whose columns are a multiple of ${shares}`);
  }
  const rows = shape.at(-1)! / shares;
  const turned = [...shape.slice(0, -2), rows, shape.at(-2)!];
  const byteLength = bytesFor(dtype, elemsOf(tensor) / shares);
  const change: Change = { kind: "columns", first, step };
  return { name, tensor: { ...tensor, shape: turned, byteLength }, change };
}

/** The interleaved values of two vectors: every second one belongs to the first tensor. [.., 2 * n] becomes [.., n] twice. */
export function turns(first: string, second: string): Target {
  return (tensor) =>
    [first, second].map((name, i) => {
      const size = tensor.dtype.blockBytes;
      const shape = [...tensor.shape.slice(0, -1), tensor.shape.at(-1)! / 2];
      const parts = Array.from({ length: elemsOf(tensor) / 2 }, (_, at) => ({
        file: tensor.file,
        offset: tensor.offset + (2 * at + i) * size,
      }));
      const byteLength = tensor.byteLength / 2;
      return { name, tensor: { ...tensor, shape, byteLength, ...parts[0]!, parts } };
    });
}

/** The rows (of every matrix) belong to these tensors, one after the other, in equal numbers. */
export function split(...names: readonly string[]): Target {
  return (tensor) => {
    const { shape } = tensor;
    const matrixRows = shape.at(-2) ?? 0;
    const rows = matrixRows / names.length;
    if (!Number.isInteger(rows) || rows === 0) {
      throw wrongShape(tensor, `rows in a multiple of ${names.length}`);
    }
    const matrices = shape.slice(0, -2).reduce((a, b) => a * b, 1);
    return names.map((name, i) => {
      const starts = Array.from({ length: matrices }, (_, m) => m * matrixRows + i * rows);
      return { name, tensor: rowGroups(tensor, starts, rows, [...shape.slice(0, -2), rows]) };
    });
  };
}

/**
 * Rows in another order: `starts` are the first rows of groups of `rows`, in the order of the new tensor. `outer`: its shape
 * without the columns.
 */
export function rowGroups(
  tensor: TensorInfo,
  starts: readonly number[],
  rows: number,
  outer: readonly number[],
): TensorInfo {
  const { shape, dtype, file, offset } = tensor;
  // A vector is a matrix of one column.
  const cols = shape.length === 1 ? 1 : shape.at(-1)!;
  const rowBytes = bytesFor(dtype, cols);
  const parts = starts.map((row) => ({ file, offset: offset + row * rowBytes }));
  const byteLength = starts.length * rows * rowBytes;
  const newShape = shape.length === 1 ? outer : [...outer, cols];
  return { ...tensor, shape: newShape, byteLength, ...parts[0]!, parts };
}

/** Values as BitNet rounds them. */
export function ternary(name: string): Target {
  return (tensor) => [{ name, tensor, change: { kind: "ternary" } }];
}

/** Every value times the product of these, in the type that the folder has it in. */
export function scaled(name: string, ...factors: readonly number[]): Target {
  return (tensor) => [times(name, tensor, () => factors)];
}

/** Every value times the product of the factors at its index, each product rounded to a float, as torch does. */
export function times(
  name: string,
  tensor: TensorInfo,
  factorsOf: (index: number) => readonly number[],
): Presented {
  const of = (value: number, index: number): number => {
    let product = value;
    for (const factor of factorsOf(index)) product = Math.fround(product * factor);
    return product;
  };
  return { name, tensor, change: { kind: "each", of } };
}

/**
 * MXFP4 as a folder has it: "..._blocks" [matrices, rows, blocks, 16] of bytes and "..._scales" [matrices, rows, blocks]. The rows
 * of several tensors lie by turns.
 */
export function mxfp4(...names: readonly string[]): Target {
  const type = dtypeByName("mxfp4")!;
  return (tensor, _config, table) => {
    const [matrices, rows, blocks, half] = tensor.shape as [number, number, number, number];
    const scales = table.get(tensor.name.replace(/_blocks$/, "_scales"));
    const isWhole = tensor.shape.length === 4 && half === 16 && rows % names.length === 0;
    if (!isWhole || tensor.dtype !== packedBytes) {
      const expected = `U8 [matrices, ${names.length} times as many rows, blocks, 16]`;
      throw wrongShape(tensor, expected);
    }
    if (scales?.dtype !== packedBytes || scales.shape.join() !== tensor.shape.slice(0, 3).join()) {
      const got = scales ? `${scales.dtype.name} [${scales.shape}]` : "no such tensor";
      const name = tensor.name.replace(/_blocks$/, "_scales");
      throw wrongTensor({ ...tensor, name }, got, `U8 [${tensor.shape.slice(0, 3)}]`);
    }
    const shape = [matrices, rows / names.length, blocks * type.blockElems];
    const byteLength = bytesFor(
      type,
      shape.reduce((a, b) => a * b, 1),
    );
    return names.map((name, first) => ({
      name,
      tensor: { ...tensor, dtype: type, shape, byteLength },
      change: { kind: "packed", scales, first, step: names.length },
    }));
  };
}

/** A tensor that the folder has only in config.json. */
export function constant(name: string, values: readonly number[], file: string): Presented {
  const data = Float32Array.from(values);
  const byteLength = bytesFor(floats, data.length);
  const tensor = { name, dtype: floats, shape: [data.length], byteLength, file, offset: 0 };
  return { name, tensor, change: { kind: "constant", values: data } };
}

function elemsOf({ shape }: TensorInfo): number {
  return shape.reduce((a, b) => a * b, 1);
}

export function wrongShape(tensor: TensorInfo, expected: string): FormatError {
  return wrongTensor(tensor, `${tensor.dtype.name} [${tensor.shape}]`, expected);
}

export function wrongTensor(
  { file, name }: TensorInfo,
  got: string,
  expected: string,
): FormatError {
  const field = `tensor ${JSON.stringify(name)}`;
  return new FormatError("huggingface", { file, field, got, expected });
}
