// Granite 3 and 4 (dense, and mixtures of experts without recurrent layers): as Llama, with factors on embeddings, scores,
// residuals and logits.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";

interface GraniteConfig extends ModelConfig {
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
  embedScale: number;
  residualScale: number;
  /** The divisor of logits. */
  logitScale: number;
  hasRope: boolean;
}

export const granite: Arch<GraniteConfig> = {
  names: ["granite", "granitemoe"],
  about: "Granite 3 and 4 (without recurrent layers), also with experts",

  config(header) {
    const read = readerOf(header);
    return {
      ...readConfig(header, "interleaved", { experts: "optional" }),
      scale: read.number("attention.scale") ? read.positive("attention.scale") : undefined,
      embedScale: read.positiveOr("embedding_scale", 1),
      residualScale: read.positiveOr("residual_scale", 1),
      logitScale: read.positive("logit_scale"),
      hasRope: read.boolean("rope.scaling.finetuned") ?? true,
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      feedForward: (layer) =>
        c.experts
          ? moeWeights(c.embed, c.experts, layer)
          : gatedWeights(c.embed, c.feedForward, layer, "optional"),
    }),

  forward(g, c, w) {
    const { experts } = c;
    const routing = { gating: "softmax", normalise: true, scale: 1 } as const;
    const rope = c.hasRope ? c.rope : undefined;
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, c.embedScale, "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, rope }); // [tokens, embed]
      x = g.add(x, g.scale(a, c.residualScale, "attn_scaled"), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = experts
        ? moe(g, w, f, { layer, routing: { ...routing, used: experts.used } })
        : swiglu(g, w, f, layer); // [tokens, embed]
      x = g.add(x, g.scale(out, c.residualScale, "ffn_scaled"), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    return { ...outputs, logits: g.scale(outputs.logits, 1 / c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};
