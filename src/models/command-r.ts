// Command R and R+: attention and a gated network beside each other, behind one LayerNorm without bias. R+, which has 64 layers,
// has a norm of each head of q and k.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

interface CommandRConfig extends ModelConfig {
  /** undefined: logits are not scaled. */
  logitScale: number | undefined;
}

/** Models of this many layers and more have norms of heads. */
const NORMED_LAYERS = 64;

export const commandR: Arch<CommandRConfig> = {
  names: ["command-r"],
  about: "Command R, Command R+, Aya",

  config(header) {
    const read = readerOf(header);
    const logitScale = read.number("logit_scale") ? read.positive("logit_scale") : undefined;
    return { ...readConfig(header, "interleaved", { norm: "layer" }), logitScale };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm"],
      headNorms: c.layers >= NORMED_LAYERS ? "own" : false,
      output: "none",
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const a = layerNorms(g, w, c, layer)(x, "attn_norm"); // [tokens, embed]
      const attended = attention(g, w, a, { ...c, layer, headNorm: "layer" }); // [tokens, embed]
      const fed = g.add(swiglu(g, w, a, layer), x, "ffn_residual"); // [tokens, embed]
      x = g.add(fed, attended, "attn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
    if (c.logitScale === undefined) return outputs;
    return { ...outputs, logits: g.scale(outputs.logits, c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};
