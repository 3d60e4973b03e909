// A small Llama model with ReLU whose gates have a low rank, as a GGUF file: what a predictor can learn, and large enough for the
// layouts that leave out neurons.

import { bytesFor } from "../../src/dtypes/dtype.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { Random } from "./random.ts";
import type { TinyModel } from "./tiny-engine.ts";
import { tinyModel } from "./tiny-engine.ts";
import type { TinyFileOptions } from "./tiny-file.ts";
import { tinyFileVocab } from "./tiny-file.ts";

export const reluShape = { embed: 128, feedForward: 256, layers: 2, heads: 4, kvHeads: 2 };

/** Of the gates. */
const RANK = 6;
/** Added to gates by the first dimension of norms, which is the same for all tokens: few are above zero. */
const BELOW = -1.2;

export function reluFile(options: { type?: string } = {}): TinyFileOptions {
  const { embed, feedForward, layers, heads, kvHeads } = reluShape;
  const u32 = (key: string, value: number) =>
    [key, { type: "u32", value }] as [string, { type: string; value: number }];
  return {
    model: reluModel(options.type ?? "q8_0"),
    more: [
      ["llama.hidden_activation", { type: "string", value: "relu" }],
      u32("llama.embedding_length", embed),
      u32("llama.feed_forward_length", feedForward),
      u32("llama.block_count", layers),
      u32("llama.attention.head_count", heads),
      u32("llama.attention.head_count_kv", kvHeads),
      u32("llama.rope.dimension_count", embed / heads),
      u32("llama.attention.key_length", embed / heads),
      u32("llama.attention.value_length", embed / heads),
      u32("llama.context_length", 256),
    ],
  };
}

function reluModel(type: string): TinyModel {
  const { embed, feedForward, layers, heads, kvHeads } = reluShape;
  const random = new Random(7);
  const f32 = dtypeByName("f32")!;
  const tensors = new Map<string, Weight>();
  const bytes = new Map<string, Uint8Array>();
  const add = (name: string, shape: number[], values: Float32Array, isMatrix = true) => {
    const dtype = isMatrix && name.startsWith("blk.") ? dtypeByName(type)! : f32;
    const own = new Uint8Array(bytesFor(dtype, values.length));
    dtype.quantize!(values, 0, own, 0, values.length / dtype.blockElems);
    tensors.set(name, { name, shape, dtype });
    bytes.set(name, own);
  };
  const normal = (rows: number, cols: number, deviation = 1 / Math.sqrt(cols)) =>
    Float32Array.from({ length: rows * cols }, () => deviation * random.normal());
  const ones = () => new Float32Array(embed).fill(1);
  const embeddings = normal(tinyFileVocab, embed, 1);
  for (let row = 0; row < tinyFileVocab; row++) embeddings[row * embed] = 8;
  add("token_embd.weight", [tinyFileVocab, embed], embeddings);
  add("output_norm.weight", [embed], ones(), false);
  add("output.weight", [tinyFileVocab, embed], normal(tinyFileVocab, embed, 0.3));
  const kv = (embed / heads) * kvHeads;
  for (let layer = 0; layer < layers; layer++) {
    const blk = `blk.${layer}`;
    add(`${blk}.attn_norm.weight`, [embed], ones(), false);
    add(`${blk}.ffn_norm.weight`, [embed], ones(), false);
    add(`${blk}.attn_q.weight`, [embed, embed], normal(embed, embed));
    add(`${blk}.attn_k.weight`, [kv, embed], normal(kv, embed));
    add(`${blk}.attn_v.weight`, [kv, embed], normal(kv, embed));
    add(`${blk}.attn_output.weight`, [embed, embed], normal(embed, embed));
    add(`${blk}.ffn_gate.weight`, [feedForward, embed], lowRank(feedForward, embed, normal));
    add(`${blk}.ffn_up.weight`, [feedForward, embed], normal(feedForward, embed));
    add(`${blk}.ffn_down.weight`, [embed, feedForward], normal(embed, feedForward, 0.2));
  }
  return { metadata: tinyModel().metadata, tensors, bytes };
}

function lowRank(
  rows: number,
  cols: number,
  normal: (rows: number, cols: number, deviation?: number) => Float32Array,
): Float32Array {
  const [left, right] = [normal(rows, RANK, 1 / Math.sqrt(RANK)), normal(RANK, cols)];
  const out = new Float32Array(rows * cols);
  for (let row = 0; row < rows; row++) {
    for (let col = 1; col < cols; col++) {
      for (let k = 0; k < RANK; k++) {
        out[row * cols + col]! += left[row * RANK + k]! * right[k * cols + col]!;
      }
    }
    out[row * cols] = BELOW / 8;
  }
  return out;
}
