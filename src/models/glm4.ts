// GLM 4 (0414) and the text side of GLM-4V: norms before and after each part, gate and up in one tensor, half of a head rotated.

import type { Arch } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { fusedGatedWeights, fusedSwiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";
import { textSections } from "./rope.ts";

export const glm4: Arch = {
  names: ["glm4"],
  about: "GLM 4 0414, GLM-4V (text)",

  config(header) {
    const read = readerOf(header);
    // Positions in several dimensions come with pairs half a head apart.
    const hasSections = header.metadata.has(`${read.architecture}.rope.dimension_sections`);
    const c = readConfig(header, hasSections ? "half" : "interleaved");
    return { ...c, rope: textSections(read, c.rope) };
  },

  weights: (c) =>
    decoderWeights(c, {
      norms: ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"],
      feedForward: (layer) => fusedGatedWeights(c.embed, c.feedForward, layer),
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = fusedSwiglu(g, w, norm(x, "ffn_norm"), layer, c.feedForward); // [tokens, embed]
      x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
