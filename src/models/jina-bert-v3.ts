// Jina BERT 3: XLM-RoBERTa with rotary positions; q, k and v in one tensor, biases, a plain GELU network.

import type { Arch } from "./arch.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention } from "./parts/attention.ts";
import { bertWeights, encoderOutputs, normedEmbedding } from "./parts/encoder.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

export const jinaBertV3: Arch<EncoderConfig> = {
  names: ["jina-bert-v3"],
  about: "jina-embeddings v3",
  config: (header) => readEncoderConfig(header, "half", { norm: "layer" }),
  weights: (c) => bertWeights(c, (layer) => mlpWeights(c.embed, c.feedForward, layer, "optional")),

  forward(g, c, w) {
    let x = normedEmbedding(g, c, w); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = attention(g, w, x, { ...c, layer }); // [tokens, embed]
      const attended = norm(g.add(a, x, "attn_residual"), "attn_output_norm"); // [tokens, embed]
      const f = mlp(g, w, attended, layer, "gelu"); // [tokens, embed]
      x = norm(g.add(f, attended, "ffn_residual"), "layer_output_norm"); // [tokens, embed]
    }
    return encoderOutputs(g, w, x, c);
  },
};
