// Laguna: norms of the heads of q and k, attention gated by softplus, windows with a rope of their own in most layers; experts chosen
// by sigmoids with a bias, a shared one, and dense layers first.

import type { Rope } from "../graph/graph.ts";
import type { Arch } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { headsOf, type LayeredConfig, readLayered } from "./layered-config.ts";
import { attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedAttention, gateWeights } from "./parts/gated-attention.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { baseOf, ropeOfBase } from "./rope.ts";

interface LagunaConfig extends LayeredConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  windowRope: Rope;
  /** Whether each layer's gate is for heads; otherwise it is for values. */
  gatesHeads: boolean[];
}

export const laguna: Arch<LagunaConfig> = {
  names: ["laguna"],
  about: "Laguna",

  config(header) {
    const read = readerOf(header);
    const c = readLayered(header, "half", { gating: "sigmoid" });
    if (c.vHeadDim !== c.headDim) {
      read.fail("attention.value_length", c.vHeadDim, `${c.headDim} (as attention.key_length)`);
    }
    const count = read.integerOr("expert_shared_count", 1, LIMITS.experts);
    const base = baseOf(read, "rope.freq_base", 10000);
    const dims = read.integerOr("rope.dimension_count_swa", c.rope.dims, c.headDim);
    return {
      ...c,
      experts: { ...c.experts, shared: c.experts.shared || count * c.experts.feedForward },
      windows: read.windowsPerLayer(c.layers, 4, LIMITS.context, 0, "first"),
      windowRope: ropeOfBase(dims, baseOf(read, "rope.freq_base_swa", base), "half"),
      gatesHeads: c.layerHeads.map((heads, layer) => {
        const gate = header.tensors.get(`blk.${layer}.attn_gate.weight`);
        return gate?.shape[0] === heads;
      }),
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => {
      const own = headsOf(c, layer);
      const gates = c.gatesHeads[layer] ? own.heads : own.heads * c.headDim;
      return [
        ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
        ...attentionWeights({ ...c, ...own }, layer, {
          qkvBias: "optional",
          outputBias: "none",
          headNorms: true,
        }),
        ...gateWeights(c.embed, gates, layer),
        ...moeOrSwigluWeights(c, layer, { choiceBias: "required" }),
      ];
    }),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : c.rope;
      const options = { ...c, ...headsOf(c, layer), layer, window, rope };
      const a = gatedAttention(g, w, norm(x, "attn_norm"), options, "softplus"); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
