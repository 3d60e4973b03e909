// OLMo 2 and 3: norms only after each part, and of whole rows of q and k; in OLMo 3, a window in three of four layers, which have
// plain positions where the others are scaled.

import type { Rope } from "../graph/graph.ts";
import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";
import { baseOf, windowRope } from "./rope.ts";

interface Olmo2Config extends ModelConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  /** The rope of the layers with a window. */
  windowRope: Rope;
}

export const olmo2: Arch<Olmo2Config> = {
  names: ["olmo2"],
  about: "OLMo 2 and 3",

  config(header) {
    const c = readConfig(header, "half", { window: "own" });
    const read = readerOf(header);
    const freqBase = baseOf(read, "rope.freq_base", 10000);
    return {
      ...c,
      windows: read.windowsPerLayer(c.layers, 4, LIMITS.context),
      windowRope: windowRope(read, c.rope, freqBase),
    };
  },

  weights: (c) =>
    decoderWeights(c, { norms: ["post_attention_norm", "post_ffw_norm"], headNorms: "rows" }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : c.rope;
      const a = attention(g, w, x, { ...c, layer, window, rope }); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, x, layer); // [tokens, embed]
      x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
