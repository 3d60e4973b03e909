// NeoBERT: RMS norms before each half of a layer, rotary positions, q, k and v in one tensor, a SiLU-gated network with gate and up
// in one tensor; tokens attend in both directions.

import type { Arch } from "./arch.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { classifierWeights } from "./parts/classifier.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { encoderOutputs } from "./parts/encoder.ts";
import { fusedGatedWeights, fusedSwiglu } from "./parts/feed-forward.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";

export const neoBert: Arch<EncoderConfig> = {
  names: ["neo-bert"],
  about: "NeoBERT",
  config: (header) => readEncoderConfig(header, "interleaved"),

  weights: (c) => [
    { name: "token_embd.weight", shape: [c.vocabSize, c.embed] },
    { name: "enc.output_norm.weight", shape: [c.embed] },
    ...classifierWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...attentionWeights(c, layer, { qkvBias: "none", outputBias: "none", headNorms: false }),
      ...fusedGatedWeights(c.embed, c.feedForward, layer),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = fusedSwiglu(g, w, norm(x, "ffn_norm"), layer, c.feedForward); // [tokens, embed]
      x = g.add(x, f, "ffn_residual"); // [tokens, embed]
    }
    return encoderOutputs(g, w, x, c, (y) => rmsNorms(g, w, c, undefined)(y, "enc.output_norm"));
  },
};
