// Tensors of a Hugging Face folder that GGUF stores in another form: split, joined, transposed, reshaped, or with other values.
//
// The tables of names (huggingface-families.ts) say which; the functions here are what they are made of. Splitting and
// reordering rows needs no work: the new tensor records where its parts are. Other changes are made while a tensor is read,
// a piece or a matrix at a time.

import { FormatError, UsageError } from "../base/errors.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { JsonObject } from "./json.ts";
import type { ModelFile, TensorInfo } from "./model-file.ts";

const floats: DType = dtypeByName("f32")!;

/** How the values of a tensor are made of the stored ones. */
export type Change =
  | { readonly kind: "each"; readonly of: (value: number) => number }
  /** Row r of each matrix is column `first + r * step` of the stored one. */
  | { readonly kind: "columns"; readonly first: number; readonly step: number }
  /** Not stored at all. */
  | { readonly kind: "constant"; readonly values: Float32Array };

/** A tensor as GGUF has it. */
export interface Presented {
  readonly name: string;
  readonly tensor: TensorInfo;
  readonly change?: Change;
  /** What the change reads, if not the tensor as the folder has it. */
  readonly stored?: TensorInfo;
}

/** GGUF's name of a tensor, or what becomes of it. */
export type Target = string | ((tensor: TensorInfo, config: JsonObject) => readonly Presented[]);

const changed =
  (of: (value: number) => number, shapeOf: (shape: readonly number[]) => readonly number[]) =>
  (name: string): Target =>
  (tensor) => {
    const shape = shapeOf(tensor.shape);
    const byteLength = bytesFor(floats, elemsOf(tensor));
    const changedTensor = { ...tensor, dtype: floats, shape, byteLength };
    return [{ name, tensor: changedTensor, change: { kind: "each", of } }];
  };

/** Norms whose weight is stored as its difference from 1. */
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

/** Of `shares` tensors with the same number of columns, one. */
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

/** The values of a vector by turns: every second one is of the first tensor. [.., 2 * n] becomes [.., n] twice. */
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

export function wrongShape({ file, name, shape }: TensorInfo, expected: string): FormatError {
  return new FormatError("huggingface", {
    file,
    field: `tensor ${JSON.stringify(name)}`,
    got: `shape [${shape}]`,
    expected,
  });
}

/** What is read of a changed tensor: the stored one, and the change. */
export interface ChangedTensor {
  readonly stored: TensorInfo;
  readonly change: Change;
}

/** The same file, in which some tensors are computed from the stored ones as they are read. */
export function withChanges(
  file: ModelFile,
  changes: ReadonlyMap<string, ChangedTensor>,
): ModelFile {
  if (changes.size === 0) return file;
  return {
    ...file,
    filePartsOf: (tensor) => (changes.has(tensor.name) ? undefined : file.filePartsOf(tensor)),
    async readTensor(tensor: TensorInfo, target: Uint8Array, byteOffset = 0): Promise<void> {
      const found = changes.get(tensor.name);
      if (!found) return await file.readTensor(tensor, target, byteOffset);
      checkRange(tensor, target, byteOffset);
      await read[found.change.kind](file, found as never, tensor, target, byteOffset);
    },
  };
}

function checkRange(
  { name, dtype, byteLength }: TensorInfo,
  target: Uint8Array,
  from: number,
): void {
  const isWhole = from % dtype.blockBytes === 0 && target.byteLength % dtype.blockBytes === 0;
  if (isWhole && from >= 0 && from <= byteLength - target.byteLength) return;
  throw new UsageError(
    `readTensor: bytes ${from} to ${from + target.byteLength} of "${name}", expected whole values of its ${byteLength} bytes`,
  );
}

/** Values of a piece. */
const pieceElems = 1 << 18;

type Reader<K extends Change["kind"]> = (
  file: ModelFile,
  changed: { stored: TensorInfo; change: Extract<Change, { kind: K }> },
  tensor: TensorInfo,
  target: Uint8Array,
  byteOffset: number,
) => Promise<void>;

const read: { [K in Change["kind"]]: Reader<K> } = {
  async each(file, { stored, change }, _tensor, target, byteOffset) {
    const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
    const { dtype } = stored;
    const elems = target.byteLength / 4;
    for (let at = 0; at < elems; at += pieceElems) {
      const count = Math.min(pieceElems, elems - at);
      const bytes = new Uint8Array(bytesFor(dtype, count));
      await file.readTensor(stored, bytes, bytesFor(dtype, byteOffset / 4 + at));
      const values = new Float32Array(count);
      dtype.dequantize(bytes, 0, values, 0, count);
      for (let i = 0; i < count; i++) view.setFloat32(4 * (at + i), change.of(values[i]!), true);
    }
  },

  async columns(file, { stored, change }, tensor, target, byteOffset) {
    const { first, step } = change;
    const size = stored.dtype.blockBytes;
    const width = stored.shape.at(-1)!;
    const [rows, cols] = [tensor.shape.at(-2)!, tensor.shape.at(-1)!];
    const matrixBytes = rows * cols * size;
    for (let done = 0; done < target.byteLength; ) {
      const matrix = Math.floor((byteOffset + done) / matrixBytes);
      const from = (byteOffset + done) % matrixBytes;
      const bytes = Math.min(matrixBytes - from, target.byteLength - done);
      const source = await wholeMatrix(file, stored, matrix, width * cols * size); // [cols, width]
      for (let at = 0; at < bytes; at += size) {
        const elem = (from + at) / size;
        const place = (elem % cols) * width + first + Math.floor(elem / cols) * step;
        for (let i = 0; i < size; i++) target[done + at + i] = source[place * size + i]!;
      }
      done += bytes;
    }
  },

  async constant(_file, { change }, _tensor, target, byteOffset) {
    const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
    for (let i = 0; i < target.byteLength / 4; i++) {
      view.setFloat32(4 * i, change.values[byteOffset / 4 + i]!, true);
    }
  },
};

/** The last matrix that was read of each file: a reader takes a tensor in pieces, and each piece needs all of the matrix. */
const lastMatrix = new WeakMap<
  ModelFile,
  { stored: TensorInfo; matrix: number; bytes: Uint8Array }
>();

async function wholeMatrix(
  file: ModelFile,
  stored: TensorInfo,
  matrix: number,
  size: number,
): Promise<Uint8Array> {
  const last = lastMatrix.get(file);
  if (last?.stored === stored && last.matrix === matrix) return last.bytes;
  const bytes = new Uint8Array(size);
  await file.readTensor(stored, bytes, matrix * size);
  lastMatrix.set(file, { stored, matrix, bytes });
  return bytes;
}
