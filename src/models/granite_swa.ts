// Granite with windows: as Granite, with sinks in every layer, and windows and positions in some.

import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";

interface GraniteSwaConfig extends ModelConfig {
  /** Of each layer. */
  windows: (number | undefined)[];
  /** The layers that have positions. */
  hasRope: boolean[];
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
  embedScale: number;
  residualScale: number;
  /** What logits are divided by. */
  logitScale: number;
}

export const graniteSwa: Arch<GraniteSwaConfig> = {
  names: ["granite_swa"],
  about: "Granite with windows",

  config(header) {
    const c = readConfig(header, "interleaved", { window: "own" });
    const read = readerOf(header);
    return {
      ...c,
      windows: read.windowsPerLayer(c.layers, 1, LIMITS.context),
      hasRope: read.flagsPerLayer("attention.rope_pattern", c.layers, 0),
      scale: read.number("attention.scale") ? read.positive("attention.scale") : undefined,
      embedScale: read.positiveOr("embedding_scale", 1),
      residualScale: read.positiveOr("residual_scale", 1),
      logitScale: read.positive("logit_scale"),
    };
  },

  weights: (c) => [
    ...decoderWeights(c),
    ...Array.from({ length: c.layers }, (_, i) => normWeights(i, c.heads, ["attn_sinks"])).flat(),
  ],

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, c.embedScale, "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const sinks = w.get(`blk.${layer}.attn_sinks.weight`); // [heads]
      const rope = c.hasRope[layer] ? c.rope : undefined;
      const options = { ...c, layer, rope, window: c.windows[layer], sinks };
      const a = attention(g, w, norm(x, "attn_norm"), options); // [tokens, embed]
      x = g.add(x, g.scale(a, c.residualScale, "attn_scaled"), "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      x = g.add(x, g.scale(f, c.residualScale, "ffn_scaled"), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    return { ...outputs, logits: g.scale(outputs.logits, 1 / c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};
