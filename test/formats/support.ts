// Files in memory for the format tests: a ModelSource that counts what is asked of it, and small files of every format.

import { SourceError } from "../../src/base/errors.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { ByteSink, GgufTensor, GgufValue } from "../../src/formats/gguf/writer.ts";
import { writeGguf } from "../../src/formats/gguf/writer.ts";
import type { ByteSource, ModelSource } from "../../src/platform/platform.ts";

export interface ReadCount {
  /** Bytes asked for, all reads together. */
  bytes: number;
  /** Files that are open now. */
  open: number;
}

export interface MemorySource extends ModelSource {
  readonly count: ReadCount;
}

/** A file of which only the first bytes are in memory; the rest reads as zeros. */
export interface SparseFile {
  head: Uint8Array;
  size: number;
}

/** Named files in memory. `main` as a platform would set it: the only file, or what the test says. */
export function memorySource(
  files: Readonly<Record<string, Uint8Array | SparseFile>>,
  main: string | undefined = Object.keys(files).length === 1 ? Object.keys(files)[0] : undefined,
): MemorySource {
  const count: ReadCount = { bytes: 0, open: 0 };
  return {
    name: main ?? "memory",
    main,
    count,
    has: async (file) => Object.hasOwn(files, file),
    open: async (file) => {
      const found = Object.hasOwn(files, file) ? files[file] : undefined;
      if (!found) throw new SourceError(`memory: no file ${file}`);
      count.open++;
      const sparse = found instanceof Uint8Array ? { head: found, size: found.byteLength } : found;
      return memoryFile(file, sparse, count);
    },
    list: async () => Object.keys(files),
  };
}

function memoryFile(name: string, { head, size }: SparseFile, count: ReadCount): ByteSource {
  const readInto = async (offset: number, target: Uint8Array): Promise<void> => {
    // Not a SourceError: a format reader that asks beyond the file has a bug, and the test must see it.
    if (!(offset >= 0 && offset + target.byteLength <= size)) {
      throw new Error(`read of ${target.byteLength} bytes at ${offset} in a file of ${size}`);
    }
    count.bytes += target.byteLength;
    target.set(head.subarray(offset, offset + target.byteLength));
  };
  let open = true;
  return {
    name,
    size,
    read: async (offset, length) => {
      // Before the allocation: a length that lies must not become memory.
      if (!(length >= 0 && length <= size)) throw new Error(`read of ${length} bytes of ${size}`);
      const target = new Uint8Array(length);
      await readInto(offset, target);
      return target;
    },
    readInto,
    close: async () => {
      if (open) count.open--;
      open = false;
    },
  };
}

/** Collects what a writer writes. */
export function memorySink(): ByteSink & { bytes(): Uint8Array<ArrayBuffer> } {
  const parts: Uint8Array[] = [];
  return {
    write: async (bytes) => {
      parts.push(bytes.slice());
    },
    bytes: () => concat(...parts),
  };
}

export function concat(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.byteLength, 0));
  let offset = 0;
  for (const part of parts) {
    whole.set(part, offset);
    offset += part.byteLength;
  }
  return whole;
}

export type Entries = Readonly<Record<string, GgufValue>>;

export async function ggufBytes(
  entries: Entries,
  tensors: readonly GgufTensor[] = [],
  version: 2 | 3 = 3,
): Promise<Uint8Array<ArrayBuffer>> {
  const sink = memorySink();
  await writeGguf(sink, Object.entries(entries), tensors, { version });
  return sink.bytes();
}

/** A tensor whose bytes count up from `first`. */
export function countingTensor(
  name: string,
  type: string,
  shape: readonly number[],
  first = 0,
): GgufTensor {
  const dtype = dtypeByName(type)!;
  const elems = shape.reduce((product, dim) => product * dim, 1);
  const bytes = Uint8Array.from(
    { length: (elems / dtype.blockElems) * dtype.blockBytes },
    (_, i) => first + i,
  );
  return { name, dtype, shape, data: () => [bytes] };
}

export type SafetensorsHeader = Record<
  string,
  { dtype: string; shape: number[]; data_offsets: number[] } | Record<string, string>
>;

/** A safetensors file with this header (an object, or text to be taken as it is) and so many bytes of data. */
export function safetensorsBytes(
  header: SafetensorsHeader | string,
  dataBytes: number,
  headerLength?: bigint,
): Uint8Array<ArrayBuffer> {
  const text = typeof header === "string" ? header : JSON.stringify(header);
  const json = new TextEncoder().encode(text);
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, headerLength ?? BigInt(json.byteLength), true);
  return concat(
    length,
    json,
    Uint8Array.from({ length: dataBytes }, (_, i) => i),
  );
}

/** The F32 tensors of these names and shapes, one after the other. */
export function safetensorsOf(
  shapes: Readonly<Record<string, number[]>>,
  metadata?: Record<string, string>,
): Uint8Array<ArrayBuffer> {
  const header: SafetensorsHeader = metadata ? { __metadata__: metadata } : {};
  let end = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    const begin = end;
    end += 4 * shape.reduce((product, dim) => product * dim, 1);
    header[name] = { dtype: "F32", shape, data_offsets: [begin, end] };
  }
  return safetensorsBytes(header, end);
}

export interface Llama2cNumbers {
  dim: number;
  hidden: number;
  layers: number;
  heads: number;
  kvHeads: number;
  vocab: number;
  seqLen: number;
}

export const smallLlama2c: Llama2cNumbers = {
  dim: 8,
  hidden: 12,
  layers: 2,
  heads: 2,
  kvHeads: 1,
  vocab: 5,
  seqLen: 4,
};

/** A checkpoint whose n-th float is n. */
export function llama2cBytes(numbers: Llama2cNumbers, floats?: number): Uint8Array<ArrayBuffer> {
  const { dim, hidden, layers, heads, kvHeads, vocab, seqLen } = numbers;
  const headDim = dim / heads;
  const perLayer = 2 * dim + 2 * dim * dim + 2 * dim * kvHeads * headDim + 3 * dim * hidden;
  const embedding = Math.abs(vocab) * dim;
  const count =
    floats ?? embedding + layers * perLayer + dim + seqLen * headDim + (vocab < 0 ? embedding : 0);
  const header = Int32Array.of(dim, hidden, layers, heads, kvHeads, vocab, seqLen);
  const weights = Float32Array.from({ length: count }, (_, i) => i);
  return concat(new Uint8Array(header.buffer), new Uint8Array(weights.buffer));
}

/** tokenizer.bin with these tokens. */
export function tokenizerBytes(tokens: readonly string[]): Uint8Array<ArrayBuffer> {
  const encoded = tokens.map((token) => new TextEncoder().encode(token));
  const longest = Math.max(...encoded.map((bytes) => bytes.byteLength));
  const parts: Uint8Array[] = [new Uint8Array(Int32Array.of(longest).buffer)];
  for (const [i, bytes] of encoded.entries()) {
    parts.push(new Uint8Array(Float32Array.of(-i).buffer));
    parts.push(new Uint8Array(Int32Array.of(bytes.byteLength).buffer), bytes);
  }
  return concat(...parts);
}

export function jsonBytes(value: unknown): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(value)) as Uint8Array<ArrayBuffer>;
}
