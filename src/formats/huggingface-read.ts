// Reads the tensors of a Hugging Face folder that GGUF stores in another form (huggingface-changes.ts), a piece or a matrix at a time.

import { UsageError } from "../base/errors.ts";
import { bytesFor } from "../dtypes/dtype.ts";
import type { Change } from "./huggingface-changes.ts";
import type { ModelFile, TensorInfo } from "./model-file.ts";

/** A changed tensor: the stored tensor to read, and the change. */
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
  async each(file, { stored, change }, tensor, target, byteOffset) {
    const { dtype } = stored;
    const size = tensor.dtype.blockBytes;
    const [elems, from] = [target.byteLength / size, byteOffset / size];
    for (let at = 0; at < elems; at += pieceElems) {
      const count = Math.min(pieceElems, elems - at);
      const bytes = new Uint8Array(bytesFor(dtype, count));
      await file.readTensor(stored, bytes, bytesFor(dtype, from + at));
      const values = new Float32Array(count);
      dtype.dequantize(bytes, 0, values, 0, count);
      for (let i = 0; i < count; i++) values[i] = change.of(values[i]!, from + at + i);
      tensor.dtype.quantize!(values, 0, target, at * size, count);
    }
  },

  async ternary(file, { stored }, tensor, target, byteOffset) {
    const scale = Math.fround(1 / Math.max(await meanSize(file, stored), Math.fround(1e-5)));
    const of = (value: number): number => {
      const rounded = roundEven(Math.fround(value * scale));
      return Math.fround(Math.max(-1, Math.min(1, rounded)) / scale);
    };
    const changed = { stored, change: { kind: "each", of } } as const;
    await read.each(file, changed, tensor, target, byteOffset);
  },

  async groups(file, { stored, change }, tensor, target, byteOffset) {
    const size = bytesFor(stored.dtype, change.size);
    const rowBytes = size * change.order.length;
    const last = byteOffset + target.byteLength;
    const rowsOfPiece = Math.max(1, Math.floor(pieceElems / tensor.shape.at(-1)!));
    for (let row = Math.floor(byteOffset / rowBytes); row * rowBytes < last; row += rowsOfPiece) {
      const end = Math.min(row + rowsOfPiece, Math.ceil(last / rowBytes));
      const bytes = new Uint8Array((end - row) * rowBytes);
      await file.readTensor(stored, bytes, row * rowBytes);
      const turned = new Uint8Array(bytes.length); // [rows, groups, size]
      for (let start = 0; start < bytes.length; start += rowBytes) {
        change.order.forEach((from, to) => {
          const group = bytes.subarray(start + from * size, start + (from + 1) * size);
          turned.set(group, start + to * size);
        });
      }
      const from = Math.max(byteOffset, row * rowBytes);
      const until = Math.min(last, end * rowBytes);
      target.set(turned.subarray(from - row * rowBytes, until - row * rowBytes), from - byteOffset);
    }
  },

  async packed(file, { stored, change }, tensor, target, byteOffset) {
    const { scales, first, step } = change;
    const { blockBytes, blockElems } = tensor.dtype;
    const [rows, cols] = [tensor.shape[1]!, tensor.shape[2]!];
    const rowBlocks = cols / blockElems;
    const matrixBytes = rows * rowBlocks * blockBytes;
    for (let done = 0; done < target.byteLength; ) {
      const matrix = Math.floor((byteOffset + done) / matrixBytes);
      const from = (byteOffset + done) % matrixBytes;
      const bytes = Math.min(matrixBytes - from, target.byteLength - done);
      const quants = await wholeMatrix(file, stored, matrix, rows * step * rowBlocks * 16);
      const exponents = new Uint8Array(rows * step * rowBlocks);
      await file.readTensor(scales, exponents, matrix * exponents.length);
      for (let at = 0; at < bytes; at += blockBytes) {
        const block = (from + at) / blockBytes;
        const row = first + Math.floor(block / rowBlocks) * step;
        const place = row * rowBlocks + (block % rowBlocks);
        target[done + at] = exponents[place]!;
        // A byte of the folder has values 2i and 2i + 1, a byte of GGUF i and i + 16.
        for (let i = 0; i < 16; i++) {
          const [low, high] = [quants[16 * place + (i >> 1)]!, quants[16 * place + 8 + (i >> 1)]!];
          const shift = 4 * (i & 1);
          target[done + at + 1 + i] = ((low >> shift) & 15) | (((high >> shift) & 15) << 4);
        }
      }
      done += bytes;
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

const means = new WeakMap<TensorInfo, number>();

/** The mean of a tensor's values without their signs. */
async function meanSize(file: ModelFile, stored: TensorInfo): Promise<number> {
  const known = means.get(stored);
  if (known !== undefined) return known;
  const { dtype, byteLength } = stored;
  const pieceBytes = bytesFor(dtype, pieceElems);
  let sum = 0;
  for (let at = 0; at < byteLength; at += pieceBytes) {
    const bytes = new Uint8Array(Math.min(pieceBytes, byteLength - at));
    await file.readTensor(stored, bytes, at);
    const values = new Float32Array(bytes.length / dtype.blockBytes);
    dtype.dequantize(bytes, 0, values, 0, values.length);
    for (const value of values) sum += Math.abs(value);
  }
  const mean = Math.fround(sum / (byteLength / dtype.blockBytes));
  means.set(stored, mean);
  return mean;
}

/** To the nearest integer, of two to the even one, as torch does. */
function roundEven(value: number): number {
  const floor = Math.floor(value);
  const isTie = value - floor === 0.5;
  return isTie ? floor + (floor % 2 === 0 ? 0 : 1) : Math.round(value);
}
