// PLaMo 3: norms before and after attention and networks and of heads, q, k and v in one tensor, gate and up in another, and windows
// with a rope of their own in most layers.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Rope } from "../graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { fusedGatedWeights, fusedSwiglu } from "./parts/feed-forward.ts";
import { type Norm, rmsNorms } from "./parts/norms.ts";
import { windowRope } from "./rope.ts";

interface Plamo3Config extends ModelConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  windowRope: Rope;
}

export const plamo3: Arch<Plamo3Config> = {
  names: ["plamo3"],
  about: "PLaMo 3",

  config(header) {
    const read = readerOf(header);
    const c = readConfig(header, "half", { window: "own" });
    return {
      ...c,
      fusedQkv: true,
      windows: read.windowsPerLayer(c.layers, 8, LIMITS.context),
      windowRope: windowRope(read, c.rope, 10000),
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      qkvBias: "none",
      outputBias: "none",
      headNorms: true,
      feedForward: (layer) => [
        ...fusedGatedWeights(c.embed, c.feedForward, layer),
        ...POST_NORMS.map((name) => ({ name: `blk.${layer}.${name}`, shape: [c.embed] })),
      ],
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const post = postNorms(g, w, c, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : c.rope;
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, window, rope }); // [tokens, embed]
      x = g.add(x, post(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = fusedSwiglu(g, w, norm(x, "ffn_norm"), layer, c.feedForward); // [tokens, embed]
      x = g.add(x, post(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

const POST_NORMS = ["post_attention_norm", "post_ffw_norm"];

/** Norms with tensor names without ".weight". */
function postNorms(g: GraphBuilder, w: WeightLookup, c: ModelConfig, layer: number): Norm {
  return (x, name) => g.rmsNorm(x, w.get(`blk.${layer}.${name}`), c.normEps, name);
}
