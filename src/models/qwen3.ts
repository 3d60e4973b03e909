// Qwen 3 (dense), and the text side of its VL models: as Llama, with a norm of every q and k head before the rotation, and rotary pairs half a head apart.

import type { Arch } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";
import { interleavedSections } from "./rope.ts";

export const qwen3: Arch = {
  names: ["qwen3", "qwen3vl"],
  about: "Qwen 3 (dense), Qwen 3 VL (text)",

  config(header) {
    const c = readConfig(header, "half");
    const read = readerOf(header);
    const hasSections = read.architecture === "qwen3vl";
    return hasSections ? { ...c, rope: interleavedSections(read, c.rope, "required") } : c;
  },

  weights: (c) => decoderWeights(c, { headNorms: true }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
