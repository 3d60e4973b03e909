// OpenELM: as Qwen 3 with q, k and v in one tensor; heads and sizes differ from layer to layer.

import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readCommon, readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { ropeFromMetadata } from "./rope.ts";

interface OpenElmConfig extends ModelConfig {
  layerHeads: number[];
  layerKvHeads: number[];
  layerFeedForward: number[];
}

export const openelm: Arch<OpenElmConfig> = {
  names: ["openelm"],
  about: "OpenELM",

  config(header) {
    const read = readerOf(header);
    const common = readCommon(header);
    const { layers, embed } = common;
    const layerHeads = read.integersPerLayer("attention.head_count", layers, LIMITS.heads);
    const layerKvHeads = read.integersPerLayer("attention.head_count_kv", layers, LIMITS.heads);
    const layerFeedForward = read.integersPerLayer("feed_forward_length", layers, LIMITS.size);
    layerKvHeads.forEach((kvHeads, i) => {
      if (layerHeads[i]! % kvHeads !== 0) {
        read.fail(`attention.head_count_kv[${i}]`, kvHeads, `a divisor of ${layerHeads[i]} heads`);
      }
    });
    const headDim = read.integerOr("attention.key_length", embed / layerHeads[0]!, LIMITS.size);
    return {
      ...common,
      heads: Math.max(...layerHeads),
      kvHeads: Math.max(...layerKvHeads),
      headDim,
      feedForward: Math.max(...layerFeedForward),
      rope: ropeFromMetadata(read, headDim, "half"),
      layerHeads,
      layerKvHeads,
      layerFeedForward,
    };
  },

  weights: (c) => [
    ...endWeights(c, { output: "none" }),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...attentionWeights(
        { ...c, heads: c.layerHeads[layer]!, kvHeads: c.layerKvHeads[layer]! },
        layer,
        { qkvBias: "none", headNorms: true },
      ),
      ...gatedWeights(c.embed, c.layerFeedForward[layer]!, layer),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const [heads, kvHeads] = [c.layerHeads[layer]!, c.layerKvHeads[layer]!];
      const a = attention(g, w, norm(x, "attn_norm"), { ...c, layer, heads, kvHeads }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};
