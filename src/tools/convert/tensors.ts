// The tensors of a conversion: the type of each, and its bytes, made a piece at a time.
//
// A piece is some whole rows or, where q and k are reordered, whole heads. So memory does not grow with the model.

import { bytesFor, type DType } from "../../dtypes/dtype.ts";
import type { GgufTensor } from "../../formats/gguf/writer.ts";
import type { ModelFile, TensorInfo } from "../../formats/model-file.ts";

/** Approximate size of a piece. */
const pieceBytes = 4 << 20;

export interface PlannedTensor {
  readonly source: TensorInfo;
  readonly dtype: DType;
  /** Rows of one head, if the file has its first halves first and GGUF needs the pairs next to each other. */
  readonly headRows: number | undefined;
}

/** Called after every piece with the bytes read; throws when the work should stop. */
export type OnPiece = (bytesRead: number) => void;

export function ggufTensor(file: ModelFile, planned: PlannedTensor, onPiece: OnPiece): GgufTensor {
  const { source, dtype } = planned;
  return {
    name: source.name,
    dtype,
    shape: source.shape,
    data: () => convertedPieces(file, planned, onPiece),
  };
}

async function* convertedPieces(
  file: ModelFile,
  planned: PlannedTensor,
  onPiece: OnPiece,
): AsyncGenerator<Uint8Array> {
  for await (const piece of rawPieces(file, planned.source, planned.headRows, onPiece)) {
    yield convertedRows(planned, piece);
  }
}

/** Whole rows of the file, or whole heads where rows are reordered, as they are written. */
export function convertedRows(
  { source, dtype, headRows }: PlannedTensor,
  piece: Uint8Array,
): Uint8Array {
  const ordered = headRows === undefined ? piece : pairHalves(piece, rowBytesOf(source), headRows);
  if (source.dtype === dtype) return ordered;
  const values = floatsOf(source.dtype, ordered);
  const converted = new Uint8Array(bytesFor(dtype, values.length));
  dtype.quantize!(values, 0, converted, 0, values.length / dtype.blockElems);
  return converted;
}

/** Bytes of the fewest rows that are converted at a time: in the file, and as they are written. */
export function rowsTogether({ source, dtype, headRows = 1 }: PlannedTensor): {
  sourceBytes: number;
  bytes: number;
} {
  const rowBytes = rowBytesOf(source);
  const elems = (rowBytes / source.dtype.blockBytes) * source.dtype.blockElems;
  return { sourceBytes: rowBytes * headRows, bytes: bytesFor(dtype, elems) * headRows };
}

/** The tensor's values, a piece at a time, in the order of the file. */
export async function* floatPieces(
  file: ModelFile,
  source: TensorInfo,
  onPiece: OnPiece,
): AsyncGenerator<Float32Array> {
  for await (const piece of rawPieces(file, source, undefined, onPiece)) {
    yield floatsOf(source.dtype, piece);
  }
}

async function* rawPieces(
  file: ModelFile,
  source: TensorInfo,
  groupRows: number | undefined,
  onPiece: OnPiece,
): AsyncGenerator<Uint8Array> {
  // A group of rows must stay together; a vector is one row.
  const group = rowBytesOf(source) * (groupRows ?? 1);
  const size = group * Math.max(1, Math.floor(pieceBytes / group));
  for (let offset = 0; offset < source.byteLength; offset += size) {
    const piece = new Uint8Array(Math.min(size, source.byteLength - offset));
    await file.readTensor(source, piece, offset);
    onPiece(piece.byteLength);
    yield piece;
  }
}

/** A matrix's row; a vector has rows of one value each, so that biases are reordered like their matrix. */
function rowBytesOf({ shape, dtype }: TensorInfo): number {
  return shape.length === 1 ? dtype.blockBytes : bytesFor(dtype, shape.at(-1)!);
}

function floatsOf(dtype: DType, bytes: Uint8Array): Float32Array {
  const view = dtype.asFloat32?.(bytes);
  if (view) return view;
  const count = (bytes.byteLength / dtype.blockBytes) * dtype.blockElems;
  const values = new Float32Array(count);
  dtype.dequantize(bytes, 0, values, 0, count / dtype.blockElems);
  return values;
}

/** Reorders the rows of each head: 0, h, 1, h + 1, ... where h is half a head. */
function pairHalves(bytes: Uint8Array, rowBytes: number, headRows: number): Uint8Array {
  const paired = new Uint8Array(bytes.byteLength);
  const half = headRows / 2;
  const rows = bytes.byteLength / rowBytes;
  for (let row = 0; row < rows; row++) {
    const inHead = row % headRows;
    const from = row - inHead + (inHead % 2) * half + (inHead >>> 1);
    paired.set(bytes.subarray(from * rowBytes, (from + 1) * rowBytes), row * rowBytes);
  }
  return paired;
}
