// A model file with its float matrices as F16, from any type in the file: for `open()` with weights "f16", in half the memory of
// F32. It is the same model as the file that "lantern quantize" writes as F16, bit for bit.
//
// A tensor's type is needed before memory is laid out, so all these matrices are read twice: once to see whether F16 can hold them
// (src/dtypes/half-range.ts), once into the backend's memory. Matrices that F16 cannot hold stay as they are. The extra memory is a
// piece of one tensor.

import { UsageError } from "../base/errors.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { HalfRange } from "../dtypes/half-range.ts";
import { heldTypes } from "../dtypes/held-types.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { ModelFile, TensorInfo } from "./model-file.ts";
import { isQuantizable } from "./quantizable.ts";

/** Values of a piece: a few MiB. */
const pieceElems = 1 << 19;

const halfType: DType = dtypeByName(heldTypes[0])!;

export interface ScanWatch {
  progress(doneBytes: number, totalBytes: number): void;
  /** Throws if the work should stop. */
  check(): void | Promise<void>;
}

export interface HalfWeights {
  readonly file: ModelFile;
  /** The number of matrices that are F16 now. */
  readonly changed: number;
  /** The matrices that stay as they are, each with the reason. */
  readonly kept: readonly KeptTensor[];
}

export interface KeptTensor {
  readonly name: string;
  readonly dtype: string;
  readonly problem: string;
}

/** The matrices that can become F16: the ones of wider float types. */
export function halfCandidates({ tensors }: Pick<ModelFile, "tensors">): TensorInfo[] {
  return [...tensors.values()].filter(
    (tensor) => isHeldAsHalf(tensor, halfType) && isQuantizable(tensor),
  );
}

/** Whether a tensor of a wider float type becomes F16, which may not hold its values. */
export function isHeldAsHalf({ dtype }: TensorInfo, target: DType): boolean {
  return target === halfType && dtype !== halfType && dtype.block.kind === "floats";
}

/** The table of tensors with these as F16. */
export function tensorsAsHalves(
  { tensors }: Pick<ModelFile, "tensors">,
  wanted: readonly TensorInfo[],
): Map<string, TensorInfo> {
  const changed = wanted.map((tensor): [string, TensorInfo] => {
    const byteLength = bytesFor(
      halfType,
      tensor.shape.reduce((a, b) => a * b, 1),
    );
    return [tensor.name, { ...tensor, dtype: halfType, byteLength }];
  });
  return new Map([...tensors, ...changed]);
}

/** Reads all candidates, and returns the file with the fitting ones as F16. It closes with the original. */
export async function asHalves(file: ModelFile, watch: ScanWatch): Promise<HalfWeights> {
  const candidates = halfCandidates(file);
  const total = candidates.reduce((sum, { byteLength }) => sum + byteLength, 0);
  const fitting: TensorInfo[] = [];
  const kept: KeptTensor[] = [];
  let done = 0;
  for (const tensor of candidates) {
    const range = await halfRangeOf(file, tensor, async (bytes) => {
      done += bytes;
      watch.progress(done, total);
      await watch.check();
    });
    const problem = range.problem();
    if (problem === undefined) fitting.push(tensor);
    else kept.push({ name: tensor.name, dtype: tensor.dtype.name, problem });
  }
  return { file: withHalves(file, fitting), changed: fitting.length, kept };
}

/** Reads a tensor, a piece at a time; `onPiece` gets the bytes of each. */
export async function halfRangeOf(
  file: ModelFile,
  tensor: TensorInfo,
  onPiece: (bytes: number) => void | Promise<void>,
): Promise<HalfRange> {
  const range = new HalfRange();
  const { dtype } = tensor;
  const pieces = new FloatPieces();
  const elems = (tensor.byteLength / dtype.blockBytes) * dtype.blockElems;
  for (let at = 0; at < elems; at += pieceElems) {
    const count = Math.min(pieceElems, elems - at);
    range.add(await pieces.read(file, tensor, at, count));
    await onPiece(bytesFor(dtype, count));
  }
  return range;
}

function withHalves(file: ModelFile, wanted: readonly TensorInfo[]): ModelFile {
  const stored = new Map(wanted.map((tensor) => [tensor.name, tensor]));
  const free: FloatPieces[] = []; // two reads at once need two
  return {
    ...file,
    tensors: tensorsAsHalves(file, wanted),
    filePartsOf: (tensor) => (stored.has(tensor.name) ? undefined : file.filePartsOf(tensor)),
    async readTensor(tensor: TensorInfo, target: Uint8Array, byteOffset = 0): Promise<void> {
      const source = stored.get(tensor.name);
      if (!source) return await file.readTensor(tensor, target, byteOffset);
      checkRange(tensor, target, byteOffset);
      const pieces = free.pop() ?? new FloatPieces();
      try {
        const elems = target.byteLength / 2;
        for (let at = 0; at < elems; at += pieceElems) {
          const count = Math.min(pieceElems, elems - at);
          const values = await pieces.read(file, source, byteOffset / 2 + at, count);
          writeHalves(values, target.subarray(2 * at, 2 * (at + count)));
        }
      } finally {
        free.push(pieces);
      }
    },
  };
}

function checkRange({ name, byteLength }: TensorInfo, target: Uint8Array, from: number): void {
  const isWhole = from % 2 === 0 && target.byteLength % 2 === 0;
  if (isWhole && from >= 0 && from <= byteLength - target.byteLength) return;
  throw new UsageError(
    `readTensor: bytes ${from} to ${from + target.byteLength} of "${name}", expected whole half floats of its ${byteLength} bytes`,
  );
}

/** Float16Array, which engines since 2025 have: twice as fast, with the same bits for all that F16 can hold. */
const { Float16Array: FastHalves } = globalThis as {
  Float16Array?: new (
    buffer: ArrayBufferLike,
    at: number,
    length: number,
  ) => {
    set(values: Float32Array): void;
  };
};

function writeHalves(values: Float32Array, target: Uint8Array): void {
  if (FastHalves && target.byteOffset % 2 === 0) {
    new FastHalves(target.buffer, target.byteOffset, values.length).set(values);
  } else halfType.quantize!(values, 0, target, 0, values.length);
}

/** Reads pieces of float tensors as float32, into buffers that are used again. */
class FloatPieces {
  #bytes = new Uint8Array(0);
  #values = new Float32Array(0);

  async read(
    file: ModelFile,
    tensor: TensorInfo,
    first: number,
    count: number,
  ): Promise<Float32Array> {
    const { dtype } = tensor;
    const size = bytesFor(dtype, count);
    if (this.#bytes.length < size) this.#bytes = new Uint8Array(bytesFor(dtype, pieceElems));
    const bytes = this.#bytes.subarray(0, size);
    await file.readTensor(tensor, bytes, bytesFor(dtype, first));
    const view = dtype.asFloat32?.(bytes);
    if (view) return view;
    if (this.#values.length < count) this.#values = new Float32Array(pieceElems);
    const values = this.#values.subarray(0, count);
    dtype.dequantize(bytes, 0, values, 0, count / dtype.blockElems);
    return values;
  }
}

/** Kept tensors that a warning names; ModelInfo.heldAs has all of them. */
const mostNamed = 3;

/** The warnings about it for users: one sentence, or none. */
export function halfWarnings({ changed, kept }: HalfWeights): string[] {
  if (changed + kept.length === 0) {
    return ["weights f16: no matrix of this model is F32 or BF16, so nothing changes"];
  }
  if (kept.length === 0) return [];
  const named = kept.slice(0, mostNamed).map(keptText).join(", ");
  const more = kept.length > mostNamed ? `, and ${kept.length - mostNamed} more` : "";
  return [
    `weights f16: ${kept.length} of ${changed + kept.length} matrices keep their type, because F16 cannot hold their values: ${named}${more}`,
  ];
}

function keptText({ name, dtype, problem }: KeptTensor): string {
  return `${name} (${dtype}: ${problem})`;
}
