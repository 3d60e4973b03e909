// gpt-oss: biases everywhere, sinks, windows in every second layer, YaRN, and experts with a clamped SwiGLU that the softmax of the
// chosen logits weights.

import type { Arch } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { type SparseConfig, withSparse } from "./sparse-config.ts";

interface GptOssConfig extends SparseConfig {
  /** The window of each layer; undefined: the layer has none. */
  windows: (number | undefined)[];
}

export const gptOss: Arch<GptOssConfig> = {
  names: ["gpt-oss"],
  about: "gpt-oss 20B and 120B",

  config(header) {
    const read = readerOf(header);
    const c = readConfig(header, "half", { experts: "required", window: "own" });
    const window = read.integer("attention.sliding_window", LIMITS.context);
    const windows = read.windowsPerLayer(c.layers, 2, LIMITS.context, window);
    return { ...withSparse(header, c, { gating: "softmax_chosen" }), windows };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "post_attention_norm"],
      qkvBias: "required",
      outputBias: "required",
      feedForward: (layer) => [
        { name: `blk.${layer}.attn_sinks.weight`, shape: [c.heads] },
        ...moeWeights(c.embed, c.experts, layer, { biases: true }),
      ],
    }),

  forward(g, c, w) {
    const { routing } = c;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const sinks = w.get(`blk.${layer}.attn_sinks.weight`); // [heads]
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer, window, sinks }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "post_attention_norm"); // [tokens, embed]
      const out = moe(g, w, f, { layer, routing, activation: "swiglu_oai" }); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
