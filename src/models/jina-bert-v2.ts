// Jina BERT 2: BERT with ALiBi in both directions and a GELU-gated network; perhaps norms of q and k, and a second norm of the
// layer's input and its attention.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, ModelHeader, WeightLookup, WeightSpec } from "./arch.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention } from "./parts/attention.ts";
import { bertWeights, encoderOutputs, normedEmbedding } from "./parts/encoder.ts";
import { fusedGated, geglu } from "./parts/feed-forward.ts";
import { linearWeights, present } from "./parts/linear.ts";
import { layerNorms } from "./parts/norms.ts";

/** The strength of ALiBi. */
const ALIBI = 8;

interface JinaConfig extends EncoderConfig {
  /** Gate and up are one tensor, ffn_up. */
  fusedGate: boolean;
}

export const jinaBertV2: Arch<JinaConfig> = {
  names: ["jina-bert-v2"],
  about: "jina-embeddings v2, jina-reranker v1",

  config: (header) => ({
    ...readEncoderConfig(header, "half", { norm: "layer" }),
    fusedGate: hasFusedGate(header),
  }),

  weights: (c) =>
    bertWeights(c, (layer) => [...ownWeights(c, layer), ...gateWeights(c, layer)], "one"),

  forward(g, c, w) {
    let x = normedEmbedding(g, c, w); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const options = { ...c, layer, rope: undefined, alibi: ALIBI, headNorm: "layer" as const };
      const a = attention(g, w, x, options); // [tokens, embed]
      let attended = norm(g.add(a, x, "attn_residual"), "attn_output_norm"); // [tokens, embed]
      if (w.maybe(`blk.${layer}.attn_norm_2.weight`)) {
        attended = norm(g.add(attended, x, "attn_residual_2"), "attn_norm_2"); // [tokens, embed]
      }
      const f = feedForward(g, c, w, attended, layer); // [tokens, embed]
      x = norm(g.add(f, attended, "ffn_residual"), "layer_output_norm"); // [tokens, embed]
    }
    return encoderOutputs(g, w, x, c);
  },
};

function feedForward(
  g: GraphBuilder,
  c: JinaConfig,
  w: WeightLookup,
  x: Value,
  layer: number,
): Value {
  return c.fusedGate ? fusedGated(g, w, x, layer, c.feedForward, "gelu") : geglu(g, w, x, layer);
}

function hasFusedGate({ tensors }: ModelHeader): boolean {
  return !tensors.has("blk.0.ffn_gate.weight");
}

/** The weights that BERT does not have. */
function ownWeights({ embed }: JinaConfig, layer: number): WeightSpec[] {
  return ["attn_q_norm", "attn_k_norm", "attn_norm_2"].flatMap((name) =>
    ["weight", "bias"].flatMap((part) =>
      present({ name: `blk.${layer}.${name}.${part}`, shape: [embed] }, "optional"),
    ),
  );
}

function gateWeights(
  { embed, feedForward: size, fusedGate }: JinaConfig,
  layer: number,
): WeightSpec[] {
  return [
    ...(fusedGate ? [] : linearWeights(layer, "ffn_gate", [size, embed])),
    ...linearWeights(layer, "ffn_up", [fusedGate ? 2 * size : size, embed], "optional"),
    ...linearWeights(layer, "ffn_down", [embed, size], "optional"),
  ];
}
