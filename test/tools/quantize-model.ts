// Models to quantize: made up, small, the same every time. What llama.cpp makes of the very same bytes is in
// data/quantize-llama-cpp.json.

import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { type GgufTensor, type GgufValue, writeGguf } from "../../src/formats/gguf/writer.ts";
import type { ModelFile } from "../../src/formats/model-file.ts";
import { writeImportance } from "../../src/tools/quantize/importance.ts";
import { Random } from "../support/random.ts";

export interface SampleShape {
  layers: number;
  embed: number;
  feedForward: number;
  heads: number;
  kvHeads: number;
  vocab: number;
  type: string;
  /** Whether there is an output matrix beside the embedding. */
  output: boolean;
  /** Of planFile() only: its feed-forward matrices are those of so many experts. */
  experts?: number;
}

/** The cases of data/quantize-llama-cpp.json. */
export const samples: Readonly<Record<string, SampleShape>> = {
  // Whole blocks of every type.
  f32: {
    layers: 1,
    embed: 256,
    feedForward: 512,
    heads: 4,
    kvHeads: 4,
    vocab: 40,
    type: "f32",
    output: true,
  },
  // No output matrix, heads that share keys.
  "f16-tied": {
    layers: 1,
    embed: 256,
    feedForward: 256,
    heads: 4,
    kvHeads: 1,
    vocab: 40,
    type: "f16",
    output: false,
  },
  // Rows of 96 and 80: no whole blocks of 256, nor (80) of 32.
  "bf16-odd": {
    layers: 1,
    embed: 96,
    feedForward: 80,
    heads: 4,
    kvHeads: 4,
    vocab: 40,
    type: "bf16",
    output: true,
  },
};

/** Enough layers that mixes differ from one to the next; only its names and shapes are looked at. */
export const deep: SampleShape = { ...samples.f32!, layers: 20, feedForward: 256, kvHeads: 1 };

/** Models whose plans of types are in data/quantize-plans.json: what mixes ask for is different in each. */
export const planShapes: Readonly<Record<string, SampleShape>> = {
  "20 layers": { ...deep, kvHeads: 4 },
  "20 layers, shared heads": deep,
  "80 layers, shared heads": { ...deep, layers: 80, heads: 8, kvHeads: 4 },
  "8 experts": { ...deep, kvHeads: 4, experts: 8 },
  "4 experts": { ...deep, kvHeads: 4, layers: 8, experts: 4 },
};

/** Names and shapes of all matrices of a model. */
export function planTensorShapes(shape: SampleShape): [name: string, dims: number[]][] {
  return matrices(shape).map(([name, rows, cols]) => {
    const isExpert = shape.experts !== undefined && name.includes("ffn_");
    return isExpert
      ? [name.replace(".weight", "_exps.weight"), [shape.experts!, rows, cols]]
      : [name, [rows, cols]];
  });
}

/** A file of which there are only names, shapes and metadata: all that a plan needs. */
export function planFile(shape: SampleShape): ModelFile {
  const facts = new Map(planMetadata(shape));
  const dtype = dtypeByName(shape.type)!;
  const tensors = planTensorShapes(shape).map(([name, dims]) => ({ name, shape: dims, dtype }));
  return {
    name: "plan",
    metadata: {
      string: (key: string) => facts.get(key)?.value,
      preview: (key: string) => facts.get(key),
    },
    tensors: new Map(tensors.map((tensor) => [tensor.name, tensor])),
  } as unknown as ModelFile;
}

export function planMetadata(shape: SampleShape): [string, GgufValue][] {
  if (shape.experts === undefined) return metadata(shape);
  const u32 = (key: string, value: number): [string, GgufValue] => [key, { type: "u32", value }];
  return [
    ...metadata(shape),
    u32("llama.expert_count", shape.experts),
    u32("llama.expert_used_count", 2),
  ];
}

function matrices(shape: SampleShape): [name: string, rows: number, cols: number][] {
  const { embed, feedForward, vocab } = shape;
  const kv = (embed / shape.heads) * shape.kvHeads;
  const layer = (i: number): [string, number, number][] => [
    [`blk.${i}.attn_q.weight`, embed, embed],
    [`blk.${i}.attn_k.weight`, kv, embed],
    [`blk.${i}.attn_v.weight`, kv, embed],
    [`blk.${i}.attn_output.weight`, embed, embed],
    [`blk.${i}.ffn_gate.weight`, feedForward, embed],
    [`blk.${i}.ffn_up.weight`, feedForward, embed],
    [`blk.${i}.ffn_down.weight`, embed, feedForward],
  ];
  return [
    ["token_embd.weight", vocab, embed],
    ...Array.from({ length: shape.layers }, (_, i) => layer(i)).flat(),
    ...(shape.output ? [["output.weight", vocab, embed] as [string, number, number]] : []),
  ];
}

function metadata(shape: SampleShape): [string, GgufValue][] {
  const u32 = (key: string, value: number): [string, GgufValue] => [key, { type: "u32", value }];
  const tokens = Array.from({ length: shape.vocab }, (_, i) => `<${i}>`);
  return [
    ["general.architecture", { type: "string", value: "llama" }],
    ["general.name", { type: "string", value: "sample" }],
    u32("general.file_type", 1),
    u32("llama.block_count", shape.layers),
    u32("llama.context_length", 128),
    u32("llama.embedding_length", shape.embed),
    u32("llama.feed_forward_length", shape.feedForward),
    u32("llama.attention.head_count", shape.heads),
    u32("llama.attention.head_count_kv", shape.kvHeads),
    ["llama.attention.layer_norm_rms_epsilon", { type: "f32", value: Math.fround(1e-5) }],
    ["tokenizer.ggml.model", { type: "string", value: "llama" }],
    ["tokenizer.ggml.tokens", { type: "array<string>", value: tokens }],
    ["tokenizer.ggml.scores", { type: "array<f32>", value: tokens.map(() => 0) }],
    ["tokenizer.ggml.token_type", { type: "array<i32>", value: tokens.map(() => 1) }],
  ];
}

/** Normal values; some rows are zero, some ten times as large, as in real models. */
function values(random: Random, rows: number, cols: number): Float32Array {
  const result = new Float32Array(rows * cols);
  for (let row = 0; row < rows; row++) {
    const scale = row % 17 === 3 ? 0 : row % 13 === 5 ? 0.3 : 0.03;
    for (let i = 0; i < cols; i++) result[row * cols + i] = scale * random.normal();
  }
  return result;
}

/** The bytes of a GGUF file. */
export async function sampleModel(shape: SampleShape): Promise<Uint8Array<ArrayBuffer>> {
  const random = new Random(7);
  const dtype = dtypeByName(shape.type)!;
  const exact = dtypeByName("f32")!;
  const tensor = (name: string, dims: number[], floats: Float32Array): GgufTensor => {
    const type = dims.length === 1 ? exact : dtype;
    const bytes = new Uint8Array(bytesFor(type, floats.length));
    type.quantize!(floats, 0, bytes, 0, floats.length);
    return { name, dtype: type, shape: dims, data: () => [bytes] };
  };
  const norms = ["output_norm.weight"];
  for (let i = 0; i < shape.layers; i++) {
    norms.push(`blk.${i}.attn_norm.weight`, `blk.${i}.ffn_norm.weight`);
  }
  return await collected((sink) =>
    writeGguf(sink, metadata(shape), [
      ...matrices(shape).map(([name, rows, cols]) =>
        tensor(name, [rows, cols], values(random, rows, cols)),
      ),
      ...norms.map((name) => tensor(name, [shape.embed], new Float32Array(shape.embed).fill(1))),
    ]),
  );
}

/** An importance matrix for it, of all matrices of its layers. */
export async function sampleImportance(shape: SampleShape): Promise<Uint8Array<ArrayBuffer>> {
  const random = new Random(8);
  const sums = matrices(shape)
    .filter(([name]) => name.startsWith("blk."))
    .map(([name, , cols]) => ({
      name,
      sums: Float32Array.from({ length: cols }, () => 64 * Math.exp(2 * random.normal())),
      counts: Float32Array.of(64),
    }));
  const facts = { datasets: ["made-up"], chunks: 2, chunkTokens: 32 };
  return await collected((sink) => writeImportance(sink, sums, facts));
}

export async function collected(
  write: (sink: { write(bytes: Uint8Array): Promise<void> }) => Promise<unknown>,
): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  await write({ write: async (part) => void parts.push(part.slice()) });
  return new Uint8Array(Buffer.concat(parts));
}
