// Where each weight lies on the GPU: as few buffers as the device's limits allow, filled one after the other. A matrix
// that fits no buffer is cut between rows into parts, each of which an op reads by a dispatch of its own.
//
// Arithmetic only: nothing is allocated here.

import { MemoryError } from "../../base/errors.ts";
import { bytesFor } from "../../dtypes/dtype.ts";
import type { Weight } from "../../graph/graph.ts";

/** Rows rowStart ... rowStart + rows - 1 of a weight; a vector is one row. */
export interface WeightPart {
  readonly buffer: number;
  /** Of the first byte in the buffer: a multiple of 256, which bindings ask for. */
  readonly offset: number;
  /** A multiple of 4: what is bound. The last bytes may be padding. */
  readonly bytes: number;
  readonly rowStart: number;
  readonly rows: number;
}

export interface WeightLayout {
  /** Bytes of each buffer. */
  readonly buffers: readonly number[];
  readonly parts: ReadonlyMap<string, readonly WeightPart[]>;
  readonly totalBytes: number;
}

/** Offsets of bindings are multiples of this on every device. */
const ALIGNMENT = 256;

/** Byte addresses in shaders are 32-bit. */
const ADDRESSABLE = 2 ** 32 - ALIGNMENT;

export function layOutWeights(
  weights: readonly Weight[],
  limits: { maxBufferBytes: number; maxBindingBytes: number },
): WeightLayout {
  const bufferBytes = Math.min(limits.maxBufferBytes, ADDRESSABLE);
  const partBytes = Math.floor(Math.min(limits.maxBindingBytes, bufferBytes) / 4) * 4;
  const buffers: number[] = [];
  const parts = new Map<string, readonly WeightPart[]>();
  const place = (bytes: number): { buffer: number; offset: number } => {
    const last = buffers.length - 1;
    const offset = Math.ceil((buffers[last] ?? 0) / ALIGNMENT) * ALIGNMENT;
    if (last >= 0 && offset + bytes <= bufferBytes) {
      buffers[last] = offset + bytes;
      return { buffer: last, offset };
    }
    buffers.push(bytes);
    return { buffer: last + 1, offset: 0 };
  };
  for (const weight of weights) {
    const { rowBytes, rows } = storedShape(weight);
    const rowsPerPart = Math.min(rows, Math.floor(partBytes / rowBytes));
    if (rowsPerPart === 0) throw tooLong(weight, rowBytes, partBytes);
    const own: WeightPart[] = [];
    for (let rowStart = 0; rowStart < rows; rowStart += rowsPerPart) {
      const count = Math.min(rowsPerPart, rows - rowStart);
      const bytes = Math.ceil((count * rowBytes) / 4) * 4;
      own.push({ ...place(bytes), bytes, rowStart, rows: count });
    }
    parts.set(weight.name, own);
  }
  return { buffers, parts, totalBytes: buffers.reduce((sum, bytes) => sum + bytes, 0) };
}

/** Matrices keep the file's bytes; vectors (norms, biases) become floats, so that shaders read one kind of them. */
export function storedShape({ shape, dtype }: Weight): { rowBytes: number; rows: number } {
  if (shape.length === 1) return { rowBytes: shape[0]! * 4, rows: 1 };
  return { rowBytes: bytesFor(dtype, shape[1]!), rows: shape[0]! };
}

function tooLong({ name }: Weight, rowBytes: number, partBytes: number): MemoryError {
  return new MemoryError(
    `webgpu: a row of ${name} has ${rowBytes} bytes, but this GPU lets a shader read at most ${partBytes} bytes of a buffer. Use the model in a smaller type, or backend "cpu"`,
  );
}
