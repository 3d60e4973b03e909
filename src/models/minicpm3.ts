// MiniCPM 3: multi-head latent attention, and factors on embeddings, residuals and logits.

import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readCommon, readerOf } from "./config.ts";
import { readLatent } from "./latent-config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { type LatentShape, latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { ropeFactors } from "./parts/rope-factors.ts";

interface MiniCpm3Config extends ModelConfig {
  attention: LatentShape;
}

/** Not in the file, as in llama.cpp. */
const EMBED_SCALE = 12;
const DEPTH_SCALE = 1.4;
const BASE_EMBED = 256;

export const minicpm3: Arch<MiniCpm3Config> = {
  names: ["minicpm3"],
  about: "MiniCPM 3",

  config(header) {
    const read = readerOf(header);
    const qRank = read.integer("attention.q_lora_rank", LIMITS.size);
    return { ...readCommon(header), ...readLatent(read, "half", qRank) };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...latentWeights(c.embed, layer, c.attention),
      ...gatedWeights(c.embed, c.feedForward, layer),
    ]),
  ],

  forward(g, c, w) {
    const shape = { ...c.attention, ropeFactors: ropeFactors(w, c) };
    const scale = DEPTH_SCALE / Math.sqrt(c.layers);
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, EMBED_SCALE, "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = latentAttention(g, w, norm(x, "attn_norm"), layer, shape); // [tokens, embed]
      x = g.add(x, g.scale(a, scale, "attn_scaled"), "attn_residual"); // [tokens, embed]
      const f = swiglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      x = g.add(x, g.scale(f, scale, "ffn_scaled"), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    const logits = g.scale(outputs.logits, BASE_EMBED / c.embed, "logits_scaled"); // [logits, vocab]
    return { ...outputs, logits };
  },
};
