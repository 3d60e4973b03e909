// Llama as an encoder: tokens attend in both directions, and no output matrix is read.

import type { Arch } from "./arch.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { encoderOutputs } from "./parts/encoder.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";

export const llamaEmbed: Arch<EncoderConfig> = {
  names: ["llama-embed"],
  about: "Llama-Embed-Nemotron",
  config: (header) => readEncoderConfig(header, "interleaved"),
  weights: (c) =>
    decoderWeights(c).map((spec) =>
      spec.name === "output.weight" ? { ...spec, unread: true } : spec,
    ),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      x = g.add(x, f, "ffn_residual"); // [tokens, embed]
    }
    return encoderOutputs(g, w, x, c, (y) => rmsNorms(g, w, c, undefined)(y, "output_norm"));
  },
};
