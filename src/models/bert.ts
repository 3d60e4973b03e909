// BERT: learned positions, norms behind each half of a layer, biases, a plain GELU network; tokens attend in both directions.
// Files of XLM-RoBERTa have this name, too, without the positions that it does not use.

import type { Arch } from "./arch.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention } from "./parts/attention.ts";
import { bertWeights, encoderOutputs, typedEmbedding } from "./parts/encoder.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

export const bert: Arch<EncoderConfig> = {
  names: ["bert"],
  about:
    "BERT, MiniLM, BGE, E5, GTE, mxbai-embed, Snowflake Arctic Embed, XLM-RoBERTa, BGE-M3 and their rerankers",
  config: (header) => readEncoderConfig(header, "half", { norm: "layer" }),

  weights: (c) => [
    { name: "position_embd.weight", shape: [c.trainedContext, c.embed] },
    ...bertWeights(c, (layer) => mlpWeights(c.embed, c.feedForward, layer, "optional")),
  ],

  forward(g, c, w) {
    const positions = g.embedPositions(w.get("position_embd.weight"), "positions"); // [tokens, embed]
    const embedded = g.add(typedEmbedding(g, w), positions, "embed_positions"); // [tokens, embed]
    let x = layerNorms(g, w, c, undefined)(embedded, "token_embd_norm"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = attention(g, w, x, { ...c, layer, rope: undefined }); // [tokens, embed]
      const attended = norm(g.add(a, x, "attn_residual"), "attn_output_norm"); // [tokens, embed]
      const f = mlp(g, w, attended, layer, "gelu"); // [tokens, embed]
      x = norm(g.add(f, attended, "ffn_residual"), "layer_output_norm"); // [tokens, embed]
    }
    return encoderOutputs(g, w, x, c);
  },
};
