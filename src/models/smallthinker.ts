// SmallThinker: the router reads the residual before attention, experts are ReLU-gated, and layers have windows and positions,
// or neither.

import type { Arch } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { readSparse, type SparseConfig } from "./sparse-config.ts";

interface SmallThinkerConfig extends SparseConfig {
  /** The window of each layer; undefined: the layer has none. */
  windows: (number | undefined)[];
  /** The layers that have positions. */
  hasRope: boolean[];
}

/** The window that llama.cpp takes, for any size in the file. */
const WINDOW = 4096;

/** The first of this many layers has neither window nor positions. */
const PERIOD = 4;

export const smallthinker: Arch<SmallThinkerConfig> = {
  names: ["smallthinker"],
  about: "SmallThinker",

  config(header) {
    const read = readerOf(header);
    const c = readSparse(header, "half", { normalise: true }, { window: "own" });
    const hasWindows = read.count("attention.sliding_window", LIMITS.context) > 0;
    const period = read.integerOr("attention.sliding_window_pattern", PERIOD, LIMITS.layers);
    const isLocal = Array.from({ length: c.layers }, (_, i) => i % period !== 0);
    return {
      ...c,
      windows: isLocal.map((local) => (hasWindows && local ? WINDOW : undefined)),
      hasRope: isLocal.map((_, i) => !hasWindows || i % PERIOD !== 0),
    };
  },

  weights: (c) =>
    decoderWeights(c, { feedForward: (layer) => moeWeights(c.embed, c.experts, layer) }),

  forward(g, c, w) {
    const { routing } = c;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const routed = x; // [tokens, embed]
      const window = c.windows[layer];
      const rope = c.hasRope[layer] ? c.rope : undefined;
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer, window, rope }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = moe(g, w, f, { layer, routing, routed, activation: "relu" }); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
