// A model in another format as GGUF: plans every key and tensor first, then writes them one after the other.
//
// Planning reads headers, and for F16 also the weights: a tensor that leaves F16's range keeps F32, and its type stands
// in the header, before the data. Nothing is held in memory but a piece of one tensor.

import { ModelError } from "../../base/errors.ts";
import { bytesFor, type DType } from "../../dtypes/dtype.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import { type ByteSink, type GgufTensor, writeGguf } from "../../formats/gguf/writer.ts";
import type { ModelFile, TensorInfo } from "../../formats/model-file.ts";
import { buildModel } from "../../models/build.ts";
import type { Tokenizer } from "../../tokenizers/tokenizer.ts";
import { asMetadata, type Entries } from "./entries.ts";
import { HalfRange } from "./f16-range.ts";
import { type ModelEntries, modelEntries, parameters } from "./metadata.ts";
import { floatPieces, ggufTensor, type PlannedTensor } from "./tensors.ts";
import { tokenizerEntries } from "./tokenizer.ts";
import { type ConvertType, exactType, fileTypeOf, halfType } from "./types.ts";

export interface ConversionOptions {
  type: ConvertType;
  pre: string | undefined;
}

export interface ConversionWatch {
  progress(doneBytes: number, totalBytes: number): void;
  /** Throws when the work is to stop. */
  check(): void;
}

export interface Conversion {
  entries: Entries;
  tensors: readonly PlannedTensor[];
  ropeFactors: Float32Array | undefined;
  /** What a user should know: tensors that kept F32, a tokenizer that differs. */
  notes: readonly string[];
  parameters: number;
  /** What is written, by type: matrices and vectors of the model. */
  types: { dtype: string; tensors: number; bytes: number }[];
  /** Tensor data together; the header comes on top. */
  tensorBytes: number;
  /** Bytes that planning has read, for progress over both halves. */
  scannedBytes: number;
}

export async function planConversion(
  file: ModelFile,
  tokenizer: Tokenizer,
  options: ConversionOptions,
  watch: ConversionWatch,
): Promise<Conversion> {
  buildModel(file); // every weight is there and has its shape, or one error that lists what is wrong
  const sources = inOrder(file);
  const matrices = sources.filter(({ shape }) => shape.length > 1);
  const most = options.type === "auto" ? mostCommon(matrices) : dtypeByName(options.type)!;
  const model = modelEntries(file, fileTypeOf(most));
  const size = model.from.vocabSize;
  const vocabulary = tokenizerEntries(file, tokenizer, { size, pre: options.pre });
  const notes = [...vocabulary.notes];
  const types = new Map(
    sources.map((source) => [source, wantedType(source, options.type, notes)] as const),
  );
  const scannedBytes = await keepRange(file, types, notes, watch);
  const tensors = sources.map((source) => ({
    source,
    dtype: types.get(source)!,
    headRows: headRowsOf(source, model),
  }));
  return {
    entries: new Map([...model.entries, ...vocabulary.entries]),
    tensors,
    ropeFactors: model.ropeFactors,
    notes,
    parameters: parameters(file),
    types: countTypes(tensors),
    tensorBytes: tensors.reduce((sum, tensor) => sum + bytesOf(tensor), 0),
    scannedBytes,
  };
}

export async function writeConversion(
  file: ModelFile,
  conversion: Conversion,
  sink: ByteSink,
  watch: ConversionWatch,
): Promise<void> {
  const { tensors, ropeFactors, scannedBytes } = conversion;
  const total = scannedBytes + tensors.reduce((sum, { source }) => sum + source.byteLength, 0);
  let done = scannedBytes;
  const step = (bytes: number): void => {
    watch.check();
    done += bytes;
    watch.progress(done, total);
  };
  const written = tensors.map((tensor) => ggufTensor(file, tensor, step));
  if (ropeFactors) written.unshift(factorsTensor(ropeFactors));
  await writeGguf(sink, asMetadata(conversion.entries), written);
}

function factorsTensor(factors: Float32Array): GgufTensor {
  const bytes = new Uint8Array(bytesFor(exactType, factors.length));
  exactType.quantize!(factors, 0, bytes, 0, factors.length);
  return {
    name: "rope_freqs.weight",
    dtype: exactType,
    shape: [factors.length],
    data: () => [bytes],
  };
}

/** Tensors outside of layers first, then layer by layer: the order in which they are needed. */
function inOrder(file: ModelFile): TensorInfo[] {
  const layerOf = (name: string): number => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1);
  return [...file.tensors.values()].sort((a, b) => layerOf(a.name) - layerOf(b.name));
}

function mostCommon(tensors: readonly TensorInfo[]): DType {
  const bytes = new Map<DType, number>();
  for (const { dtype, byteLength } of tensors) {
    bytes.set(dtype, (bytes.get(dtype) ?? 0) + byteLength);
  }
  return [...bytes].sort((a, b) => b[1] - a[1])[0]?.[0] ?? exactType;
}

/** Vectors are F32, as every reader expects; rows that are no whole blocks fall back to F16, as in llama.cpp. */
function wantedType(source: TensorInfo, type: ConvertType, notes: string[]): DType {
  if (source.shape.length === 1) return exactType;
  if (type === "auto") return source.dtype;
  const dtype = dtypeByName(type)!;
  const row = source.shape.at(-1)!;
  if (row % dtype.blockElems === 0) return dtype;
  notes.push(
    `${source.name} is written as ${halfType.name}: its rows have ${row} values, and ${dtype.name} has blocks of ${dtype.blockElems}`,
  );
  return halfType;
}

/** Looks at every tensor that is to become F16, and keeps F32 where it would lose. Returns the bytes read for that. */
async function keepRange(
  file: ModelFile,
  types: Map<TensorInfo, DType>,
  notes: string[],
  watch: ConversionWatch,
): Promise<number> {
  const narrowed = [...types].filter(([source, to]) => to === halfType && source.dtype !== to);
  const sum = (list: Iterable<TensorInfo>): number =>
    Array.from(list).reduce((bytes, { byteLength }) => bytes + byteLength, 0);
  const scanned = sum(narrowed.map(([source]) => source));
  const total = scanned + sum(types.keys());
  let done = 0;
  for (const [source] of narrowed) {
    const range = new HalfRange();
    for await (const values of floatPieces(file, source, (bytes) => {
      watch.check();
      done += bytes;
      watch.progress(done, total);
    })) {
      range.add(values);
    }
    const problem = range.problem();
    if (problem === undefined) continue;
    types.set(source, exactType);
    notes.push(`${source.name} keeps ${exactType.name}: ${problem}`);
  }
  return scanned;
}

/** q and k of a model whose rotary pairs GGUF stores in another order than the file does. */
function headRowsOf(source: TensorInfo, { from, to }: ModelEntries): number | undefined {
  const turned = /^blk\.\d+\.attn_[qk]\.(?:weight|bias)$/.test(source.name);
  if (!turned || from.rope.layout === to.rope.layout) return undefined;
  if (from.rope.layout === "half" && from.rope.dims === from.headDim) return from.headDim;
  throw new ModelError(
    `convert: ${source.name} turns ${from.rope.dims} of ${from.headDim} values of a head in the order "${from.rope.layout}", which cannot be written in the order "${to.rope.layout}"`,
  );
}

function countTypes(tensors: readonly PlannedTensor[]): Conversion["types"] {
  const groups = Map.groupBy(tensors, ({ dtype }) => dtype.name);
  return Array.from(groups, ([dtype, group]) => ({
    dtype,
    tensors: group.length,
    bytes: group.reduce((sum, tensor) => sum + bytesOf(tensor), 0),
  }));
}

function bytesOf({ source, dtype }: PlannedTensor): number {
  return bytesFor(
    dtype,
    source.shape.reduce((a, b) => a * b, 1),
  );
}
