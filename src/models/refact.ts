// Refact 1.6B: as Llama, with ALiBi instead of rotary positions.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

/** The strength of ALiBi. */
const ALIBI = 8;

export const refact: Arch = {
  names: ["refact"],
  about: "Refact 1.6B",
  config: (header) => readConfig(header, "interleaved"),

  weights: (c) => decoderWeights(c),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const options = { ...c, layer, rope: undefined, alibi: ALIBI };
      const a = attention(g, w, norm(x, "attn_norm"), options); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
