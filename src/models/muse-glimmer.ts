// Muse Glimmer: norms before and after attention and networks, gated attention, windows in most layers and positions only there, and
// logits that are scaled and capped.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Rope } from "../graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { gatedAttention, gateWeights } from "./parts/gated-attention.ts";
import { type Norm, ones, rmsNorms } from "./parts/norms.ts";
import { baseOf, windowRope } from "./rope.ts";

interface MuseGlimmerConfig extends ModelConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  windowRope: Rope;
  logitScale: number;
  /** undefined: logits are not capped. */
  logitSoftcap: number | undefined;
}

/** The epsilon of the norms after attention and networks, regardless of the file, as in llama.cpp. */
const POST_EPS = 1e-8;

export const museGlimmer: Arch<MuseGlimmerConfig> = {
  names: ["muse-glimmer"],
  about: "Muse Glimmer",

  config(header) {
    const read = readerOf(header);
    const c = readConfig(header, "interleaved", { window: "own" });
    const window = read.integer("attention.sliding_window", LIMITS.context);
    const softcap = "final_logit_softcapping";
    return {
      ...c,
      windows: read.windowsPerLayer(c.layers, 4, LIMITS.context, window),
      windowRope: windowRope(read, c.rope, baseOf(read, "rope.freq_base", 10000)),
      logitScale: read.positive("logit_scale"),
      logitSoftcap: read.number(softcap) ? read.positive(softcap) : undefined,
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"],
      headNorms: true,
      outputBias: "none",
      feedForward: (layer) => [
        ...gateWeights(c.embed, c.heads * c.headDim, layer),
        ...gatedWeights(c.embed, c.feedForward, layer),
      ],
    }),

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.rmsNorm(embedded, ones(g, c.embed), c.normEps, "embed_norm"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const post = postNorms(g, w, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : undefined;
      const options = { ...c, layer, window, rope };
      const a = gatedAttention(g, w, norm(x, "attn_norm"), options, "sigmoid"); // [tokens, embed]
      x = g.add(x, post(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      x = g.add(x, post(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    const logits = g.scale(outputs.logits, c.logitScale, "logits_scaled"); // [logits, vocab]
    if (c.logitSoftcap === undefined) return { ...outputs, logits };
    return { ...outputs, logits: g.softcap(logits, c.logitSoftcap, "logits_capped") }; // [logits, vocab]
  },
};

function postNorms(g: GraphBuilder, w: WeightLookup, layer: number): Norm {
  return rmsNorms(g, w, { normEps: POST_EPS }, layer);
}
