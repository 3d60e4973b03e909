// Quantizes an open model file into a sink: tensor by tensor, chunk by chunk, on all threads, in the order of the new
// file. Only a few chunks are in memory at a time. The composition root (src/tools/quantize/api.ts) opens the files.

import { AbortedError } from "../../base/errors.ts";
import { fileTypeIds } from "../../base/file-type-names.ts";
import type { DType } from "../../dtypes/dtype.ts";
import { type ByteSink, type GgufValue, writeGguf } from "../../formats/gguf/writer.ts";
import type { ModelFile } from "../../formats/model-file.ts";
import type { ChunkError, ChunkResult } from "./chunk.ts";
import type { FileType } from "./file-types.ts";
import type { Importance } from "./importance.ts";
import type { PlannedTensor } from "./plan.ts";
import type { QuantizePool } from "./thread.ts";

export interface QuantizeTask {
  readonly file: ModelFile;
  readonly plan: readonly PlannedTensor[];
  readonly type: FileType;
  readonly importance: Importance | undefined;
  readonly pool: QuantizePool;
  readonly threads: number;
  /** Whether to measure the error. */
  readonly measure: boolean;
  readonly signal: AbortSignal | undefined;
  readonly onProgress:
    | ((doneBytes: number, totalBytes: number, tensor: string) => void)
    | undefined;
}

/** The result for one tensor. */
export interface QuantizedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly from: string;
  readonly to: string;
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  /** Why its type differs from the file's type. */
  readonly note?: string;
  /** Root mean squared error relative to the root mean square, if it was measured. */
  readonly relativeError?: number;
  /** The largest error of a value, relative to the largest value. */
  readonly maxError?: number;
}

/** Elements of a chunk: large enough that messages cost next to nothing, small enough that threads end together. */
const chunkElems = 1 << 20;
/** Chunks that are read or computed ahead, per thread. */
const ahead = 2;

/** general.quantization_version: ggml's. */
const quantizationVersion = 2;

export async function quantizeInto(sink: ByteSink, task: QuantizeTask): Promise<QuantizedTensor[]> {
  const stream = chunkResults(task);
  const errors = task.plan.map(() => newError());
  const totalBytes = task.plan.reduce((sum, { tensor }) => sum + tensor.byteLength, 0);
  let doneBytes = 0;
  const tensors = task.plan.map((planned, index) => ({
    name: planned.tensor.name,
    dtype: planned.target,
    shape: planned.tensor.shape,
    data: async function* (): AsyncGenerator<Uint8Array> {
      for (let left = planned.tensor.byteLength; left > 0; ) {
        const { value } = await stream.next();
        const { sourceBytes, result } = value as DoneChunk;
        if (result.error) addError(errors[index]!, result.error);
        left -= sourceBytes;
        doneBytes += sourceBytes;
        yield result.bytes;
        task.onProgress?.(doneBytes, totalBytes, planned.tensor.name);
      }
    },
  }));
  try {
    await writeGguf(sink, entries(task), tensors);
  } finally {
    await stream.return(undefined);
  }
  return task.plan.map((planned, index) => described(planned, errors[index]!));
}

interface DoneChunk {
  readonly sourceBytes: number;
  readonly result: ChunkResult;
}

/** All chunks of all tensors, in order; some are in progress while the first is awaited. */
async function* chunkResults(task: QuantizeTask): AsyncGenerator<DoneChunk, void, undefined> {
  const pending: Promise<DoneChunk>[] = [];
  const depth = task.threads * ahead;
  for (const job of chunksOf(task)) {
    if (task.signal?.aborted) throw new AbortedError("quantize", { cause: task.signal.reason });
    const started = runChunk(task, job);
    started.catch(() => {}); // the error is thrown in its turn
    pending.push(started);
    if (pending.length >= depth) yield await pending.shift()!;
  }
  for (const last of pending) yield await last;
}

interface ChunkJob {
  readonly planned: PlannedTensor;
  readonly rows: number;
  readonly cols: number;
  readonly byteOffset: number;
  readonly bytes: number;
  /** The matrix of the tensor (an expert's) that the rows belong to. */
  readonly matrix: number;
}

/** Whole rows of one matrix at a time, for every tensor. */
function* chunksOf({ plan }: QuantizeTask): Generator<ChunkJob> {
  for (const planned of plan) {
    const { shape, dtype } = planned.tensor;
    const cols = shape.at(-1)!;
    const matrixRows = shape.at(-2) ?? 1;
    const matrices = shape.slice(0, -2).reduce((a, b) => a * b, 1);
    const rowBytes = (cols / dtype.blockElems) * dtype.blockBytes;
    const rowsAtOnce = Math.max(1, Math.floor(chunkElems / cols));
    for (let matrix = 0; matrix < matrices; matrix++) {
      for (let row = 0; row < matrixRows; row += rowsAtOnce) {
        const rows = Math.min(rowsAtOnce, matrixRows - row);
        const byteOffset = (matrix * matrixRows + row) * rowBytes;
        yield { planned, rows, cols, byteOffset, bytes: rows * rowBytes, matrix };
      }
    }
  }
}

async function runChunk(task: QuantizeTask, job: ChunkJob): Promise<DoneChunk> {
  const { tensor, target } = job.planned;
  const bytes = new Uint8Array(job.bytes);
  await task.file.readTensor(tensor, bytes, job.byteOffset);
  if (tensor.dtype === target) {
    return { sourceBytes: job.bytes, result: { bytes, error: undefined } };
  }
  const { rows, cols, matrix } = job;
  const result = await task.pool.run({
    tensor: tensor.name,
    source: tensor.dtype.name,
    target: target.name,
    rows,
    cols,
    bytes,
    importance: task.importance?.of(tensor, matrix),
    measure: task.measure,
  });
  return { sourceBytes: job.bytes, result };
}

/** The model's metadata without facts that were true only of the old file, plus the facts of the new one. */
function entries({ file, type, importance }: QuantizeTask): [string, GgufValue][] {
  const { metadata } = file;
  const kept = [...metadata.keys()].filter((key) => !replacedKeys.includes(key));
  return [
    ...kept.map((key): [string, GgufValue] => [
      key,
      metadata.preview(key, Number.POSITIVE_INFINITY)!,
    ]),
    ["general.quantization_version", { type: "u32", value: quantizationVersion }],
    ["general.file_type", { type: "u32", value: fileTypeIds[type.name]! }],
    ...(importance?.entries ?? []),
  ];
}

const replacedKeys: readonly string[] = [
  "general.quantization_version",
  "general.file_type",
  "split.no",
  "split.count",
  "split.tensors.count",
  "quantize.imatrix.file",
  "quantize.imatrix.dataset",
  "quantize.imatrix.entries_count",
  "quantize.imatrix.chunks_count",
];

function newError(): ChunkError {
  return { squaredError: 0, squares: 0, maxError: 0, maxValue: 0 };
}

function addError(sum: ChunkError, part: ChunkError): void {
  sum.squaredError += part.squaredError;
  sum.squares += part.squares;
  sum.maxError = Math.max(sum.maxError, part.maxError);
  sum.maxValue = Math.max(sum.maxValue, part.maxValue);
}

function described(
  { tensor, target, targetBytes, note }: PlannedTensor,
  error: ChunkError,
): QuantizedTensor {
  const name = ({ name: text }: DType) => text;
  return {
    name: tensor.name,
    shape: tensor.shape,
    from: name(tensor.dtype),
    to: name(target),
    bytesBefore: tensor.byteLength,
    bytesAfter: targetBytes,
    ...(note !== undefined && { note }),
    ...(error.squares > 0 && {
      relativeError: Math.sqrt(error.squaredError / error.squares),
      maxError: error.maxError / error.maxValue,
    }),
  };
}
