// The header of one GGUF file (version 2 or 3, little endian): metadata and the tensor table, read and checked.
//
//   magic "GGUF" | u32 version | u64 tensors | u64 keys | keys: string, type, value | tensors: string, dims, type, offset
//   | padding to general.alignment | tensor data
//
// open-gguf.ts handles splits and makes the ModelFile.

import { dtypeByGgufId } from "../../dtypes/table.ts";
import type { ByteSource } from "../../platform/platform.ts";
import type { TensorInfo } from "../model-file.ts";
import { checkTensorRanges, knownTypes, mostDimensions, tensorBytes } from "../tensor-table.ts";
import { type MetadataEntry, TypedMetadata } from "../typed-metadata.ts";
import { HeaderCursor } from "./header-cursor.ts";
import { readValue } from "./read-values.ts";

export const ggufMagic = 0x4655_4747; // "GGUF", read as a little-endian u32
/** The magic of PowerInfer's files (powerinfer.ts). */
export const powerInferMagic = 0x4952_5750; // "PWRI"
export const defaultAlignment = 32;
export const alignmentKey = "general.alignment";

/** The smallest size of a key (empty string, type, one byte) and of a tensor entry (empty string, one dimension). */
const leastKeyBytes = 8 + 4 + 1;
const leastTensorBytes = 8 + 4 + 8 + 4 + 8;

/** Real models have up to a hundred keys and some thousand tensors. */
const mostKeys = 65_536;
const mostTensors = 262_144;

const largestAlignment = 1 << 20;

export interface GgufHeader {
  readonly magic: number;
  readonly version: number;
  readonly alignment: number;
  readonly metadata: TypedMetadata;
  readonly tensors: readonly TensorInfo[];
  /** The offset of the tensor data. */
  readonly dataOffset: number;
}

export async function readGgufHeader(source: ByteSource, file: string): Promise<GgufHeader> {
  const cursor = new HeaderCursor(source, file);
  const { magic, version } = await readVersion(cursor);
  const tensorCount = await cursor.count("tensor count", leastTensorBytes, mostTensors);
  const keyCount = await cursor.count("metadata count", leastKeyBytes, mostKeys);
  const entries = await readEntries(cursor, keyCount);
  const metadata = new TypedMetadata("gguf", file, entries);
  const alignment = readAlignment(cursor, metadata);
  const records = await readTensorRecords(cursor, tensorCount);
  const dataOffset = alignUp(cursor.position, alignment);
  const tensors = records.map((record) => toTensorInfo(cursor, record, dataOffset, alignment));
  checkTensorRanges("gguf", file, tensors, source.size);
  cursor.trim();
  return { magic, version, alignment, metadata, tensors, dataOffset };
}

export function alignUp(position: number, alignment: number): number {
  return Math.ceil(position / alignment) * alignment;
}

async function readVersion(cursor: HeaderCursor): Promise<{ magic: number; version: number }> {
  const magic = await cursor.u32("magic");
  if (magic !== ggufMagic && magic !== powerInferMagic) {
    throw cursor.error("magic", cursor.bytes.subarray(0, 4), '"GGUF" (bytes 71 71 85 70)');
  }
  const version = await cursor.u32("version");
  // In a big-endian file, the small version number is in the upper half.
  if (version !== 0 && (version & 0xffff) === 0) {
    throw cursor.error("byte order", "a big-endian file", "little endian (convert the file)");
  }
  if (version !== 2 && version !== 3) throw cursor.error("version", version, "2 or 3");
  return { magic, version };
}

async function readEntries(
  cursor: HeaderCursor,
  count: number,
): Promise<Map<string, MetadataEntry>> {
  const entries = new Map<string, MetadataEntry>();
  for (let i = 0; i < count; i++) {
    const key = await cursor.name(`metadata key ${i}`);
    if (entries.has(key)) throw cursor.error(`metadata key ${i}`, key, "keys that occur once");
    entries.set(key, await readValue(cursor, key));
  }
  return entries;
}

function readAlignment(cursor: HeaderCursor, metadata: TypedMetadata): number {
  const alignment = metadata.number(alignmentKey) ?? defaultAlignment;
  const powerOfTwo = Number.isInteger(Math.log2(alignment));
  if (powerOfTwo && alignment >= 1 && alignment <= largestAlignment) return alignment;
  throw cursor.error(alignmentKey, alignment, `a power of two up to ${largestAlignment}`);
}

/** An entry of the tensor table as stored: dimensions innermost first, offset within the data section. */
interface TensorRecord {
  name: string;
  dims: number[];
  typeId: number;
  offset: number;
}

async function readTensorRecords(cursor: HeaderCursor, count: number): Promise<TensorRecord[]> {
  const records: TensorRecord[] = [];
  const names = new Set<string>();
  for (let i = 0; i < count; i++) {
    const name = await cursor.name(`tensor ${i} name`);
    if (names.has(name)) throw cursor.error(`tensor ${i} name`, name, "names that occur once");
    names.add(name);
    const field = `tensor ${JSON.stringify(name)}`;
    const dimCount = await cursor.u32(`${field} dimension count`);
    if (dimCount < 1 || dimCount > mostDimensions) {
      throw cursor.error(`${field} dimension count`, dimCount, `1 to ${mostDimensions}`);
    }
    const dims: number[] = [];
    for (let d = 0; d < dimCount; d++) dims.push(await cursor.u64(`${field} dimension ${d}`));
    const typeId = await cursor.u32(`${field} type`);
    const offset = await cursor.u64(`${field} offset`);
    records.push({ name, dims, typeId, offset });
  }
  return records;
}

function toTensorInfo(
  cursor: HeaderCursor,
  record: TensorRecord,
  dataOffset: number,
  alignment: number,
): TensorInfo {
  const { name, offset } = record;
  const { file } = cursor;
  const field = `tensor ${JSON.stringify(name)}`;
  const dtype = dtypeByGgufId(record.typeId);
  if (!dtype) throw cursor.error(`${field} type`, record.typeId, `one of ${knownTypes()}`);
  const shape = record.dims.toReversed();
  const byteLength = tensorBytes({ format: "gguf", file, name, dtype, shape });
  if (offset % alignment !== 0) {
    throw cursor.error(`${field} offset`, offset, `a multiple of the alignment, ${alignment}`);
  }
  // This also keeps the sum below exact, because the file's size is exact.
  if (offset > cursor.size) {
    throw cursor.error(
      `${field} offset`,
      BigInt(offset),
      `at most the file's ${cursor.size} bytes`,
    );
  }
  return { name, dtype, shape, byteLength, file, offset: dataOffset + offset };
}
