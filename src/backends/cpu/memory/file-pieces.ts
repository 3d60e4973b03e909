// Weights that lie in local files: every thread reads pieces of them by itself, and packs each piece right after it was read,
// while it is in the thread's cache. No thread waits for another, so reading and packing overlap on all threads.
//
// The pieces of all weights are numbered in one row. The leader publishes them in groups (repack.ts), and lets its thread
// receive messages between two groups. A piece that cannot be read is counted as done and noted: the weights are then read
// again the other way, which reports the error.

import type { FilePart, ReadAt } from "../../../platform/platform.ts";
import type { Executor } from "../executor.ts";
import type { ArenaViews } from "./arena.ts";

/** A weight in files: plain data, sent to every thread. */
export interface FileWeight {
  readonly name: string;
  readonly bytes: number;
  /** Parts of the same size, in order. */
  readonly parts: readonly FilePart[];
  /** The instruction that packs it; undefined: it stays as it is in the file, at address `raw`. */
  readonly packing?: number | undefined;
  readonly raw?: number | undefined;
}

/** Packs the rows of a unit at this address, a row panel of up to 16 or a tile of neuron columns, as number `unit`. */
export type PackRows = (from: number, rows: number, unit: number) => void;

/** The rows of a weight that is packed. */
export interface PackedShape {
  readonly matrices: number;
  readonly rows: number;
  readonly rowBytes: number;
  /** Rows that are packed at a time. */
  readonly unitRows: number;
}

/** i32 words of the group that is open. */
export const FIRST_PIECE = 0;
export const PIECES = 1;
export const UNREADABLE = 2;
export const GROUP_WORDS = 3;

/** f64 per thread, in a cache line of its own: ms spent on reading and on packing. */
export const READ_MS = 0;
export const PACK_MS = 1;
export const TIME_NUMBERS = 8;

export interface FilePiecesPlace {
  readonly views: ArenaViews;
  /** The buffer of this thread. */
  readonly buffer: number;
  readonly bufferBytes: number;
  /** The words of the open group, and the times of this thread. */
  readonly group: Int32Array;
  readonly times: Float64Array;
}

/** Bytes of a piece that is read directly to its address, past the buffer: a model may have nothing to pack, and no buffers. */
const RAW_PIECE_BYTES = 512 << 10;

interface Pieces {
  readonly weight: FileWeight;
  readonly shape: PackedShape | undefined;
  /** Rows, or bytes where nothing is packed, of a piece. */
  readonly step: number;
  readonly perMatrix: number;
  /** The number of its first piece. */
  readonly first: number;
  readonly count: number;
}

export class FilePieces implements Executor {
  readonly count: number;
  readonly #weights: readonly Pieces[];
  readonly #packs: readonly PackRows[];
  readonly #place: FilePiecesPlace;
  readonly #readAt: ReadAt;

  /** `shapes` and `packs`: of each instruction. */
  constructor(
    weights: readonly FileWeight[],
    shapes: readonly PackedShape[],
    packs: readonly PackRows[],
    place: FilePiecesPlace,
    readAt: ReadAt,
  ) {
    let first = 0;
    this.#weights = weights.map((weight) => {
      const shape = weight.packing === undefined ? undefined : shapes[weight.packing]!;
      const pieces = piecesOf(weight, shape, place.bufferBytes, first);
      first += pieces.count;
      return pieces;
    });
    this.count = first;
    this.#packs = packs;
    this.#place = place;
    this.#readAt = readAt;
  }

  chunks(): number {
    return this.#place.group[PIECES]!;
  }

  run(chunk: number): void {
    const { group, times } = this.#place;
    const number = group[FIRST_PIECE]! + chunk;
    const { weight, shape, step, perMatrix, first } = this.#weights[this.#find(number)]!;
    const piece = number - first;
    const start = performance.now();
    let read = start;
    try {
      if (!shape) {
        const from = piece * step;
        const at = weight.raw! + from;
        this.#read(weight, from, at, Math.min(step, weight.bytes - from));
        read = performance.now();
        return;
      }
      const { rows, rowBytes, unitRows } = shape;
      const matrix = Math.floor(piece / perMatrix);
      const row = (piece % perMatrix) * step;
      const count = Math.min(step, rows - row);
      const { buffer } = this.#place;
      this.#read(weight, (matrix * rows + row) * rowBytes, buffer, count * rowBytes);
      read = performance.now();
      const firstUnit = matrix * Math.ceil(rows / unitRows) + row / unitRows;
      const pack = this.#packs[weight.packing!]!;
      for (let done = 0; done < count; done += unitRows) {
        const inUnit = Math.min(unitRows, count - done);
        pack(buffer + done * rowBytes, inUnit, firstUnit + done / unitRows);
      }
    } catch (error) {
      if (read !== start) throw error;
      Atomics.store(group, UNREADABLE, 1);
    } finally {
      times[READ_MS]! += read - start;
      times[PACK_MS]! += performance.now() - read;
    }
  }

  /** Bytes of the pieces from `from` to `to`. */
  bytesOf(from: number, to: number): number {
    let bytes = 0;
    for (const { weight, first, count } of this.#weights) {
      const inside = Math.min(to, first + count) - Math.max(from, first);
      if (inside > 0) bytes += (weight.bytes * inside) / count;
    }
    return Math.round(bytes);
  }

  /** The weight that this piece belongs to. */
  #find(piece: number): number {
    let low = 0;
    for (let high = this.#weights.length - 1; low < high; ) {
      const middle = (low + high + 1) >> 1;
      if (this.#weights[middle]!.first <= piece) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Reads bytes of a weight to this address. */
  #read({ bytes, parts }: FileWeight, from: number, at: number, length: number): void {
    const { u8 } = this.#place.views;
    const partBytes = bytes / parts.length;
    for (let done = 0; done < length; ) {
      const { descriptor, offset } = parts[Math.floor((from + done) / partBytes)]!;
      const inPart = (from + done) % partBytes;
      const most = Math.min(partBytes - inPart, length - done);
      const target = u8.subarray(at + done, at + done + most);
      const count = this.#readAt(descriptor, target, offset + inPart);
      if (count === 0) throw new Error(`the file ends at byte ${offset + inPart}`);
      done += count;
    }
  }
}

function piecesOf(
  weight: FileWeight,
  shape: PackedShape | undefined,
  bufferBytes: number,
  first: number,
): Pieces {
  if (!shape) {
    const count = Math.ceil(weight.bytes / RAW_PIECE_BYTES);
    return { weight, shape, step: RAW_PIECE_BYTES, perMatrix: count, first, count };
  }
  const { matrices, rows, rowBytes, unitRows } = shape;
  const step = Math.floor(bufferBytes / (unitRows * rowBytes)) * unitRows;
  const perMatrix = Math.ceil(rows / step);
  return { weight, shape, step, perMatrix, first, count: matrices * perMatrix };
}
