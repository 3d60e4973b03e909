// Nomic BERT: BERT with rotary positions, q, k and v in one tensor and a SiLU-gated network, without biases.

import type { Arch } from "./arch.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention } from "./parts/attention.ts";
import { bertWeights, encoderOutputs, normedEmbedding } from "./parts/encoder.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

export const nomicBert: Arch<EncoderConfig> = {
  names: ["nomic-bert"],
  about: "nomic-embed-text v1 and v1.5",
  config: (header) => readEncoderConfig(header, "half", { norm: "layer" }),
  weights: (c) => bertWeights(c, (layer) => gatedWeights(c.embed, c.feedForward, layer)),

  forward(g, c, w) {
    let x = normedEmbedding(g, c, w); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = attention(g, w, x, { ...c, layer }); // [tokens, embed]
      const attended = norm(g.add(a, x, "attn_residual"), "attn_output_norm"); // [tokens, embed]
      const f = swiglu(g, w, attended, layer); // [tokens, embed]
      x = norm(g.add(f, attended, "ffn_residual"), "layer_output_norm"); // [tokens, embed]
    }
    return encoderOutputs(g, w, x, c);
  },
};
