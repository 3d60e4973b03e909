// Qwen 3 with experts, and the text side of its VL models: as Qwen 3, with a mixture of experts with weights that add up to 1.

import type { Arch } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";
import { interleavedSections } from "./rope.ts";

export const qwen3moe: Arch = {
  names: ["qwen3moe", "qwen3vlmoe"],
  about: "Qwen 3 with experts, Qwen 3 VL with experts (text)",

  config(header) {
    const c = readConfig(header, "half", { experts: "required" });
    const read = readerOf(header);
    const hasSections = read.architecture === "qwen3vlmoe";
    return hasSections ? { ...c, rope: interleavedSections(read, c.rope, "required") } : c;
  },

  weights: (c) =>
    decoderWeights(c, {
      headNorms: true,
      feedForward: (layer) => moeWeights(c.embed, c.experts!, layer),
    }),

  forward(g, c, w) {
    const routing = {
      used: c.experts!.used,
      gating: "softmax",
      normalise: true,
      scale: 1,
    } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moe(g, w, f, { layer, routing }), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
