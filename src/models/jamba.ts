// Jamba: layers of Mamba 1, with norms of its steps, keys and queries, and a few of attention without rope; every other layer
// has experts.

import type { Arch } from "./arch.ts";
import { readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { mamba, mambaWeights } from "./parts/mamba.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { type HybridConfig, readHybrid, readSsm, type SsmConfig } from "./recurrent-config.ts";

interface JambaConfig extends HybridConfig {
  ssm: SsmConfig;
  hasExperts: readonly boolean[];
}

export const jamba: Arch<JambaConfig> = {
  names: ["jamba"],
  about: "Jamba, also with experts",

  config(header) {
    const c = readHybrid(header, "half", { experts: "optional" });
    const hasExperts = Array.from({ length: c.layers }, (_, layer) =>
      header.tensors.has(`blk.${layer}.ffn_gate_inp.weight`),
    );
    return { ...c, ssm: readSsm(readerOf(header)), hasExperts };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...(c.kvHeadsOf[layer] === 0
        ? mambaWeights(c.embed, c.ssm, layer, "required")
        : attentionWeights({ ...c, kvHeads: c.kvHeadsOf[layer]!, fusedQkv: false }, layer, {
            qkvBias: "none",
            headNorms: false,
          })),
      ...(c.hasExperts[layer] && c.experts
        ? moeWeights(c.embed, c.experts, layer)
        : gatedWeights(c.embed, c.feedForward, layer)),
    ]),
  ],

  forward(g, c, w) {
    const routing = { gating: "softmax", normalise: false, scale: 1 } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const kvHeads = c.kvHeadsOf[layer]!;
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const mixed =
        kvHeads === 0
          ? mamba(g, w, a, { ...c, layer })
          : attention(g, w, a, { ...c, kvHeads, fusedQkv: false, rope: undefined, layer }); // [tokens, embed]
      x = g.add(x, mixed, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out =
        c.hasExperts[layer] && c.experts
          ? moe(g, w, f, { layer, routing: { ...routing, used: c.experts.used } })
          : swiglu(g, w, f, layer); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
