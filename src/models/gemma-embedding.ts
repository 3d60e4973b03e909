// EmbeddingGemma: as Gemma 3, but tokens attend in both directions, windows reach half as far to either side, and two matrices
// without a bias may come last. These are linear, so it does not matter that hidden states are pooled after them.

import type { Rope } from "../graph/graph.ts";
import type { Arch, WeightSpec } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { geglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";
import { windowRope } from "./rope.ts";

interface GemmaEmbeddingConfig extends EncoderConfig {
  windows: (number | undefined)[];
  windowRope: Rope;
  /** Columns between the two last matrices; 0: they are not in the file. */
  dense: number;
}

export const gemmaEmbedding: Arch<GemmaEmbeddingConfig> = {
  names: ["gemma-embedding"],
  about: "EmbeddingGemma",

  config(header) {
    const c = readEncoderConfig(header, "half", { window: "own" });
    const read = readerOf(header);
    return {
      ...c,
      windows: read.windowsPerLayer(c.layers, 6, LIMITS.context),
      windowRope: windowRope(read, c.rope, 10000),
      dense: read.count("dense_2_feat_out", LIMITS.size),
    };
  },

  weights: (c) => [
    ...decoderWeights(c, {
      norms: ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"],
      headNorms: true,
    }).map((spec) => (spec.name === "output.weight" ? { ...spec, unread: true } : spec)),
    ...denseWeights(c),
  ],

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
    g.layer(undefined);
    const wanted = g.select(x, "selected"); // [outputs, embed]
    const hidden = rmsNorms(g, w, c, undefined)(wanted, "output_norm"); // [outputs, embed]
    const [wide, narrow] = [w.maybe("dense_2.weight"), w.maybe("dense_3.weight")];
    const widened = wide ? g.matmul(hidden, wide, "dense_2") : hidden; // [outputs, dense]
    return { hidden: narrow ? g.matmul(widened, narrow, "dense_3") : widened }; // [outputs, embed]
  },
};

function denseWeights({ dense, embed }: GemmaEmbeddingConfig): WeightSpec[] {
  if (dense === 0) return [];
  return [
    { name: "dense_2.weight", shape: [dense, embed], optional: true },
    { name: "dense_3.weight", shape: [embed, dense], optional: true },
  ];
}
