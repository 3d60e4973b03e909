// CogVLM (text): as Llama, with q, k and v in one tensor and rotary pairs half a head apart. A second set of matrices is for images, and
// not read.

import type { Arch, ModelConfig, WeightSpec } from "./arch.ts";
import { readConfig } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { linearWeights } from "./parts/linear.ts";
import { rmsNorms } from "./parts/norms.ts";
import { ropeOfBase } from "./rope.ts";

export const cogvlm: Arch = {
  names: ["cogvlm"],
  about: "CogVLM (text)",

  config(header) {
    const c = readConfig(header, "half");
    // The same for every file, as in llama.cpp.
    return { ...c, fusedQkv: true, rope: ropeOfBase(c.headDim, 10000, "half") };
  },

  weights: (c) =>
    decoderWeights(c, {
      qkvBias: "none",
      outputBias: "none",
      feedForward: (layer) => [
        ...gatedWeights(c.embed, c.feedForward, layer),
        ...imageWeights(c, layer),
      ],
    }),

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer, ropeFactors: "none" }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

function imageWeights(
  { embed, heads, headDim, feedForward }: ModelConfig,
  layer: number,
): WeightSpec[] {
  const cols = heads * headDim;
  return [
    ...linearWeights(layer, "vis_attn_qkv", [3 * cols, embed]),
    ...linearWeights(layer, "vis_attn_output", [embed, cols]),
    ...linearWeights(layer, "vis_gate", [feedForward, embed]),
    ...linearWeights(layer, "vis_up", [feedForward, embed]),
    ...linearWeights(layer, "vis_down", [embed, feedForward]),
  ].map((spec) => ({ ...spec, unread: true }));
}
