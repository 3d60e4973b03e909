// EXAONE 4: norms only after each part, and of each head of q and k. The 32B model, which has 64 layers, has a window in three of
// four layers, and positions only there.

import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

interface Exaone4Config extends ModelConfig {
  /** The window of each layer; undefined: no layer has a window. */
  windows: (number | undefined)[] | undefined;
}

/** Only a model of this many layers has windows. */
const WINDOWED_LAYERS = 64;

export const exaone4: Arch<Exaone4Config> = {
  names: ["exaone4"],
  about: "EXAONE 4",

  config(header) {
    const c = readConfig(header, "half", { window: "own" });
    const read = readerOf(header);
    const isWindowed = c.layers === WINDOWED_LAYERS;
    const windows = isWindowed
      ? read.windowsPerLayer(c.layers, 4, LIMITS.context, 4096)
      : undefined;
    return { ...c, windows };
  },

  weights: (c) =>
    decoderWeights(c, { norms: ["post_attention_norm", "post_ffw_norm"], headNorms: true }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows?.[layer];
      const rope = c.windows === undefined || window ? c.rope : undefined;
      const a = attention(g, w, x, { ...c, layer, window, rope }); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, x, layer); // [tokens, embed]
      x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
