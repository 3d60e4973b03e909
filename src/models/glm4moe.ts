// GLM 4.5 and 4.6: as GLM 4 without norms after its parts; experts chosen by sigmoids with a bias, a shared one, and dense
// layers first.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, WeightLookup, WeightSpec } from "./arch.ts";
import { readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { moeOrSwiglu, moeOrSwigluWeights } from "./parts/moe.ts";
import { nextOutputs, nextWeights } from "./parts/next.ts";
import { rmsNorms } from "./parts/norms.ts";
import { textSections } from "./rope.ts";
import { countedShared, nextSparse, readSparse, type SparseConfig } from "./sparse-config.ts";

const weights = (c: SparseConfig): WeightSpec[] =>
  decoderWeights(c, {
    norms: ["attn_norm", "post_attention_norm"],
    headNorms: true,
    headNormPresence: "optional",
    feedForward: (layer) => moeOrSwigluWeights(c, layer, { choiceBias: "required" }),
  });

export const glm4moe: Arch<SparseConfig> = {
  names: ["glm4moe"],
  about: "GLM 4.5 and 4.6 (with experts), Solar Open",

  config(header) {
    const c = readSparse(header, "half", { gating: "sigmoid" });
    const rope = textSections(readerOf(header), c.rope);
    return { ...c, rope, experts: countedShared(header, c.experts) };
  },

  weights,

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      x = through(g, c, w, x, layer); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },

  next: {
    weights: (c) => [...nextWeights(c), ...oneLayerWeights(nextSparse(c), c.layers)],
    forward: (g, c, w) => nextOutputs(g, c, w, (x) => through(g, nextSparse(c), w, x, c.layers)),
  },
};

/** One layer: [tokens, embed] -> [tokens, embed]. */
function through(
  g: GraphBuilder,
  c: SparseConfig,
  w: WeightLookup,
  x: Value,
  layer: number,
): Value {
  const norm = rmsNorms(g, w, c, layer);
  const a = norm(x, "attn_norm"); // [tokens, embed]
  const attended = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
  const f = norm(attended, "post_attention_norm"); // [tokens, embed]
  return g.add(attended, moeOrSwiglu(g, w, f, layer, c), "ffn_residual"); // [tokens, embed]
}

function oneLayerWeights(c: SparseConfig, layer: number): WeightSpec[] {
  const all = weights({ ...c, layers: layer + 1 });
  return all.filter(({ name }) => name.startsWith(`blk.${layer}.`));
}
