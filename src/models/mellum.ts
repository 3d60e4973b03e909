// Mellum 2: as Qwen 3 with experts, with windows in some layers, which do not scale positions.

import type { Rope } from "../graph/graph.ts";
import type { Arch } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { baseOf, ropeOfBase } from "./rope.ts";
import { readSparse, type SparseConfig } from "./sparse-config.ts";

interface MellumConfig extends SparseConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  windowRope: Rope;
}

export const mellum: Arch<MellumConfig> = {
  names: ["mellum"],
  about: "Mellum 2",

  config(header) {
    const read = readerOf(header);
    const c = readSparse(header, "half", {}, { window: "own" });
    // As in llama.cpp, windows have the base of all layers, regardless of rope.freq_base_swa.
    const { dims, layout } = c.rope;
    const windowRope = ropeOfBase(dims, baseOf(read, "rope.freq_base", 10000), layout);
    return { ...c, windows: read.windowsPerLayer(c.layers, 4, LIMITS.context), windowRope };
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      feedForward: (layer) => moeWeights(c.embed, { ...c.experts, shared: 0 }, layer),
    }),

  forward(g, c, w) {
    const routing = { ...c.routing, gating: "softmax", normalise: true } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : c.rope;
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer, window, rope }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moe(g, w, f, { layer, routing }), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
