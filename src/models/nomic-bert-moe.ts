// Nomic BERT with a mixture of experts in every second layer: rotary positions, q, k and v in one tensor, biases, GELU networks
// without gates.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Routing, Value } from "../graph/graph.ts";
import type { Arch, ExpertConfig, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention } from "./parts/attention.ts";
import { bertWeights, encoderOutputs, normedEmbedding } from "./parts/encoder.ts";
import { mlp, mlpWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";

interface NomicMoeConfig extends EncoderConfig {
  experts: ExpertConfig;
  /** Layers 1, 1 + n, 1 + 2n, ... have experts; 0: none has. */
  every: number;
}

export const nomicBertMoe: Arch<NomicMoeConfig> = {
  names: ["nomic-bert-moe"],
  about: "nomic-embed-text v2",

  config(header) {
    const c = readEncoderConfig(header, "half", { norm: "layer", experts: "required" });
    const every = readerOf(header).count("moe_every_n_layers", LIMITS.layers);
    return { ...c, experts: c.experts!, every };
  },

  weights: (c) =>
    bertWeights(c, (layer) =>
      hasExperts(c, layer)
        ? expertWeights(c, layer)
        : mlpWeights(c.embed, c.feedForward, layer, "optional"),
    ),

  forward(g, c, w) {
    let x = normedEmbedding(g, c, w); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const a = attention(g, w, x, { ...c, layer }); // [tokens, embed]
      const attended = norm(g.add(a, x, "attn_residual"), "attn_output_norm"); // [tokens, embed]
      const f = hasExperts(c, layer)
        ? experts(g, c, w, attended, layer)
        : mlp(g, w, attended, layer, "gelu"); // [tokens, embed]
      x = norm(g.add(f, attended, "ffn_residual"), "layer_output_norm"); // [tokens, embed]
    }
    return encoderOutputs(g, w, x, c);
  },
};

function hasExperts({ every }: NomicMoeConfig, layer: number): boolean {
  return every > 0 && layer % every === 1;
}

/** down(gelu(up(x))) of each token's experts, weighted by the softmax over all of them: [tokens, embed] -> [tokens, embed]. */
function experts(
  g: GraphBuilder,
  c: NomicMoeConfig,
  w: WeightLookup,
  x: Value,
  layer: number,
): Value {
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const { used } = c.experts;
  const routing: Routing = { used, gating: "softmax", normalise: false, scale: 1 };
  const logits = g.matmul(x, weight("ffn_gate_inp"), "ffn_gate_inp"); // [tokens, experts]
  const routes = g.route(logits, routing, "ffn_route"); // [tokens, 2 * used]
  const up = g.matmulId(x, routes, weight("ffn_up_exps"), "ffn_up_exps"); // [tokens, used * feedForward]
  const inner = g.activate(up, "gelu", "ffn_gelu_exps"); // [tokens, used * feedForward]
  const down = g.matmulId(inner, routes, weight("ffn_down_exps"), "ffn_down_exps"); // [tokens, used * embed]
  return g.combine(down, routes, "ffn_moe"); // [tokens, embed]
}

function expertWeights(
  { embed, experts: { count, feedForward } }: NomicMoeConfig,
  layer: number,
): WeightSpec[] {
  return [
    { name: `blk.${layer}.ffn_gate_inp.weight`, shape: [count, embed] },
    { name: `blk.${layer}.ffn_up_exps.weight`, shape: [count, feedForward, embed] },
    { name: `blk.${layer}.ffn_down_exps.weight`, shape: [count, embed, feedForward] },
  ];
}
