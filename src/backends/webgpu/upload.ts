// Uploads weights to the GPU, in pieces and straight from the file: matrices byte for byte (some types in two planes), vectors
// (norms, biases, rope factors) as floats. While the GPU takes one piece, the next one is read.

import { bytesFor } from "../../dtypes/dtype.ts";
import type { Weight } from "../../graph/graph.ts";
import type { WeightReader } from "../backend.ts";
import type { GpuDevice } from "./device.ts";
import { type ExactFormat, exactFormatOf, packSpans } from "./exact/weights.ts";
import type { Planes } from "./unpack/unpack.ts";
import { planesOf, storedShape, type WeightLayout, type WeightPart } from "./weight-layout.ts";

/** Bytes that are read at once: a multiple of 4. */
export const PIECE_BYTES: number = 4 * 2 ** 20;

/** Blocks of types with planes are read in multiples of this, so that both planes are whole words. */
const BLOCKS_AT_ONCE = 64;

export class Uploader {
  readonly #gpu: GpuDevice;
  readonly #layout: WeightLayout;
  readonly #buffers: readonly GPUBuffer[];
  /** Two alternating pieces: one is filled while the other is uploaded. */
  readonly #pieces = [new Uint8Array(PIECE_BYTES + 4), new Uint8Array(PIECE_BYTES + 4)];
  #next = 0;
  /** Blocks as in the file, before they are split into planes. */
  readonly #file = new Uint8Array(PIECE_BYTES);
  #sent: Promise<unknown> = Promise.resolve();
  /** Vectors are also kept on the host, as floats: the batch area needs rope factors. */
  readonly #vectors = new Map<string, Float32Array>();

  readonly #exact: boolean;

  /** `exact`: matrices as exact kernels read them. */
  constructor(
    gpu: GpuDevice,
    layout: WeightLayout,
    buffers: readonly GPUBuffer[],
    exact: boolean = false,
  ) {
    this.#gpu = gpu;
    this.#exact = exact;
    this.#layout = layout;
    this.#buffers = buffers;
  }

  get vectors(): ReadonlyMap<string, Float32Array> {
    return this.#vectors;
  }

  async upload(weight: Weight, read: WeightReader): Promise<void> {
    const parts = this.#layout.parts.get(weight.name)!;
    if (weight.shape.length === 1) {
      const values = await readVector(weight, read);
      this.#vectors.set(weight.name, values);
      const { buffer, wide } = parts[0]!;
      this.#gpu.device.queue.writeBuffer(this.#buffers[buffer]!, wide.offset, values);
      return;
    }
    const format = this.#exact ? exactFormatOf(weight.dtype) : undefined;
    const planes = planesOf(weight);
    for (const part of parts) {
      if (format) await this.#uploadSpans(weight, part, format, read);
      else if (planes) await this.#uploadPlanes(weight, part, planes, read);
      else await this.#uploadRows(storedShape(weight).wide, part, read);
    }
  }

  async #uploadRows(rowBytes: number, part: WeightPart, read: WeightReader): Promise<void> {
    const { buffer, wide, rowStart, rows } = part;
    const total = rows * rowBytes;
    for (let at = 0; at < total; at += PIECE_BYTES) {
      const piece = this.#nextPiece();
      const bytes = Math.min(PIECE_BYTES, total - at);
      await read(piece.subarray(0, bytes), rowStart * rowBytes + at);
      await this.#send(this.#buffers[buffer]!, [[wide.offset + at, piece, bytes]]);
    }
  }

  async #uploadPlanes(
    { dtype, shape }: Weight,
    { buffer, wide, narrow, rowStart, rows }: WeightPart,
    planes: Planes,
    read: WeightReader,
  ): Promise<void> {
    const { blockBytes, blockElems } = dtype;
    const rowBlocks = shape.at(-1)! / blockElems;
    const total = rows * rowBlocks;
    const most = Math.floor(PIECE_BYTES / blockBytes / BLOCKS_AT_ONCE) * BLOCKS_AT_ONCE;
    for (let at = 0; at < total; at += most) {
      const blocks = Math.min(most, total - at);
      const bytes = this.#file.subarray(0, blocks * blockBytes);
      await read(bytes, (rowStart * rowBlocks + at) * blockBytes);
      // Both planes, one after the other, in one piece.
      const piece = this.#nextPiece();
      const narrowPiece = piece.subarray(blocks * planes.wide);
      cut(bytes, blocks, blockBytes, planes, piece, narrowPiece);
      await this.#send(this.#buffers[buffer]!, [
        [wide.offset + at * planes.wide, piece, blocks * planes.wide],
        [narrow!.offset + at * planes.narrow, narrowPiece, blocks * planes.narrow],
      ]);
    }
  }

  /** Spans as exact kernels read them: both planes behind each other in one piece. */
  async #uploadSpans(
    { shape }: Weight,
    { buffer, wide, narrow, rowStart, rows }: WeightPart,
    format: ExactFormat,
    read: WeightReader,
  ): Promise<void> {
    const { packing, wideWords, narrowWords, spanCols } = format;
    const { spanBytes } = packing;
    const rowSpans = shape.at(-1)! / spanCols;
    const total = rows * rowSpans;
    const most = Math.floor(PIECE_BYTES / Math.max(spanBytes, 4 * (wideWords + narrowWords)));
    for (let at = 0; at < total; at += most) {
      const spans = Math.min(most, total - at);
      const bytes = this.#file.subarray(0, spans * spanBytes);
      await read(bytes, (rowStart * rowSpans + at) * spanBytes);
      const piece = this.#nextPiece();
      const words = new Uint32Array(piece.buffer, 0, spans * (wideWords + narrowWords));
      packSpans(
        format,
        bytes,
        spans,
        words.subarray(0, spans * wideWords),
        words.subarray(spans * wideWords),
      );
      const narrowPiece = piece.subarray(4 * spans * wideWords);
      await this.#send(this.#buffers[buffer]!, [
        [wide.offset + 4 * at * wideWords, piece, 4 * spans * wideWords],
        [narrow!.offset + 4 * at * narrowWords, narrowPiece, 4 * spans * narrowWords],
      ]);
    }
  }

  #nextPiece(): Uint8Array<ArrayBuffer> {
    const piece = this.#pieces[this.#next]!;
    this.#next = 1 - this.#next;
    return piece;
  }

  async #send(
    buffer: GPUBuffer,
    pieces: readonly (readonly [offset: number, from: Uint8Array<ArrayBuffer>, bytes: number])[],
  ): Promise<void> {
    const { queue } = this.#gpu.device;
    await this.#gpu.wait(this.#sent); // at most one piece waits in the queue
    for (const [offset, from, bytes] of pieces) {
      queue.writeBuffer(buffer, offset, from, 0, Math.ceil(bytes / 4) * 4);
    }
    queue.submit([]);
    this.#sent = this.#gpu.wait(queue.onSubmittedWorkDone());
    this.#sent.catch(() => {}); // handled where it is awaited
  }
}

async function readVector(
  { dtype, shape }: Weight,
  read: WeightReader,
): Promise<Float32Array<ArrayBuffer>> {
  const elements = shape[0]!;
  const bytes = new Uint8Array(bytesFor(dtype, elements));
  await read(bytes, 0);
  const values = new Float32Array(elements);
  dtype.dequantize(bytes, 0, values, 0, elements / dtype.blockElems);
  return values;
}

/** Splits blocks into planes: two bytes at a time where all sizes are even, one at a time otherwise. */
export function cut(
  from: Uint8Array<ArrayBuffer>,
  blocks: number,
  blockBytes: number,
  { wide, wideFrom, narrow, narrowFrom }: Planes,
  wideTo: Uint8Array<ArrayBuffer>,
  narrowTo: Uint8Array<ArrayBuffer>,
): void {
  const isEven = blockBytes % 2 === 0 && narrow % 2 === 0 && wideFrom % 2 === 0;
  const unit = isEven ? 2 : 1;
  const words = (bytes: Uint8Array<ArrayBuffer>): Uint16Array | Uint8Array =>
    isEven ? new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length >> 1) : bytes;
  const [source, wideWords, narrowWords] = [words(from), words(wideTo), words(narrowTo)];
  const [wideCount, narrowCount] = [wide / unit, narrow / unit];
  let [w, n] = [0, 0];
  for (let block = 0; block < blocks; block++) {
    const first = (block * blockBytes) / unit;
    for (let i = 0; i < wideCount; i++) wideWords[w++] = source[first + wideFrom / unit + i]!;
    for (let i = 0; i < narrowCount; i++) narrowWords[n++] = source[first + narrowFrom / unit + i]!;
  }
}
