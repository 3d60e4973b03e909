// Gemma 2: norms before and after each part, a window in every other layer, softcaps on scores and logits, a GELU gate.

import type { Rope } from "../graph/graph.ts";
import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { geglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";
import { windowRope } from "./rope.ts";

interface Gemma2Config extends ModelConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  /** The rope of the layers with a window. */
  windowRope: Rope;
  /** Factor on the scores. */
  scale: number;
  /** The softcap of the scores: attention() reads it under this name. */
  softcap: number;
  /** The softcap of the logits. */
  logitSoftcap: number;
}

export const gemma2: Arch<Gemma2Config> = {
  names: ["gemma2"],
  about: "Gemma 2",

  config(header) {
    const c = readConfig(header, "half", { window: "own" });
    const read = readerOf(header);
    const hasOwnBase = read.number("rope.freq_base_swa") !== undefined;
    // The 27B model, which has 46 layers, scales by the size that heads would have if they made up the embedding.
    const scaled = c.layers === 46 ? c.embed / c.heads : c.headDim;
    return {
      ...c,
      windows: read.windowsPerLayer(c.layers, 2, LIMITS.context, 4096),
      windowRope: hasOwnBase ? windowRope(read, c.rope, 10000) : c.rope,
      scale: 1 / Math.sqrt(scaled),
      softcap: read.positiveOr("attn_logit_softcapping", 50),
      logitSoftcap: read.positiveOr("final_logit_softcapping", 30),
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"],
      output: "none",
    }),

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, Math.sqrt(c.embed), "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : c.rope;
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, window, rope }); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = geglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    return { ...outputs, logits: g.softcap(outputs.logits, c.logitSoftcap, "logits_capped") }; // [logits, vocab]
  },
};
