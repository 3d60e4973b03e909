// Grok 1 and 2: norms after attention and after the feed-forward part, GELU-gated experts, in Grok 2 beside a dense network, and
// caps on scores and logits.

import type { Arch } from "./arch.ts";
import { readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, geglu } from "./parts/feed-forward.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { readSparse, type SparseConfig } from "./sparse-config.ts";

interface GrokConfig extends SparseConfig {
  /** Factor on the scores. */
  scale: number;
  /** Cap on the scores. */
  softcap: number;
  embedScale: number;
  logitScale: number;
  /** undefined: none. */
  logitSoftcap: number | undefined;
  hasDense: boolean;
  /** The name of the norm after the feed-forward part. */
  lastNorm: string;
}

export const grok: Arch<GrokConfig> = {
  names: ["grok"],
  about: "Grok 1 and 2",

  config(header) {
    const read = readerOf(header);
    const c = readSparse(header, "half", { normalise: true });
    const finalCap = "final_logit_softcapping";
    // Older files have none of these keys: llama.cpp's defaults are Grok 1's.
    return {
      ...c,
      scale: read.positiveOr("attention.output_scale", 0.08838834764831845),
      softcap: read.positiveOr("attn_logit_softcapping", 30),
      embedScale: read.positiveOr("embedding_scale", 78.38367176906169),
      logitScale: read.positiveOr("logit_scale", 0.5773502691896257),
      logitSoftcap: read.number(finalCap) ? read.positive(finalCap) : undefined,
      hasDense: header.tensors.has("blk.0.ffn_up.weight"),
      lastNorm: header.tensors.has("blk.0.layer_output_norm.weight")
        ? "layer_output_norm"
        : "post_ffw_norm",
    };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "attn_output_norm", "ffn_norm", c.lastNorm],
      feedForward: (layer) => [
        ...moeWeights(c.embed, c.experts, layer),
        ...(c.hasDense ? gatedWeights(c.embed, c.feedForward, layer) : []),
      ],
    }),

  forward(g, c, w) {
    const { routing, logitSoftcap } = c;
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, c.embedScale, "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, norm(a, "attn_output_norm"), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      let out = moe(g, w, f, { layer, routing, activation: "gelu" }); // [tokens, embed]
      if (c.hasDense) {
        const both = g.add(geglu(g, w, f, layer), out, "ffn_both"); // [tokens, embed]
        out = g.scale(both, Math.SQRT1_2, "ffn_mean"); // [tokens, embed]
      }
      x = g.add(x, norm(out, c.lastNorm), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    const logits = g.scale(outputs.logits, c.logitScale, "logits_scaled"); // [logits, vocab]
    const capped = logitSoftcap ? g.softcap(logits, logitSoftcap, "logits_capped") : logits;
    return { ...outputs, logits: capped }; // [logits, vocab]
  },
};
