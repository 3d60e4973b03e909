// Talkie: norms without weights, a factor for each head of q after its norm, and the embeddings added again after every layer.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attentionWeights, projectQkv } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { linear } from "./parts/linear.ts";
import { flat } from "./parts/mamba.ts";
import { ones } from "./parts/norms.ts";
import { repeated } from "./parts/repeat.ts";

interface TalkieConfig extends ModelConfig {
  logitScale: number;
}

export const talkie: Arch<TalkieConfig> = {
  names: ["talkie"],
  about: "Talkie",

  config(header) {
    const logitScale = readerOf(header).positive("logit_scale");
    return { ...readConfig(header, "half"), logitScale };
  },

  weights: (c) => [
    ...endWeights(c, { outputNorm: "none", output: "required" }),
    ...layerWeights(c, (layer) => [
      ...attentionWeights(c, layer, {
        qkvBias: "optional",
        outputBias: "none",
        headNorms: false,
      }),
      { name: `blk.${layer}.attn_q_norm.weight`, shape: [c.heads, 1] },
      ...gatedWeights(c.embed, c.feedForward, layer),
      { name: `blk.${layer}.layer_output_scale.weight`, shape: [1] },
    ]),
  ],

  forward(g, c, w) {
    const plain = (x: Value, name: string) => g.rmsNorm(x, ones(g, c.embed), c.normEps, name);
    const embedded = plain(g.embed(w.get("token_embd.weight"), "embed"), "embed_norm"); // [tokens, embed]
    let x = embedded; // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      x = g.add(x, attention(g, w, plain(x, "attn_norm"), c, layer), "attn_residual"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, plain(x, "ffn_norm"), layer), "ffn_residual"); // [tokens, embed]
      const scale = w.get(`blk.${layer}.layer_output_scale.weight`); // [1]
      x = g.add(x, g.mulWeight(embedded, scale, "embed_skip"), "skip_residual"); // [tokens, embed]
    }
    g.layer(undefined);
    const hidden = plain(g.select(x, "selected"), "output_norm"); // [outputs, embed]
    const logits = g.logits(hidden, w.get("output.weight"), "logits"); // [logits, vocab]
    return { hidden, logits: g.scale(logits, c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};

/** [tokens, embed] -> [tokens, embed] */
function attention(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  c: TalkieConfig,
  layer: number,
): Value {
  const { heads, kvHeads, headDim, rope, normEps } = c;
  const cols = kvHeads * headDim;
  const state = g.state({ kind: "kv", layer, kCols: cols, vCols: cols });
  const { q, k, v } = projectQkv(g, w, x, { ...c, layer });
  const turned = (value: Value, name: string) => {
    const roped = g.rope(value, headDim, rope, `${name}_rope`); // [tokens, n]
    return g.rmsNorm(roped, ones(g, headDim), normEps, `${name}_norm`); // [tokens, n]
  };
  // The factors as a row for each token: a weight does not stretch over the values of a head.
  const zeros = g.scale(g.slice(q, 0, 1, "attn_q_first", heads), 0, "attn_q_zeros"); // [tokens, heads]
  const gain = flat(w.get(`blk.${layer}.attn_q_norm.weight`)); // [heads]
  const gains = g.addWeight(zeros, gain, "attn_q_gain"); // [tokens, heads]
  const all = repeated(g, gains, headDim, "attn_q_gains", heads); // [tokens, heads * headDim]
  const query = g.mul(turned(q, "attn_q"), all, "attn_q_scaled"); // [tokens, heads * headDim]
  g.kvWrite(turned(k, "attn_k"), v, state);
  const options = { state, heads, kvHeads, headDim, scale: 1 / Math.sqrt(headDim) };
  return linear(g, w, g.attention(query, options, "attn"), layer, "attn_output"); // [tokens, embed]
}
