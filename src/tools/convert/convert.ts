// Converts a model of another format to GGUF: every key and tensor is planned from the headers, then written one after
// the other.
//
// A tensor's type is in the header, before the data. A tensor that the requested type cannot hold stays F32, so all
// weights are scanned before anything is written (src/dtypes/half-range.ts, range.ts). Only a piece of one tensor is in memory at a time.

import { ModelError } from "../../base/errors.ts";
import { bytesFor, type DType } from "../../dtypes/dtype.ts";
import { HalfRange, type RangeCheck } from "../../dtypes/half-range.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import { type ByteSink, type GgufTensor, writeGguf } from "../../formats/gguf/writer.ts";
import type { ModelFile, TensorInfo } from "../../formats/model-file.ts";
import { buildModel } from "../../models/build.ts";
import type { Tokenizer } from "../../tokenizers/tokenizer.ts";
import { asMetadata, type Entries } from "./entries.ts";
import { type ModelEntries, modelEntries, parameters } from "./metadata.ts";
import { BlockRange } from "./range.ts";
import { floatPieces, ggufTensor, type OnPiece, type PlannedTensor } from "./tensors.ts";
import { tokenizerEntries } from "./tokenizer.ts";
import { type ConvertType, exactType, fileTypeOf, halfType } from "./types.ts";

export interface ConversionOptions {
  type: ConvertType;
  pre: string | undefined;
}

export interface ConversionWatch {
  progress(doneBytes: number, totalBytes: number): void;
  /** Throws when the work should stop. */
  check(): void;
}

/** The contents of the file that will be written, as far as headers tell. */
export interface Conversion {
  entries: Entries;
  tensors: readonly PlannedTensor[];
  /** rope_freqs.weight, if the model needs one. */
  ropeFactors: Float32Array | undefined;
  parameters: number;
  /** Total size of the tensor data, without the header. */
  tensorBytes: number;
  notes: readonly string[];
}

export interface Converted {
  /** The model's tensors, by type. */
  types: { dtype: string; tensors: number; bytes: number }[];
  /** Notes for the user: tensors that stay F32, a tokenizer that differs. */
  notes: readonly string[];
}

/** Reads no weights. */
export function planConversion(
  file: ModelFile,
  tokenizer: Tokenizer,
  { type, pre }: ConversionOptions,
): Conversion {
  buildModel(file); // throws one error that lists every missing or misshaped weight
  const sources = inOrder(file);
  const model = modelEntries(file, fileTypeOf(mostOf(sources, type)));
  const { entries, notes } = tokenizerEntries(file, tokenizer, { size: model.from.vocabSize, pre });
  const tensors = sources.map((source) => ({
    source,
    dtype: wantedType(source, type, notes),
    headRows: headRowsOf(source, model),
  }));
  return {
    entries: new Map([...model.entries, ...entries]),
    tensors,
    ropeFactors: model.ropeFactors,
    parameters: parameters(file),
    tensorBytes: tensors.reduce((sum, tensor) => sum + bytesOf(tensor), 0),
    notes,
  };
}

export async function writeConversion(
  file: ModelFile,
  conversion: Conversion,
  sink: ByteSink,
  watch: ConversionWatch,
): Promise<Converted> {
  const { entries, ropeFactors } = conversion;
  const notes = [...conversion.notes];
  const readBytes = (list: readonly PlannedTensor[]): number =>
    list.reduce((sum, { source }) => sum + source.byteLength, 0);
  const checked = conversion.tensors.filter((tensor) => rangeCheckFor(tensor) !== undefined);
  const total = readBytes(checked) + readBytes(conversion.tensors);
  let done = 0;
  const onPiece: OnPiece = (bytes) => {
    watch.check();
    done += bytes;
    watch.progress(done, total);
  };
  const tensors: PlannedTensor[] = [];
  for (const tensor of conversion.tensors)
    tensors.push(await fitting(file, tensor, notes, onPiece));
  const written = tensors.map((tensor) => ggufTensor(file, tensor, onPiece));
  if (ropeFactors) written.unshift(factorsTensor(ropeFactors));
  await writeGguf(sink, asMetadata(entries), written);
  return { types: countTypes(tensors), notes };
}

/** The tensor as planned, or as F32 if its type cannot hold it. */
async function fitting(
  file: ModelFile,
  tensor: PlannedTensor,
  notes: string[],
  onPiece: OnPiece,
): Promise<PlannedTensor> {
  const range = rangeCheckFor(tensor);
  if (range === undefined) return tensor;
  for await (const values of floatPieces(file, tensor.source, onPiece)) range.add(values);
  const problem = range.problem();
  if (problem === undefined) return tensor;
  notes.push(`${tensor.source.name} keeps ${exactType.name}: ${problem}`);
  return { ...tensor, dtype: exactType };
}

/** undefined if the range cannot be exceeded: the type stays the same, or has F32's exponent. */
function rangeCheckFor({ source, dtype }: PlannedTensor): RangeCheck | undefined {
  if (dtype === source.dtype) return undefined;
  if (dtype === halfType) return new HalfRange();
  return dtype.blockElems > 1 ? new BlockRange(dtype) : undefined;
}

export interface MadeTensor extends GgufTensor {
  readonly bytes: Uint8Array;
}

export function factorsTensor(factors: Float32Array): MadeTensor {
  const bytes = new Uint8Array(bytesFor(exactType, factors.length));
  exactType.quantize!(factors, 0, bytes, 0, factors.length);
  const shape = [factors.length];
  return { name: "rope_freqs.weight", dtype: exactType, shape, bytes, data: () => [bytes] };
}

/** Tensors outside the layers first, then layer by layer: the order in which they are needed. */
function inOrder(file: ModelFile): TensorInfo[] {
  const layerOf = (name: string): number => Number(/^blk\.(\d+)\./.exec(name)?.[1] ?? -1);
  return [...file.tensors.values()].sort((a, b) => layerOf(a.name) - layerOf(b.name));
}

/** The type that most of the file will have. */
function mostOf(tensors: readonly TensorInfo[], type: ConvertType): DType {
  if (type !== "auto") return dtypeByName(type)!;
  const bytes = new Map<DType, number>();
  for (const { dtype, byteLength, shape } of tensors) {
    if (shape.length > 1) bytes.set(dtype, (bytes.get(dtype) ?? 0) + byteLength);
  }
  return [...bytes].sort((a, b) => b[1] - a[1])[0]?.[0] ?? exactType;
}

/** Small tensors with a large effect: routers, and biases of all experts. */
const keptExactly = /\.(?:ffn_gate_inp|ffn_gate_inp_shexp)\.weight$|\.bias$/;

/**
 * Vectors are F32, as every reader expects, and so are routers, as in llama.cpp; rows that are not whole blocks fall
 * back to F16, also as in llama.cpp.
 */
function wantedType(source: TensorInfo, type: ConvertType, notes: string[]): DType {
  if (source.shape.length === 1 || keptExactly.test(source.name)) return exactType;
  if (type === "auto") return source.dtype;
  const dtype = dtypeByName(type)!;
  const row = source.shape.at(-1)!;
  if (row % dtype.blockElems === 0) return dtype;
  notes.push(
    `${source.name} is written as ${halfType.name}: its rows have ${row} values, and ${dtype.name} has blocks of ${dtype.blockElems}`,
  );
  return halfType;
}

/** The row order of q and k in a model with another order of rotary pairs in GGUF than in the file. */
function headRowsOf(source: TensorInfo, { from, to }: ModelEntries): number | undefined {
  const turned = /^blk\.\d+\.attn_[qk]\.(?:weight|bias)$/.test(source.name);
  if (!turned || from.rope.layout === to.rope.layout) return undefined;
  if (from.rope.layout === "half" && from.rope.dims === from.headDim) return from.headDim;
  throw new ModelError(
    `convert: ${source.name} applies rope to ${from.rope.dims} of ${from.headDim} values of a head in the layout "${from.rope.layout}", which cannot be converted to the layout "${to.rope.layout}"`,
  );
}

function countTypes(tensors: readonly PlannedTensor[]): Converted["types"] {
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
