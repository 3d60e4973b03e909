// Deci (Nemotron 51B and 49B): as Llama, with layers that have other numbers of heads, a matrix instead of attention, or none.

import type { Arch, ModelConfig, WeightSpec } from "./arch.ts";
import { LIMITS, readCommon, readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { ropeFromMetadata } from "./rope.ts";

/** Heads and sizes of each layer; 0: it has none of these. */
interface DeciConfig extends ModelConfig {
  layerHeads: number[];
  layerKvHeads: number[];
  layerFeedForward: number[];
}

export const deci: Arch<DeciConfig> = {
  names: ["deci"],
  about: "Nemotron 49B and 51B (Deci)",

  config(header) {
    const read = readerOf(header);
    const common = readCommon(header);
    const { layers, embed } = common;
    const perLayer = (key: string, most: number) => read.integersPerLayer(key, layers, most, 0);
    const layerHeads = perLayer("attention.head_count", LIMITS.heads);
    const layerKvHeads = perLayer("attention.head_count_kv", LIMITS.heads);
    const layerFeedForward = perLayer("feed_forward_length", LIMITS.size);
    const heads = Math.max(...layerHeads);
    if (heads === 0) read.fail("attention.head_count", 0, "a layer with heads");
    layerKvHeads.forEach((kvHeads, i) => {
      if (kvHeads > 0 && (layerHeads[i] === 0 || layerHeads[i]! % kvHeads !== 0)) {
        read.fail(`attention.head_count_kv[${i}]`, kvHeads, `a divisor of ${layerHeads[i]} heads`);
      }
    });
    layerFeedForward.forEach((size, i) => {
      // llama.cpp drops attention's result in such a layer.
      if (size === 0 && layerHeads[i]! > 0) {
        read.fail(`feed_forward_length[${i}]`, 0, "an integer from 1 where the layer has heads");
      }
    });
    const headDim = read.integerOr("attention.key_length", embed / heads, LIMITS.size);
    return {
      ...common,
      heads,
      kvHeads: Math.max(...layerKvHeads),
      headDim,
      feedForward: Math.max(...layerFeedForward),
      rope: ropeFromMetadata(read, headDim, "interleaved"),
      layerHeads,
      layerKvHeads,
      layerFeedForward,
    };
  },

  weights: (c) => [...endWeights(c), ...layerWeights(c, (layer) => weightsOf(c, layer))],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const [heads, kvHeads] = [c.layerHeads[layer]!, c.layerKvHeads[layer]!];
      if (heads > 0) {
        const a = norm(x, "attn_norm"); // [tokens, embed]
        const mixed =
          kvHeads > 0
            ? attention(g, w, a, { ...c, layer, heads, kvHeads })
            : linear(g, w, a, layer, "attn_output"); // [tokens, embed]
        x = g.add(x, mixed, "attn_residual"); // [tokens, embed]
      }
      if (c.layerFeedForward[layer] === 0) continue;
      x = g.add(x, swiglu(g, w, norm(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

function weightsOf(c: DeciConfig, layer: number): WeightSpec[] {
  const [heads, kvHeads] = [c.layerHeads[layer]!, c.layerKvHeads[layer]!];
  const feedForward = c.layerFeedForward[layer]!;
  const mixing =
    kvHeads > 0
      ? attentionWeights({ ...c, heads, kvHeads }, layer, { qkvBias: "optional", headNorms: false })
      : linearWeights(layer, "attn_output", [c.embed, c.embed]);
  return [
    ...(heads > 0 ? [...normWeights(layer, c.embed, ["attn_norm"]), ...mixing] : []),
    ...(feedForward > 0
      ? [
          ...normWeights(layer, c.embed, ["ffn_norm"]),
          ...gatedWeights(c.embed, feedForward, layer, "optional"),
        ]
      : []),
  ];
}
