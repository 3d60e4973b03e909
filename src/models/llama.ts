// Llama 1, 2 and 3, Mistral, Mixtral, TinyLlama, SmolLM and every model that calls itself "llama" or computes the same: RMS norm,
// rotary positions (GGUF stores q and k permuted, so pairs are interleaved), grouped-query attention, and a SiLU-gated feed-forward
// network or a mixture of such. ReluLLaMA and ProSparse's models name a ReLU instead.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { type Gating, readBothGates } from "./gating.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gated, gatedWeights } from "./parts/feed-forward.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";

interface LlamaConfig extends ModelConfig {
  gating: Gating;
}

export const llama: Arch<LlamaConfig> = {
  names: ["llama", "internlm2", "xverse", "ernie4_5"],
  about:
    "Llama 1 to 3, Mistral, Mixtral, Bamboo, TinyLlama, SmolLM 1 and 2, InternLM 2 and 3, XVERSE, ERNIE 4.5 (dense)",

  config(header) {
    const read = readerOf(header);
    const c = readConfig(header, "interleaved", { experts: "optional" });
    const gating = readBothGates(read, "silu");
    if (c.experts && gating.ofUp) {
      read.fail("hidden_activation", '"drelu"', "the activation of the gate alone: it has experts");
    }
    return { ...c, gating };
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
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = experts
        ? moe(g, w, f, {
            layer,
            routing: { ...routing, used: experts.used },
            activation: c.gating.activation,
          })
        : gated(g, w, f, layer, c.gating.activation, c.gating.ofUp);
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
