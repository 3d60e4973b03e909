// Granite 4 H: layers of Mamba 2 and a few of attention, dense or with experts, with Granite's factors on embeddings, scores,
// residuals and logits.

import type { Arch } from "./arch.ts";
import { readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { mamba2, mamba2Weights } from "./parts/mamba.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { type HybridConfig, readHeadSsm, readHybrid, type SsmConfig } from "./recurrent-config.ts";

interface GraniteHybridConfig extends HybridConfig {
  ssm: SsmConfig;
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
  embedScale: number;
  residualScale: number;
  /** The divisor of logits. */
  logitScale: number;
  hasRope: boolean;
}

export const graniteHybrid: Arch<GraniteHybridConfig> = {
  names: ["granitehybrid"],
  about: "Granite 4 H, also with experts",

  config(header) {
    const read = readerOf(header);
    // 0 in the file means that there is no factor.
    const factor = (key: string) => (read.number(key) ? read.positive(key) : undefined);
    return {
      ...readHybrid(header, "interleaved", { experts: "optional" }),
      ssm: readHeadSsm(read),
      scale: factor("attention.scale"),
      embedScale: factor("embedding_scale") ?? 1,
      residualScale: factor("residual_scale") ?? 1,
      logitScale: factor("logit_scale") ?? 1,
      hasRope: read.boolean("rope.scaling.finetuned") ?? true,
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => {
      const kvHeads = c.kvHeadsOf[layer]!;
      const extras = { qkvBias: "optional", headNorms: false } as const;
      return [
        ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
        ...(kvHeads === 0
          ? mamba2Weights(c.embed, c.ssm, layer, "required")
          : attentionWeights({ ...c, kvHeads, fusedQkv: false }, layer, extras)),
        ...(c.experts
          ? moeWeights(c.embed, c.experts, layer)
          : gatedWeights(c.embed, c.feedForward, layer, "optional")),
      ];
    }),
  ],

  forward(g, c, w) {
    const { experts } = c;
    const routing = { gating: "softmax", normalise: true, scale: 1 } as const;
    const rope = c.hasRope ? c.rope : undefined;
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, c.embedScale, "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const kvHeads = c.kvHeadsOf[layer]!;
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const mixed =
        kvHeads === 0
          ? mamba2(g, w, a, { ...c, layer })
          : attention(g, w, a, { ...c, kvHeads, fusedQkv: false, rope, layer }); // [tokens, embed]
      x = g.add(x, g.scale(mixed, c.residualScale, "attn_scaled"), "attn_residual"); // [tokens, embed]
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
