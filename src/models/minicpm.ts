// MiniCPM: as Llama, with factors on embeddings, residuals and logits.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

interface MiniCpmConfig extends ModelConfig {
  embedScale: number;
  residualScale: number;
  logitScale: number;
}

export const minicpm: Arch<MiniCpmConfig> = {
  names: ["minicpm"],
  about: "MiniCPM 1 and 2",

  config(header) {
    const c = readConfig(header, "interleaved");
    const read = readerOf(header);
    return {
      ...c,
      embedScale: read.positiveOr("embedding_scale", 12),
      residualScale: read.positiveOr("residual_scale", 1.4 / Math.sqrt(c.layers)),
      logitScale: read.positiveOr("logit_scale", 256 / c.embed),
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      feedForward: (layer) => gatedWeights(c.embed, c.feedForward, layer, "optional"),
    }),

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, c.embedScale, "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, g.scale(a, c.residualScale, "attn_scaled"), "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      x = g.add(x, g.scale(f, c.residualScale, "ffn_scaled"), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    return { ...outputs, logits: g.scale(outputs.logits, 1 / c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};
