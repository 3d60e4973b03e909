// Step 3.5: attention with a gate for each head, windows with other heads and a rope of their own, which elsewhere turns half as many
// values; experts chosen by sigmoids with a bias, and a shared one, both perhaps with limited values; a dense network in some layers.
// Layers that predict further tokens are not computed.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Rope, Value } from "../graph/graph.ts";
import { rowsOf } from "../graph/weight-source.ts";
import type { Arch, WeightLookup } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { headsOf, type LayeredConfig, readLayered } from "./layered-config.ts";
import { attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { gatedAttention, gateWeights } from "./parts/gated-attention.ts";
import { moe, moeOrSwigluWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { ropeFactors } from "./parts/rope-factors.ts";
import { baseOf, ropeFromMetadata, windowRope } from "./rope.ts";
import { limitsOf, sparseByRouter } from "./sparse-config.ts";

interface Step35Config extends LayeredConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  windowRope: Rope;
  /** The limits of gates and ups in each layer, of experts and of the shared one; undefined: they are not limited. */
  expertLimits: (number | undefined)[];
  sharedLimits: (number | undefined)[];
}

export const step35: Arch<Step35Config> = {
  names: ["step35"],
  about: "Step 3.5",

  config(header) {
    const read = readerOf(header);
    const c = readLayered(header, "half", { gating: "sigmoid" });
    const window = read.integer("attention.sliding_window", LIMITS.context);
    const base = baseOf(read, "rope.freq_base", 10000);
    const dims = c.rope.dims / 2; // of layers without a window
    if (dims % 2 !== 0) read.fail("rope.dimension_count", c.rope.dims, "a multiple of 4");
    if (c.experts.shared === 0) {
      read.fail("expert_shared_feed_forward_length", 0, "an integer from 1");
    }
    return {
      ...c,
      rope: ropeFromMetadata(read, c.headDim, "half", base, dims),
      sparse: sparseByRouter(header, c.layers),
      windows: read.windowsPerLayer(c.layers, 0, LIMITS.context, window),
      windowRope: windowRope(read, c.rope, 10000),
      expertLimits: limitsOf(header, c.layers, "swiglu_clamp_exp"),
      sharedLimits: limitsOf(header, c.layers, "swiglu_clamp_shexp"),
    };
  },

  weights: (c) => [
    // The factors of rope are for as many values as windows turn; other layers use the first half.
    ...endWeights({ ...c, rope: c.windowRope }),
    ...layerWeights(c, (layer) => {
      const own = headsOf(c, layer);
      const gates = gateWeights(c.embed, own.heads, layer);
      return [
        ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
        ...attentionWeights({ ...c, ...own, fusedQkv: false }, layer, {
          qkvBias: "none",
          outputBias: "none",
          headNorms: true,
          headNormPresence: "optional",
        }),
        ...gates.map((spec) => ({ ...spec, optional: true })),
        ...(c.sparse[layer]
          ? moeOrSwigluWeights(c, layer, { choiceBias: "optional" })
          : gatedWeights(c.embed, c.feedForward, layer, "optional")),
      ];
    }),
  ],

  forward(g, c, w) {
    const factors = ropeFactors(w, c);
    const first = factors && rowsOf(factors, 0, c.rope.dims / 2); // [dims / 2]
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const turned = window
        ? { rope: c.windowRope, ropeFactors: "none" as const }
        : { rope: c.rope, ropeFactors: first ?? ("none" as const) };
      const options = { ...c, ...headsOf(c, layer), ...turned, layer, window, fusedQkv: false };
      const a = gatedAttention(g, w, norm(x, "attn_norm"), options, "sigmoid"); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = c.sparse[layer] ? mixture(g, w, f, layer, c) : swiglu(g, w, f, layer); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

function mixture(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  { routing, expertLimits, sharedLimits }: Step35Config,
): Value {
  const limits = { limit: expertLimits[layer], sharedLimit: sharedLimits[layer] };
  return moe(g, w, x, { layer, routing, ...limits });
}
