// Writes a GGUF file as a stream: the header in one piece, then every tensor's bytes as they come.
//
// Metadata is given in the form of Metadata.preview() ({ type: "u32", value: 8 }), or as a Metadata. The writer reproduces a file
// that the reader has read byte for byte. A value that cannot be written exactly is a UsageError.

import { UsageError } from "../../base/errors.ts";
import type { Metadata } from "../../base/metadata.ts";
import type { DType } from "../../dtypes/dtype.ts";
import type { ModelFile, TensorInfo } from "../model-file.ts";
import { tensorBytes } from "../tensor-table.ts";
import type { Scalar } from "../typed-metadata.ts";
import { alignmentKey, alignUp, defaultAlignment, ggufMagic } from "./header.ts";
import { arrayTypeId, type ValueType, valueTypeByName } from "./value-types.ts";

export interface ByteSink {
  write(bytes: Uint8Array): Promise<void>;
}

/** `type` is "u32", "string", ... or "array<u32>", "array<string>", ... */
export interface GgufValue {
  readonly type: string;
  readonly value: Scalar | readonly Scalar[];
}

export type GgufEntries = Iterable<readonly [key: string, value: GgufValue]>;

export interface GgufTensor {
  readonly name: string;
  readonly dtype: DType;
  /** Outermost first, as everywhere in Lantern. */
  readonly shape: readonly number[];
  /** The tensor's bytes, in pieces of any size; requested when it is this tensor's turn. */
  data(): AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

export interface GgufWriteOptions {
  /** Default 3; for little-endian files, versions 2 and 3 differ only in this number. */
  version?: 2 | 3;
}

/** Size of the pieces in which modelTensors() reads. */
const pieceBytes = 4 << 20;

export async function writeGguf(
  sink: ByteSink,
  metadata: Metadata | GgufEntries,
  tensors: readonly GgufTensor[],
  options: GgufWriteOptions = {},
): Promise<void> {
  const entries = [...("preview" in metadata ? entriesOf(metadata) : metadata)];
  const alignment = alignmentOf(entries);
  const header = new HeaderBuilder();
  header.u32(ggufMagic);
  header.u32(options.version ?? 3);
  header.u64(tensors.length);
  header.u64(entries.length);
  writeEntries(header, entries);
  const sizes = writeTensorTable(header, tensors, alignment);
  if (tensors.length > 0) header.padTo(alignment); // a vocabulary-only file ends with its header
  await sink.write(header.finish());
  for (const [i, tensor] of tensors.entries()) {
    await writeTensor(sink, tensor, sizes[i]!, alignment);
  }
}

/** Every entry of a Metadata, arrays in full. */
function* entriesOf(metadata: Metadata): Generator<[key: string, value: GgufValue]> {
  for (const key of metadata.keys()) {
    yield [key, metadata.preview(key, Number.POSITIVE_INFINITY)!];
  }
}

/** The tensors of an open model file, to be copied unchanged. */
export function modelTensors(file: ModelFile): GgufTensor[] {
  return Array.from(file.tensors.values(), (tensor) => ({
    name: tensor.name,
    dtype: tensor.dtype,
    shape: tensor.shape,
    data: () => tensorPieces(file, tensor),
  }));
}

async function* tensorPieces(file: ModelFile, tensor: TensorInfo): AsyncGenerator<Uint8Array> {
  for (let offset = 0; offset < tensor.byteLength; offset += pieceBytes) {
    const piece = new Uint8Array(Math.min(pieceBytes, tensor.byteLength - offset));
    await file.readTensor(tensor, piece, offset);
    yield piece;
  }
}

function alignmentOf(entries: readonly (readonly [string, GgufValue])[]): number {
  const alignment = entries.find(([key]) => key === alignmentKey)?.[1].value ?? defaultAlignment;
  if (typeof alignment === "number" && alignment >= 1 && Number.isInteger(Math.log2(alignment))) {
    return alignment;
  }
  throw new UsageError(`${alignmentKey}: got ${String(alignment)}, expected a power of two`);
}

function writeEntries(
  header: HeaderBuilder,
  entries: readonly (readonly [string, GgufValue])[],
): void {
  const seen = new Set<string>();
  for (const [key, { type, value }] of entries) {
    if (key === "" || seen.has(key))
      throw new UsageError(`metadata key "${key}" is empty or occurs twice`);
    seen.add(key);
    header.string(key, "metadata key");
    const elementName = /^array<(\w+)>$/.exec(type)?.[1];
    const valueType = valueTypeByName(elementName ?? type);
    if (!valueType || Array.isArray(value) !== (elementName !== undefined)) {
      throw new UsageError(`metadata "${key}": type "${type}" does not name what the value is`);
    }
    if (elementName !== undefined) {
      const values = value as readonly Scalar[];
      header.u32(arrayTypeId);
      header.u32(valueType.id);
      header.u64(values.length);
      for (const element of values) header.value(valueType, element, key);
    } else {
      header.u32(valueType.id);
      header.value(valueType, value as Scalar, key);
    }
  }
}

/** Writes the table with consecutive offsets; returns the tensors' sizes. */
function writeTensorTable(
  header: HeaderBuilder,
  tensors: readonly GgufTensor[],
  alignment: number,
): number[] {
  const seen = new Set<string>();
  const sizes: number[] = [];
  let offset = 0;
  for (const { name, dtype, shape } of tensors) {
    if (name === "" || seen.has(name))
      throw new UsageError(`tensor "${name}" is unnamed or occurs twice`);
    seen.add(name);
    const bytes = tensorBytes({ format: "gguf", file: "(being written)", name, dtype, shape });
    header.string(name, "tensor name");
    header.u32(shape.length);
    for (const dim of shape.toReversed()) header.u64(dim);
    header.u32(dtype.ggufId);
    header.u64(offset);
    sizes.push(bytes);
    offset = alignUp(offset + bytes, alignment);
  }
  return sizes;
}

/** Writes one tensor's bytes, checks their number, then pads: also after the last one, as ggml does. */
async function writeTensor(
  sink: ByteSink,
  tensor: GgufTensor,
  size: number,
  alignment: number,
): Promise<void> {
  let written = 0;
  for await (const piece of tensor.data()) {
    written += piece.byteLength;
    if (written > size) break;
    await sink.write(piece);
  }
  if (written !== size) {
    throw new UsageError(`tensor "${tensor.name}": got ${written} bytes or more, expected ${size}`);
  }
  const padding = alignUp(size, alignment) - size;
  if (padding > 0) await sink.write(new Uint8Array(padding));
}

/** Header bytes in a buffer that grows by doubling. */
class HeaderBuilder {
  #bytes: Uint8Array<ArrayBuffer> = new Uint8Array(1 << 16);
  #view: DataView = new DataView(this.#bytes.buffer);
  #length = 0;
  readonly #encoder: TextEncoder = new TextEncoder();

  u32(value: number): void {
    this.#reserve(4);
    this.#view.setUint32(this.#length, value, true);
    this.#length += 4;
  }

  u64(value: number): void {
    this.#reserve(8);
    this.#view.setBigUint64(this.#length, BigInt(value), true);
    this.#length += 8;
  }

  string(text: string, what: string): void {
    // A lone surrogate has no UTF-8 form; TextEncoder would silently write another character.
    if (!text.isWellFormed())
      throw new UsageError(`${what} ${JSON.stringify(text)} is not valid Unicode`);
    this.#reserve(8 + text.length * 3);
    const { written } = this.#encoder.encodeInto(text, this.#bytes.subarray(this.#length + 8));
    this.u64(written);
    this.#length += written;
  }

  value(type: ValueType, value: Scalar, key: string): void {
    if (!type.accepts(value)) {
      throw new UsageError(
        `metadata "${key}": ${String(value)} does not fit the type ${type.name}`,
      );
    }
    if (typeof value === "string") {
      this.string(value, `metadata "${key}"`);
      return;
    }
    this.#reserve(type.bytes);
    type.write(this.#view, this.#length, value);
    this.#length += type.bytes;
  }

  padTo(alignment: number): void {
    const padding = alignUp(this.#length, alignment) - this.#length;
    this.#reserve(padding);
    this.#bytes.fill(0, this.#length, this.#length + padding);
    this.#length += padding;
  }

  finish(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.#length);
  }

  #reserve(length: number): void {
    if (this.#length + length <= this.#bytes.byteLength) return;
    const grown = new Uint8Array(Math.max(this.#length + length, this.#bytes.byteLength * 2));
    grown.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }
}
