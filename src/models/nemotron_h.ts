// Nemotron-H, and Nemotron 3 with experts: every layer is one of a scan of Mamba 2, attention without rope, or a feed-forward
// network of squared ReLUs, which may have experts.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { mamba2, mamba2Weights } from "./parts/mamba.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { type HybridConfig, readHeadSsm, readHybrid, type SsmConfig } from "./recurrent-config.ts";

interface NemotronHConfig extends HybridConfig {
  ssm: SsmConfig;
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
  hasExperts: readonly boolean[];
  /** Whether the weights of a token's experts add up to 1, and the factor on them. */
  normalise: boolean;
  expertScale: number;
  /** The columns that experts compute on, between two more matrices; 0: the residual's. */
  latent: number;
}

export const nemotronH: Arch<NemotronHConfig> = {
  names: ["nemotron_h", "nemotron_h_moe"],
  about: "Nemotron-H, Nemotron Nano 2, Nemotron 3 (with experts)",

  config(header) {
    const read = readerOf(header);
    const positive = (key: string) => (read.number(key) ? read.positive(key) : undefined);
    const c = readHybrid(header, "half", { experts: "optional" });
    return {
      ...c,
      ssm: readHeadSsm(read),
      scale: positive("attention.scale"),
      hasExperts: Array.from({ length: c.layers }, (_, layer) =>
        header.tensors.has(`blk.${layer}.ffn_gate_inp.weight`),
      ),
      normalise: read.boolean("expert_weights_norm") ?? false,
      expertScale: positive("expert_weights_scale") ?? 1,
      latent: read.number("moe_latent_size") ? read.integer("moe_latent_size", LIMITS.size) : 0,
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm"]),
      ...mixerWeights(c, layer),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const a = rmsNorms(g, w, c, layer)(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, mixer(g, w, a, c, layer), "residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** The computation of a layer: [tokens, embed] -> [tokens, embed]. */
function mixer(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  c: NemotronHConfig,
  layer: number,
): Value {
  const kvHeads = c.kvHeadsOf[layer]!;
  if (c.feedForwardOf[layer]! > 0) {
    return c.hasExperts[layer] && c.experts
      ? experts(g, w, x, c, layer)
      : squaredMlp(g, w, x, layer, "");
  }
  return kvHeads === 0
    ? mamba2(g, w, x, { ...c, layer })
    : attention(g, w, x, { ...c, kvHeads, fusedQkv: false, rope: undefined, layer });
}

function mixerWeights(c: NemotronHConfig, layer: number): WeightSpec[] {
  const kvHeads = c.kvHeadsOf[layer]!;
  const feedForward = c.feedForwardOf[layer]!;
  const extras = { qkvBias: "optional", headNorms: false } as const;
  if (feedForward > 0) {
    return c.hasExperts[layer] && c.experts
      ? expertWeights(c, layer)
      : [
          ...linearWeights(layer, "ffn_up", [feedForward, c.embed], "optional"),
          ...linearWeights(layer, "ffn_down", [c.embed, feedForward], "optional"),
        ];
  }
  return kvHeads === 0
    ? mamba2Weights(c.embed, c.ssm, layer, "required")
    : attentionWeights({ ...c, kvHeads, fusedQkv: false }, layer, extras);
}

/** down(relu(up(x))^2): [tokens, embed] -> [tokens, embed]. */
function squaredMlp(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  suffix: "" | "_shexp",
): Value {
  const up = linear(g, w, x, layer, `ffn_up${suffix}`); // [tokens, feedForward]
  const inner = g.activate(up, "relu_squared", `ffn_relu${suffix}`); // [tokens, feedForward]
  return linear(g, w, inner, layer, `ffn_down${suffix}`); // [tokens, embed]
}

/** The chosen experts, on latent columns where the model has them, and the shared one. */
function experts(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  c: NemotronHConfig,
  layer: number,
): Value {
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const bias = w.maybe(`blk.${layer}.exp_probs_b.bias`);
  const { normalise, expertScale: scale } = c;
  const routing = { used: c.experts!.used, gating: "sigmoid", normalise, scale } as const;
  const logits = g.matmul(x, weight("ffn_gate_inp"), "ffn_gate_inp"); // [tokens, experts]
  const routes = g.route(logits, routing, "ffn_route", bias); // [tokens, 2 * used]
  const input = c.latent > 0 ? linear(g, w, x, layer, "ffn_latent_down") : x; // [tokens, latent]
  const up = g.matmulId(input, routes, weight("ffn_up_exps"), "ffn_up_exps"); // [tokens, used * feedForward]
  const inner = g.activate(up, "relu_squared", "ffn_relu_exps"); // [tokens, used * feedForward]
  const down = g.matmulId(inner, routes, weight("ffn_down_exps"), "ffn_down_exps"); // [tokens, used * latent]
  const sum = g.combine(down, routes, "ffn_moe"); // [tokens, latent]
  const out = c.latent > 0 ? linear(g, w, sum, layer, "ffn_latent_up") : sum; // [tokens, embed]
  return g.add(out, squaredMlp(g, w, x, layer, "_shexp"), "ffn_moe_shared"); // [tokens, embed]
}

function expertWeights(c: NemotronHConfig, layer: number): WeightSpec[] {
  const { count, feedForward, shared } = c.experts!;
  const cols = c.latent > 0 ? c.latent : c.embed;
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  return [
    ...linearWeights(layer, "ffn_gate_inp", [count, c.embed]),
    { ...named("exp_probs_b.bias", count), optional: true },
    named("ffn_up_exps.weight", count, feedForward, cols),
    named("ffn_down_exps.weight", count, cols, feedForward),
    ...linearWeights(layer, "ffn_up_shexp", [shared, c.embed]),
    ...linearWeights(layer, "ffn_down_shexp", [c.embed, shared]),
    ...(c.latent > 0
      ? [
          ...linearWeights(layer, "ffn_latent_down", [c.latent, c.embed]),
          ...linearWeights(layer, "ffn_latent_up", [c.embed, c.latent]),
        ]
      : []),
  ];
}
