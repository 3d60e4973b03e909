// Trinity (AFMoE): norms before and after attention and networks, gated attention, windows in most layers and positions only in three
// of four; experts chosen by sigmoids with a bias, a shared one, and dense layers first.

import type { Rope } from "../graph/graph.ts";
import type { Arch } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedAttention, gateWeights } from "./parts/gated-attention.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { baseOf, ropeFromMetadata } from "./rope.ts";
import { countedShared, readSparse, type SparseConfig } from "./sparse-config.ts";

interface AfmoeConfig extends SparseConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  windowRope: Rope;
}

/** The last of this many layers has no positions, as in llama.cpp. */
const ROPE_PERIOD = 4;

export const afmoe: Arch<AfmoeConfig> = {
  names: ["afmoe"],
  about: "Trinity (AFMoE)",

  config(header) {
    const read = readerOf(header);
    const c = readSparse(header, "half", { gating: "sigmoid" }, { window: "own" });
    const base = baseOf(read, "rope.freq_base", 10000);
    const windowBase = baseOf(read, "rope.freq_base_swa", base);
    return {
      ...c,
      experts: countedShared(header, c.experts),
      windows: read.windowsPerLayer(c.layers, 4, LIMITS.context),
      windowRope: ropeFromMetadata(read, c.headDim, "half", windowBase),
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"],
      headNorms: true,
      outputBias: "none",
      feedForward: (layer) => [
        ...gateWeights(c.embed, c.heads * c.headDim, layer),
        ...moeOrSwigluWeights(c, layer, { choiceBias: "required" }),
      ],
    }),

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, Math.sqrt(c.embed), "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const hasRope = (layer + 1) % ROPE_PERIOD !== 0;
      const rope = hasRope ? (window ? c.windowRope : c.rope) : undefined;
      const options = { ...c, layer, window, rope };
      const a = gatedAttention(g, w, norm(x, "attn_norm"), options, "sigmoid"); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = moeOrSwiglu(g, w, norm(x, "ffn_norm"), layer, c); // [tokens, embed]
      x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
