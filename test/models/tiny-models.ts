// Small models with random weights, written as GGUF files in memory: every architecture, every kind of rope, every
// weight type. The same bytes everywhere and always (integer random numbers, no transcendental functions), so llama.cpp
// can compute their logits once (test/models/data) and the test can make the same file again.
//
// The tensors are listed here by hand, not taken from src/models: what a file must hold is llama.cpp's word, not ours.

import { f16ToF32, f32ToF16 } from "../../src/base/half.ts";
import { bytesFor, type DType } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { GgufTensor, GgufValue } from "../../src/formats/gguf/writer.ts";
import { ggufBytes } from "../formats/support.ts";
import { Random } from "../support/random.ts";

export interface TinyShape {
  embed: number;
  layers: number;
  heads: number;
  kvHeads: number;
  headDim: number;
  feedForward: number;
}

export interface TinySpec {
  name: string;
  architecture: "llama" | "qwen2" | "qwen3";
  shape: TinyShape;
  /** Type of the matrices; vectors are F32. */
  weightType: string;
  /** The table of embeddings reads the output, too. */
  tied: boolean;
  /** Projections with a bias, of "attn_q", "attn_k", "attn_v", "attn_output". */
  biases: readonly string[];
  /** rope_freqs.weight: a divisor for every pair. */
  ropeFactors?: readonly number[];
  /** More metadata, or undefined to leave a key out; without "<architecture>.". */
  metadata: Readonly<Record<string, GgufValue | undefined>>;
}

const f32 = (value: number): GgufValue => ({ type: "f32", value: Math.fround(value) });
const u32 = (value: number): GgufValue => ({ type: "u32", value });
const text = (value: string): GgufValue => ({ type: "string", value });

const small: TinyShape = {
  embed: 64,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  feedForward: 96,
};
/** Rows of 256, which K-quants need; one layer, because weights are slow to quantize. */
const wide: TinyShape = { ...small, embed: 256, layers: 1, headDim: 64, feedForward: 256 };
const longHeads = { "attention.key_length": u32(32), "attention.value_length": u32(32) };

function spec(name: string, changes: Partial<TinySpec> = {}): TinySpec {
  return {
    name,
    architecture: "llama",
    shape: small,
    weightType: "f32",
    tied: false,
    biases: [],
    metadata: {},
    ...changes,
  };
}

const qkv = ["attn_q", "attn_k", "attn_v"];
const yarn = {
  "rope.scaling.type": text("yarn"),
  "rope.scaling.factor": f32(4),
  "rope.scaling.original_context_length": u32(128),
};

/** Weights in floats: here every difference is a mistake. */
export const floatModels: readonly TinySpec[] = [
  spec("llama"),
  spec("llama-tied", { tied: true }),
  spec("llama-bias", { biases: [...qkv, "attn_output"] }),
  spec("llama-no-kv-count", {
    shape: { ...small, kvHeads: 4 },
    metadata: { "attention.head_count_kv": undefined },
  }),
  spec("llama-one-kv-head", { shape: { ...small, kvHeads: 1 } }),
  spec("llama-long-heads", {
    shape: { ...small, headDim: 32 },
    metadata: longHeads,
  }),
  spec("llama-base-500000", { metadata: { "rope.freq_base": f32(500000) } }),
  spec("llama-rope-freqs", { ropeFactors: [1, 1, 1.25, 2.5, 4, 7, 8, 8] }),
  spec("llama-llama3", { ropeFactors: [1, 1, 1, 4.7818336, 8, 8, 8, 8] }),
  spec("llama-linear", {
    metadata: { "rope.scaling.type": text("linear"), "rope.scaling.factor": f32(4) },
  }),
  spec("llama-linear-untyped", { metadata: { "rope.scaling.factor": f32(3) } }),
  spec("llama-linear-old-key", { metadata: { "rope.scale_linear": f32(2.5) } }),
  spec("llama-scaling-none", {
    metadata: { "rope.scaling.type": text("none"), "rope.scaling.factor": f32(4) },
  }),
  spec("llama-yarn", { metadata: yarn }),
  spec("llama-yarn-attn-factor", {
    metadata: { ...yarn, "rope.scaling.attn_factor": f32(0.75) },
  }),
  spec("llama-yarn-no-factor", {
    metadata: { ...yarn, "rope.scaling.factor": undefined },
  }),
  spec("llama-yarn-faster", { metadata: { ...yarn, "rope.scaling.factor": f32(0.5) } }),
  spec("llama-attn-factor", { metadata: { "rope.scaling.attn_factor": f32(1.25) } }),
  spec("qwen2", { architecture: "qwen2", biases: qkv }),
  spec("qwen2-tied-yarn", { architecture: "qwen2", biases: qkv, tied: true, metadata: yarn }),
  spec("qwen3", {
    architecture: "qwen3",
    shape: { ...small, headDim: 32 },
    metadata: { ...longHeads, "rope.freq_base": f32(1000000) },
  }),
  spec("qwen3-tied-linear", {
    architecture: "qwen3",
    tied: true,
    metadata: { "rope.scaling.type": text("linear"), "rope.scaling.factor": f32(2) },
  }),
  spec("llama-f16", { weightType: "f16" }),
  spec("qwen3-bf16", { architecture: "qwen3", weightType: "bf16" }),
];

const quantizedTypes = [
  ...["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4"],
  ...["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"],
  ...["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "tq1_0", "tq2_0"],
];

/** Weights in blocks: activations are rounded, so engines differ a little. */
export const quantizedModels: readonly TinySpec[] = quantizedTypes.map((weightType) =>
  spec(`llama-${weightType}`, { shape: wide, weightType }),
);

const pieces: readonly string[] = makePieces();

/** Token ids to compute: more than a block of the KV cache holds. */
export const tinyPrompt: readonly number[] = makePrompt();

export async function tinyGguf(model: TinySpec): Promise<Uint8Array<ArrayBuffer>> {
  return await ggufBytes({ ...metadataOf(model), ...vocabulary() }, tensorsOf(model));
}

function metadataOf({ architecture, shape, metadata }: TinySpec): Record<string, GgufValue> {
  const keys: Record<string, GgufValue | undefined> = {
    context_length: u32(512),
    embedding_length: u32(shape.embed),
    block_count: u32(shape.layers),
    feed_forward_length: u32(shape.feedForward),
    "attention.head_count": u32(shape.heads),
    "attention.head_count_kv": u32(shape.kvHeads),
    "attention.layer_norm_rms_epsilon": f32(1e-5),
    ...metadata,
  };
  const entries: Record<string, GgufValue> = { "general.architecture": text(architecture) };
  for (const [key, value] of Object.entries(keys)) {
    if (value) entries[`${architecture}.${key}`] = value;
  }
  return entries;
}

/** SentencePiece style: three control tokens, all bytes, a few letters. */
function makePieces(): string[] {
  const bytes = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
  );
  const letters = [..."abcdefghijklmnopqrstuvwxyz"];
  const words = letters.map((letter) => `▁${letter}`);
  return ["<unk>", "<s>", "</s>", ...bytes, "▁", ...letters, ...words, "er", "in", "on", "th"];
}

function vocabulary(): Record<string, GgufValue> {
  // 1 normal, 2 unknown, 3 control, 6 byte
  const types = pieces.map((_, id) => (id === 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1));
  return {
    "tokenizer.ggml.model": text("llama"),
    "tokenizer.ggml.tokens": { type: "array<string>", value: pieces },
    "tokenizer.ggml.scores": { type: "array<f32>", value: pieces.map((_, id) => -id) },
    "tokenizer.ggml.token_type": { type: "array<i32>", value: types },
    "tokenizer.ggml.bos_token_id": u32(1),
    "tokenizer.ggml.eos_token_id": u32(2),
    "tokenizer.ggml.unknown_token_id": u32(0),
  };
}

function makePrompt(): number[] {
  const random = new Random(2026);
  return [1, ...Array.from({ length: 35 }, () => 3 + random.below(pieces.length - 3))];
}

function tensorsOf(model: TinySpec): GgufTensor[] {
  const { shape, biases, tied, ropeFactors } = model;
  const { embed, feedForward, headDim } = shape;
  const qCols = shape.heads * headDim;
  const kvCols = shape.kvHeads * headDim;
  const tensors: GgufTensor[] = [];
  const matrix = (name: string, rows: number, cols: number, gain: number) =>
    tensors.push(randomMatrix(`${name}.weight`, model.weightType, [rows, cols], gain));
  const vector = (name: string, size: number, center: number) =>
    tensors.push(randomVector(name, size, center));

  matrix("token_embd", pieces.length, embed, Math.sqrt(embed));
  vector("output_norm.weight", embed, 1);
  if (!tied) matrix("output", pieces.length, embed, 3);
  if (ropeFactors) tensors.push(floatTensor("rope_freqs.weight", Float32Array.from(ropeFactors)));
  for (let layer = 0; layer < shape.layers; layer++) {
    const blk = `blk.${layer}`;
    const project = (name: string, rows: number, cols: number, gain: number) => {
      matrix(`${blk}.${name}`, rows, cols, gain);
      if (biases.includes(name)) vector(`${blk}.${name}.bias`, rows, 0);
    };
    vector(`${blk}.attn_norm.weight`, embed, 1);
    // Large enough that attention has favourites, or positions would hardly matter.
    project("attn_q", qCols, embed, 2);
    project("attn_k", kvCols, embed, 2);
    project("attn_v", kvCols, embed, 1);
    project("attn_output", embed, qCols, 1.5);
    if (model.architecture === "qwen3") {
      vector(`${blk}.attn_q_norm.weight`, headDim, 1);
      vector(`${blk}.attn_k_norm.weight`, headDim, 1);
    }
    vector(`${blk}.ffn_norm.weight`, embed, 1);
    project("ffn_gate", feedForward, embed, 1);
    project("ffn_up", feedForward, embed, 1);
    project("ffn_down", embed, feedForward, 1.5);
  }
  return tensors;
}

/** Normal weights of standard deviation gain / sqrt(cols): an input of size 1 gives outputs of size `gain`. */
function randomMatrix(
  name: string,
  type: string,
  shape: [number, number],
  gain: number,
): GgufTensor {
  const dtype = dtypeByName(type)!;
  const elements = shape[0] * shape[1];
  const deviation = gain / Math.sqrt(shape[1]);
  const random = new Random(seedOf(name));
  const bytes = scaleWriters[type]
    ? randomBlocks(dtype, elements, random, deviation)
    : quantized(dtype, elements, () => random.normal() * deviation);
  return { name, dtype, shape, data: () => [bytes] };
}

function randomVector(name: string, size: number, center: number): GgufTensor {
  const random = new Random(seedOf(name));
  return floatTensor(
    name,
    Float32Array.from({ length: size }, () => center + random.normal() / 4),
  );
}

function floatTensor(name: string, values: Float32Array<ArrayBuffer>): GgufTensor {
  const bytes = new Uint8Array(values.buffer);
  return { name, dtype: dtypeByName("f32")!, shape: [values.length], data: () => [bytes] };
}

function quantized(dtype: DType, elements: number, next: () => number): Uint8Array {
  const values = Float32Array.from({ length: elements }, next);
  const bytes = new Uint8Array(bytesFor(dtype, elements));
  dtype.quantize!(values, 0, bytes, 0, elements / dtype.blockElems);
  return bytes;
}

/** Where types whose golden outputs are those of random blocks keep the scale of one; all other bits may be anything. */
const scaleWriters: Readonly<Record<string, (block: DataView, scale: number) => void>> = {
  iq1_s: f16At(0),
  iq1_m: (block, scale) => {
    const bits = f32ToF16(scale);
    for (let quarter = 0; quarter < 4; quarter++) {
      const at = 48 + 2 * quarter;
      const nibble = (bits >> (4 * quarter)) & 15;
      block.setUint16(at, (block.getUint16(at, true) & 0xfff) | (nibble << 12), true);
    }
  },
  iq2_xxs: f16At(0),
  iq2_xs: f16At(0),
  iq2_s: f16At(0),
  iq3_xxs: f16At(0),
  iq3_s: f16At(0),
  tq1_0: f16At(52),
  tq2_0: (block, scale) => {
    // The pattern 3 is no ternary digit.
    for (let at = 0; at < 64; at++) {
      const twos = block.getUint8(at);
      block.setUint8(at, twos & ~((twos & (twos >> 1) & 0x55) << 1));
    }
    block.setUint16(64, f32ToF16(scale), true);
  },
  // A power of two, as exponent + 127.
  mxfp4: (block, scale) => {
    let exponent = 127;
    for (let power = 1; power > scale; power /= 2) exponent--;
    block.setUint8(0, exponent);
  },
};

function f16At(offset: number): (block: DataView, scale: number) => void {
  return (block, scale) => block.setUint16(offset, f32ToF16(scale), true);
}

/** Random blocks of a type without a quantizer, their scale set so that the weights have this standard deviation. */
function randomBlocks(
  dtype: DType,
  elements: number,
  random: Random,
  deviation: number,
): Uint8Array {
  const bytes = Uint8Array.from({ length: bytesFor(dtype, elements) }, () => random.below(256));
  const blocks = elements / dtype.blockElems;
  const setScales = (scale: number) => {
    for (let block = 0; block < blocks; block++) {
      scaleWriters[dtype.name]!(new DataView(bytes.buffer, block * dtype.blockBytes), scale);
    }
  };
  setScales(1);
  const values = new Float32Array(elements);
  dtype.dequantize(bytes, 0, values, 0, blocks);
  const squares = values.reduce((sum, value) => sum + value * value, 0);
  setScales(f16ToF32(f32ToF16(deviation / Math.sqrt(squares / elements))));
  return bytes;
}

/** FNV-1a: every tensor has its own numbers, whatever else is in the file. */
function seedOf(name: string): number {
  let hash = 0x811c9dc5;
  for (const letter of name) hash = Math.imul(hash ^ letter.charCodeAt(0), 0x01000193);
  return hash >>> 0;
}
