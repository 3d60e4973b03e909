// Nanbeige with loops: as Llama, with all layers computed several times, each time with a KV cache of its own.

import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

interface NanbeigeConfig extends ModelConfig {
  /** The number of times that the layers are computed. */
  loops: number;
  /** The last norm also comes between loops. */
  normsLoops: boolean;
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
}

export const nanbeige: Arch<NanbeigeConfig> = {
  names: ["nanbeige"],
  about: "Nanbeige with loops",

  config(header) {
    const c = readConfig(header, "interleaved");
    const read = readerOf(header);
    return {
      ...c,
      loops: read.integerOr("num_loops", 1, Math.floor(LIMITS.layers / c.layers)),
      normsLoops: !(read.boolean("skip_loop_final_norm") ?? false),
      scale: read.number("attention.scale") ? read.positive("attention.scale") : undefined,
    };
  },

  weights: (c) => decoderWeights(c),

  forward(g, c, w) {
    const { layers, kvHeads, headDim } = c;
    const cols = kvHeads * headDim;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let at = 0; at < layers * c.loops; at++) {
      g.layer(at);
      const layer = at % layers; // the layer with the weights that are used
      if (at > 0 && layer === 0 && c.normsLoops) {
        x = rmsNorms(g, w, c, undefined)(x, "output_norm"); // [tokens, embed]
      }
      const norm = rmsNorms(g, w, c, layer);
      const state = g.state({ kind: "kv", layer: at, kCols: cols, vCols: cols });
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer, state }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
