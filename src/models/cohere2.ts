// Command R7B and A: attention and a gated network beside each other, behind one LayerNorm without bias. Three of four layers have
// a window and positions, the others neither.

import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

interface Cohere2Config extends ModelConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  logitScale: number;
}

export const cohere2: Arch<Cohere2Config> = {
  names: ["cohere2"],
  about: "Command R7B, Command A",

  config(header) {
    const c = readConfig(header, "interleaved", { norm: "layer", window: "own" });
    const read = readerOf(header);
    const window = read.integer("attention.sliding_window", LIMITS.context);
    return {
      ...c,
      windows: read.windowsPerLayer(c.layers, 4, LIMITS.context, window),
      logitScale: read.positive("logit_scale"),
    };
  },

  weights: (c) => decoderWeights(c, { norms: ["attn_norm"], output: "none" }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const a = layerNorms(g, w, c, layer)(x, "attn_norm"); // [tokens, embed]
      const window = c.windows[layer];
      const rope = window ? c.rope : undefined;
      const attended = attention(g, w, a, { ...c, layer, window, rope }); // [tokens, embed]
      const fed = g.add(swiglu(g, w, a, layer), x, "ffn_residual"); // [tokens, embed]
      x = g.add(fed, attended, "attn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
    return { ...outputs, logits: g.scale(outputs.logits, c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};
