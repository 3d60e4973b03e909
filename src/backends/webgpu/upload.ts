// Brings weights to the GPU, in pieces and straight from the file: matrices byte for byte, vectors (norms, biases, rope
// factors) as floats. While the GPU takes one piece in, the next one is read.

import { bytesFor } from "../../dtypes/dtype.ts";
import type { Weight } from "../../graph/graph.ts";
import type { WeightReader } from "../backend.ts";
import type { GpuDevice } from "./device.ts";
import { storedShape, type WeightLayout } from "./weight-layout.ts";

/** Bytes that are read at once: a multiple of 4. */
const PIECE_BYTES = 4 * 2 ** 20;

export class Uploader {
  readonly #gpu: GpuDevice;
  readonly #layout: WeightLayout;
  readonly #buffers: readonly GPUBuffer[];
  /** Two pieces in turn: one is filled while the other may still be on its way. */
  readonly #pieces = [new Uint8Array(PIECE_BYTES), new Uint8Array(PIECE_BYTES)];
  #next = 0;
  #sent: Promise<unknown> = Promise.resolve();
  /** Vectors stay on the host too, as floats: step data is computed with rope factors. */
  readonly #vectors = new Map<string, Float32Array>();

  constructor(gpu: GpuDevice, layout: WeightLayout, buffers: readonly GPUBuffer[]) {
    this.#gpu = gpu;
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
      const { buffer, offset } = parts[0]!;
      this.#gpu.device.queue.writeBuffer(this.#buffers[buffer]!, offset, values);
      return;
    }
    const { rowBytes } = storedShape(weight);
    for (const { buffer, offset, rowStart, rows } of parts) {
      const total = rows * rowBytes;
      for (let at = 0; at < total; at += PIECE_BYTES) {
        const piece = this.#pieces[this.#next]!;
        this.#next = 1 - this.#next;
        const bytes = Math.min(PIECE_BYTES, total - at);
        await read(piece.subarray(0, bytes), rowStart * rowBytes + at);
        await this.#send(this.#buffers[buffer]!, offset + at, piece, Math.ceil(bytes / 4) * 4);
      }
    }
  }

  async #send(
    buffer: GPUBuffer,
    offset: number,
    piece: Uint8Array<ArrayBuffer>,
    bytes: number,
  ): Promise<void> {
    const { queue } = this.#gpu.device;
    await this.#sent; // no more than one piece waits in the queue
    queue.writeBuffer(buffer, offset, piece, 0, bytes);
    queue.submit([]);
    this.#sent = queue.onSubmittedWorkDone();
    this.#sent.catch(() => {}); // seen where it is awaited
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
