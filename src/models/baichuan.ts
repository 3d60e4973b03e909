// Baichuan 1 and 2: as Llama; the 13B model has ALiBi instead of rotary positions. As in llama.cpp, the number of layers tells the
// two apart.

import type { Arch } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

/** The layers of the 7B model, which rotates, and of the 13B model, which has ALiBi. */
const [ROTATING_LAYERS, ALIBI_LAYERS] = [32, 40];
/** The strength of ALiBi. */
const ALIBI = 8;

export const baichuan: Arch = {
  names: ["baichuan"],
  about: "Baichuan 1 and 2, 7B and 13B",
  config: (header) => readConfig(header, "interleaved"),

  weights: (c) => decoderWeights(c),

  forward(g, c, w) {
    const rope = c.layers === ROTATING_LAYERS ? c.rope : undefined;
    const alibi = c.layers === ALIBI_LAYERS ? ALIBI : undefined;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, rope, alibi }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
