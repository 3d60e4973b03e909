// Kimi Linear: linear attention by the delta rule with a decay for each channel of the keys (KDA), every few layers attention
// over a compressed cache without rope, and experts.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { unit } from "./parts/delta-net.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { type LatentShape, latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { convolved } from "./parts/mamba.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { readDenseLayers, readGating } from "./recurrent-config.ts";
import { ropeFromMetadata } from "./rope.ts";

interface KimiConfig extends ModelConfig {
  isRecurrent: readonly boolean[];
  /** Inputs of the convolutions. */
  taps: number;
  /** Columns of a head of linear attention. */
  linearDim: number;
  attention: LatentShape;
  denseLayers: number;
  gating: "softmax" | "sigmoid";
  expertScale: number;
}

export const kimiLinear: Arch<KimiConfig> = {
  names: ["kimi-linear"],
  about: "Kimi Linear",

  config(header) {
    const read = readerOf(header);
    const common = readCommon(header);
    const heads = read.integer("attention.head_count", LIMITS.heads);
    const keyDim = read.integer("attention.key_length_mla", LIMITS.size);
    const sharedDim = read.integer("rope.dimension_count", LIMITS.size);
    if (sharedDim >= keyDim) {
      read.fail("rope.dimension_count", sharedDim, `less than attention.key_length_mla, ${keyDim}`);
    }
    const feedForward = read.integer("feed_forward_length", LIMITS.size);
    const experts = readExperts(read, feedForward, "required")!;
    const sharedCount = read.integer("expert_shared_count", LIMITS.experts);
    const kv = read.integersPerLayer("attention.head_count_kv", common.layers, LIMITS.heads, 0);
    const taps = read.integer("ssm.conv_kernel", 64);
    if (taps < 2) read.fail("ssm.conv_kernel", taps, "at least 2");
    const scale = "expert_weights_scale";
    const attending = kv.findIndex((count) => count > 0);
    return {
      ...common,
      feedForward,
      heads,
      kvHeads: 1,
      headDim: keyDim,
      rope: ropeFromMetadata(read, keyDim, "half"),
      experts: { ...experts, shared: experts.feedForward * sharedCount },
      isRecurrent: kv.map((count) => count === 0),
      taps,
      linearDim: read.integer("kda.head_dim", LIMITS.size),
      attention: {
        heads,
        nopeDim: keyDim - sharedDim,
        ropeDim: sharedDim,
        vHeadDim: read.integer("attention.value_length_mla", LIMITS.size),
        kvRank: read.integer("attention.kv_lora_rank", LIMITS.size),
        qRank: 0,
        absorbed: !header.tensors.has(`blk.${attending}.attn_kv_b.weight`),
        rope: undefined,
        scale: 1 / Math.sqrt(keyDim),
        normEps: common.normEps,
      },
      denseLayers: readDenseLayers(read, common.layers),
      gating: readGating(read),
      expertScale: read.number(scale) ? read.positive(scale) : 1,
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...(c.isRecurrent[layer]
        ? linearAttentionWeights(c, layer)
        : latentWeights(c.embed, layer, c.attention)),
      ...(layer < c.denseLayers
        ? gatedWeights(c.embed, c.feedForward, layer)
        : moeWeights(c.embed, c.experts!, layer, { choiceBias: "required" })),
    ]),
  ],

  forward(g, c, w) {
    const { used } = c.experts!;
    const routing = { used, gating: c.gating, normalise: true, scale: c.expertScale };
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const mixed = c.isRecurrent[layer]
        ? linearAttention(g, w, a, c, layer)
        : latentAttention(g, w, a, layer, c.attention); // [tokens, embed]
      x = g.add(x, mixed, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = layer < c.denseLayers ? swiglu(g, w, f, layer) : moe(g, w, f, { layer, routing });
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** output(norm(delta_net(q, k, v)) * sigmoid(gate)): [tokens, embed] -> [tokens, embed]. */
function linearAttention(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  c: KimiConfig,
  layer: number,
): Value {
  const { heads, linearDim: size, normEps } = c;
  const weight = (name: string) => w.get(`blk.${layer}.${name}`);
  const mixed = (name: string) =>
    convolved(g, w, linear(g, w, x, layer, `attn_${name}`), layer, `ssm_conv1d_${name}`);
  const query = unit(g, mixed("q"), size, normEps, "delta_q_unit"); // [tokens, heads * size]
  const q = g.scale(query, 1 / Math.sqrt(size), "delta_q_scaled"); // [tokens, heads * size]
  const k = unit(g, mixed("k"), size, normEps, "delta_k_unit"); // [tokens, heads * size]
  const v = mixed("v"); // [tokens, heads * size]
  const low = linear(g, w, x, layer, "ssm_f_a"); // [tokens, size]
  const rate = g.matmul(low, weight("ssm_f_b.weight"), "ssm_f_b", weight("ssm_dt.bias")); // [tokens, heads * size]
  const dt = g.activate(rate, "softplus", "ssm_f_soft"); // [tokens, heads * size]
  const beta = g.activate(linear(g, w, x, layer, "ssm_beta"), "sigmoid", "ssm_beta_sigmoid"); // [tokens, heads]
  const state = g.state({ kind: "recurrent", layer, floats: heads * size * size });
  const operands = { q, k, v, dt, beta, a: weight("ssm_a"), keyHeads: heads, tiled: false, state };
  const y = g.deltaNet(operands, "delta_net"); // [tokens, heads * size]
  const normed = g.rmsNorm(y, weight("ssm_norm.weight"), normEps, "ssm_norm"); // [tokens, heads * size]
  const gate = linear(g, w, linear(g, w, x, layer, "ssm_g_a"), layer, "ssm_g_b"); // [tokens, heads * size]
  return linear(g, w, g.gate(gate, normed, "sigmoid", "delta_gated"), layer, "attn_output"); // [tokens, embed]
}

function linearAttentionWeights(c: KimiConfig, layer: number): WeightSpec[] {
  const { embed, heads, linearDim: size, taps } = c;
  const cols = heads * size;
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  return [
    ...["q", "k", "v"].flatMap((name) => [
      ...linearWeights(layer, `attn_${name}`, [cols, embed]),
      named(`ssm_conv1d_${name}.weight`, cols, taps),
    ]),
    ...linearWeights(layer, "ssm_f_a", [size, embed]),
    ...linearWeights(layer, "ssm_f_b", [cols, size]),
    ...linearWeights(layer, "ssm_g_a", [size, embed]),
    ...linearWeights(layer, "ssm_g_b", [cols, size]),
    ...linearWeights(layer, "ssm_beta", [heads, embed]),
    named("ssm_a", heads),
    named("ssm_dt.bias", cols),
    named("ssm_norm.weight", size),
    ...linearWeights(layer, "attn_output", [embed, cols]),
  ];
}
