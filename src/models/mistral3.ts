// Mistral 3 and Ministral 3 (text): as Llama, with queries that grow with the length of the text, and perhaps experts.

import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention, type Temperature } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";

interface Mistral3Config extends ModelConfig {
  temperature: Temperature | undefined;
}

export const mistral3: Arch<Mistral3Config> = {
  names: ["mistral3"],
  about: "Mistral 3, Ministral 3, Devstral 2 (text)",

  config(header) {
    const c = readConfig(header, "interleaved", { experts: "optional" });
    const read = readerOf(header);
    const scale = read.between("attention.temperature_scale", 0, 1e3) ?? 0;
    const original = "rope.scaling.original_context_length";
    const span = read.integerOr(original, c.trainedContext, LIMITS.context);
    return { ...c, temperature: scale === 0 ? undefined : { scale, span, offset: 0 } };
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
        ? moe(g, w, f, { layer, routing: { ...routing, used: experts.used } })
        : swiglu(g, w, f, layer); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
