// Ling 3: linear attention by the delta rule with bounded decays (KDA), every few layers gated attention over a compressed cache, and
// experts, perhaps with limited values. Layers that predict further tokens are not computed.

import type { Arch } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";
import { type KimiConfig, readGateBound, readKimi } from "./kimi-config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, limitedSwiglu } from "./parts/feed-forward.ts";
import { kda, kdaWeights } from "./parts/kda.ts";
import { latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { limitsOf } from "./sparse-config.ts";

interface Bailing3Config extends KimiConfig {
  normalise: boolean;
  /** The limit of each layer; undefined: values are not limited. */
  expertLimits: (number | undefined)[];
  sharedLimits: (number | undefined)[];
}

export const bailingmoe3: Arch<Bailing3Config> = {
  names: ["bailingmoe3"],
  about: "Ling 3, Ring 3",

  config(header) {
    const read: ConfigReader = readerOf(header);
    const least = readGateBound(header);
    if (least === undefined) read.fail("kda.gate_lower_bound", undefined, "a number below 0");
    if (read.boolean("kda.safe_gate") === false) read.fail("kda.safe_gate", false, "true");
    const c = readKimi(header, {
      decayFactors: 1,
      gate: ["ssm_g_a"],
      bound: { least, isNegated: false },
      rope: "interleaved",
      qRank: read.count("attention.q_lora_rank", LIMITS.size),
    });
    const shared = read.count("expert_shared_feed_forward_length", LIMITS.size);
    return {
      ...c,
      experts: { ...c.experts!, ...(shared > 0 && { shared }) },
      attention: { ...c.attention, gate: "heads" },
      normalise: read.boolean("expert_weights_norm") ?? false,
      expertLimits: limitsOf(header, c.layers, "swiglu_clamp_exp"),
      sharedLimits: limitsOf(header, c.layers, "swiglu_clamp_shexp"),
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...(c.isRecurrent[layer]
        ? kdaWeights(c.embed, layer, c.kda)
        : latentWeights(c.embed, layer, c.attention)),
      ...(layer < c.denseLayers
        ? gatedWeights(c.embed, c.feedForward, layer)
        : moeWeights(c.embed, c.experts!, layer, { choiceBias: "required" })),
    ]),
  ],

  forward(g, c, w) {
    const { used } = c.experts!;
    const routing = { used, gating: c.gating, normalise: c.normalise, scale: c.expertScale };
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const mixed = c.isRecurrent[layer]
        ? kda(g, w, a, layer, c.kda)
        : latentAttention(g, w, a, layer, c.attention); // [tokens, embed]
      x = g.add(x, mixed, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const [limit, sharedLimit] = [c.expertLimits[layer], c.sharedLimits[layer]];
      const out =
        layer < c.denseLayers
          ? limitedSwiglu(g, w, f, layer, sharedLimit)
          : moe(g, w, f, { layer, routing, limit, sharedLimit }); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
