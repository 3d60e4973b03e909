// MPT: ALiBi or learned positions, LayerNorm mostly without bias, q, k and v in one tensor and perhaps clamped or normed, a plain
// GELU network.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

interface MptConfig extends ModelConfig {
  /** undefined: q, k and v are not clamped. */
  clamp: number | undefined;
  /** undefined: there is no ALiBi. */
  alibi: number | undefined;
}

export const mpt: Arch<MptConfig> = {
  names: ["mpt"],
  about: "MPT 7B and 30B",

  config(header) {
    const read = readerOf(header);
    const [clamp, alibi] = ["attention.clamp_kqv", "attention.max_alibi_bias"];
    return {
      ...readConfig(header, "half", { norm: "layer" }),
      clamp: read.number(clamp) ? read.positive(clamp) : undefined,
      alibi: read.number(alibi) ? read.positive(alibi) : undefined,
    };
  },

  weights: (c) => [
    { name: "position_embd.weight", shape: [c.trainedContext, c.embed], optional: true },
    ...decoderWeights(c, {
      normBias: "optional",
      headNorms: "rows",
      headNormPresence: "optional",
      feedForward: (layer) => [
        ...mlpWeights(c.embed, c.feedForward, layer, "optional"),
        { name: `blk.${layer}.attn_q_norm.bias`, shape: [c.heads * c.headDim], optional: true },
        { name: `blk.${layer}.attn_k_norm.bias`, shape: [c.kvHeads * c.headDim], optional: true },
      ],
    }),
  ],

  forward(g, c, w) {
    const positions = w.maybe("position_embd.weight");
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    if (positions) x = g.add(x, g.embedPositions(positions, "positions"), "embed_positions"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const options = { ...c, layer, rope: undefined, headNorm: "layer" as const };
      const a = attention(g, w, norm(x, "attn_norm"), options); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, mlp(g, w, f, layer, "gelu"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, layerNorms(g, w, c, undefined));
  },
};
