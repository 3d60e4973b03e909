// Kimi K3: linear attention by the delta rule with bounded decays (KDA), every few layers gated attention over a compressed cache
// without rope, and experts of a latent vector. A layer reads a mixture of the residual and of earlier layers' residuals, weighted by
// a softmax of their scores; every few layers the residual is kept for that, and starts again.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";
import { type KimiConfig, readGateBound, readKimi } from "./kimi-config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights } from "./parts/feed-forward.ts";
import { kda, kdaWeights } from "./parts/kda.ts";
import { latentAttention, latentWeights } from "./parts/latent-attention.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { normWeights, ones, rmsNorms } from "./parts/norms.ts";

interface KimiK3Config extends KimiConfig {
  normalise: boolean;
  /** The number of columns that the experts read; 0: the hidden state. */
  latent: number;
  /** Layers from one kept residual to the next; 0: there is only the residual. */
  blockSize: number;
  /** The limits that gates and ups approach; without one for ups, they are not limited. */
  gateCap: number;
  upCap: number | undefined;
}

export const kimiK3: Arch<KimiK3Config> = {
  names: ["kimi-k3"],
  about: "Kimi K3",

  config(header) {
    const read: ConfigReader = readerOf(header);
    const least = readGateBound(header);
    const has = (tensor: string) =>
      [...header.tensors.keys()].some((name) => name.endsWith(tensor));
    const c = readKimi(header, {
      decayFactors: 2,
      gate: ["ssm_g"],
      bound: least === undefined ? undefined : { least, isNegated: true },
      qRank: has(".attn_q_a_norm.weight") ? read.integer("attention.q_lora_rank", LIMITS.size) : 0,
    });
    const upCap = read.between("activation.situ_linear_beta", -1e6, 1e6);
    if (upCap === undefined) read.fail("activation.situ_linear_beta", undefined, "a number");
    return {
      ...c,
      attention: { ...c.attention, gate: has(".attn_gate.weight") ? "values" : undefined },
      normalise: read.boolean("expert_weights_norm") ?? false,
      latent: read.count("expert_latent_length", LIMITS.size),
      blockSize: read.count("attn_res.block_size", LIMITS.layers),
      gateCap: read.positive("activation.situ_beta"),
      upCap: upCap > 0 ? upCap : undefined,
    };
  },

  weights: (c) => [
    ...endWeights(c, { output: "required" }),
    ...(c.blockSize > 0 ? [{ name: "output_res_score.weight", shape: [1, c.embed] }] : []),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...(c.blockSize > 0 ? scoreWeights(c.embed, layer) : []),
      ...(c.isRecurrent[layer]
        ? kdaWeights(c.embed, layer, c.kda)
        : latentWeights(c.embed, layer, c.attention)),
      ...(layer < c.denseLayers
        ? gatedWeights(c.embed, c.feedForward, layer)
        : latentMoeWeights(c, layer)),
    ]),
  ],

  forward(g, c, w) {
    const kept: Value[] = []; // [tokens, embed] each
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const isKept = c.blockSize > 0 && layer % c.blockSize === 0;
      const a = norm(mixture(g, w, x, kept, c, `blk.${layer}.attn`), "attn_norm"); // [tokens, embed]
      if (isKept) kept.push(x);
      const mixed = c.isRecurrent[layer]
        ? kda(g, w, a, layer, c.kda)
        : latentAttention(g, w, a, layer, c.attention); // [tokens, embed]
      x = isKept ? mixed : g.add(x, mixed, "attn_residual"); // [tokens, embed]
      const f = norm(mixture(g, w, x, kept, c, `blk.${layer}.ffn`), "ffn_norm"); // [tokens, embed]
      const out = layer < c.denseLayers ? dense(g, w, f, layer, c) : latentMoe(g, w, f, layer, c); // [tokens, embed]
      x = g.add(x, out, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, mixture(g, w, x, kept, c, "output"));
  },
};

/** The first layer has no earlier residuals to mix before its attention. */
function scoreWeights(embed: number, layer: number): WeightSpec[] {
  const named = (name: string) => ({ name: `blk.${layer}.${name}.weight`, shape: [1, embed] });
  const ofAttention = named("attn_res_score");
  return [layer === 0 ? { ...ofAttention, unread: true } : ofAttention, named("ffn_res_score")];
}

/** softmax(score(norm(kept)), score(norm(x))) over all residuals, which are added up with these weights: [tokens, embed]. */
function mixture(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  kept: readonly Value[],
  { embed, normEps }: KimiK3Config,
  prefix: string,
): Value {
  if (kept.length === 0) return x;
  const name = prefix.slice(prefix.lastIndexOf(".") + 1);
  const weight = w.get(`${prefix}_res_score.weight`); // [1, embed]
  const all = [...kept, x];
  const scores = all
    .map((value, i) => {
      const normed = g.rmsNorm(value, ones(g, embed), normEps, `${name}_res_norm_${i}`); // [tokens, embed]
      return g.matmul(normed, weight, `${name}_res_score_${i}`); // [tokens, 1]
    })
    .reduce((left, right) => g.concat(left, right, `${name}_res_scores_${left.cols}`)); // [tokens, kept + 1]
  const weights = g.softmax(scores, `${name}_res_weights`); // [tokens, kept + 1]
  return all
    .map((value, i) =>
      g.mul(value, g.slice(weights, i, 1, `${name}_res_${i}`), `${name}_res_x_${i}`),
    )
    .reduce((sum, value, i) => g.add(sum, value, `${name}_res_sum_${i}`)); // [tokens, embed]
}

/** gateCap * tanh(gate / gateCap) * sigmoid(gate) * upCap * tanh(up / upCap): [tokens, n] -> [tokens, n]. */
function situ(
  g: GraphBuilder,
  gate: Value,
  up: Value,
  { gateCap, upCap }: KimiK3Config,
  suffix: string,
): Value {
  const capped = g.softcap(gate, gateCap, `ffn_gate_${suffix}_capped`); // [tokens, n]
  const opened = g.gate(gate, capped, "sigmoid", `ffn_gate_${suffix}_situ`); // [tokens, n]
  const limited = upCap === undefined ? up : g.softcap(up, upCap, `ffn_up_${suffix}_capped`); // [tokens, n]
  return g.mul(opened, limited, `ffn_situ_${suffix}`); // [tokens, n]
}

/** down(situ(gate(x), up(x))); `suffix`: of the tensors' names. */
function dense(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  c: KimiK3Config,
  suffix = "",
): Value {
  const gate = linear(g, w, x, layer, `ffn_gate${suffix}`); // [tokens, feedForward]
  const up = linear(g, w, x, layer, `ffn_up${suffix}`); // [tokens, feedForward]
  const inner = situ(g, gate, up, c, suffix || "dense"); // [tokens, feedForward]
  return linear(g, w, inner, layer, `ffn_down${suffix}`); // [tokens, embed]
}

/** Experts of a latent vector; the router and the shared expert read the hidden state: [tokens, embed] -> [tokens, embed]. */
function latentMoe(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  c: KimiK3Config,
): Value {
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const { used } = c.experts!;
  const routing = { used, gating: c.gating, normalise: c.normalise, scale: c.expertScale };
  const logits = g.matmul(x, weight("ffn_gate_inp"), "ffn_gate_inp"); // [tokens, experts]
  const bias = w.maybe(`blk.${layer}.exp_probs_b.bias`) ?? w.get(`blk.${layer}.exp_probs_b`); // [experts]
  const routes = g.route(logits, routing, "ffn_route", bias); // [tokens, 2 * used]
  const experts = (input: Value, name: string) => g.matmulId(input, routes, weight(name), name);
  const read = c.latent > 0 ? linear(g, w, x, layer, "ffn_routed_down") : x; // [tokens, latent]
  const [gate, up] = [experts(read, "ffn_gate_exps"), experts(read, "ffn_up_exps")]; // [tokens, used * feedForward]
  const down = experts(situ(g, gate, up, c, "exps"), "ffn_down_exps"); // [tokens, used * latent]
  const sum = g.combine(down, routes, "ffn_moe"); // [tokens, latent]
  const normWeight = w.maybe(`blk.${layer}.ffn_routed_norm.weight`);
  const normed = normWeight ? g.rmsNorm(sum, normWeight, c.normEps, "ffn_routed_norm") : sum; // [tokens, latent]
  const out = c.latent > 0 ? linear(g, w, normed, layer, "ffn_routed_up") : normed; // [tokens, embed]
  if (!w.maybe(`blk.${layer}.ffn_gate_shexp.weight`)) return out;
  return g.add(out, dense(g, w, x, layer, c, "_shexp"), "ffn_moe_shared"); // [tokens, embed]
}

function latentMoeWeights({ embed, latent, experts }: KimiK3Config, layer: number): WeightSpec[] {
  const { count, feedForward, shared } = experts!;
  const size = latent || embed;
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  const bias = named("exp_probs_b", count);
  const ofShared = [
    named("ffn_gate_shexp.weight", shared, embed),
    named("ffn_up_shexp.weight", shared, embed),
    named("ffn_down_shexp.weight", embed, shared),
  ];
  return [
    named("ffn_gate_inp.weight", count, embed),
    { ...named("exp_probs_b.bias", count), unless: bias.name },
    { ...bias, optional: true },
    named("ffn_gate_exps.weight", count, feedForward, size),
    named("ffn_up_exps.weight", count, feedForward, size),
    named("ffn_down_exps.weight", count, size, feedForward),
    ...ofShared.map((spec) => ({ ...spec, optional: true })),
    ...(latent > 0
      ? [
          ...linearWeights(layer, "ffn_routed_down", [latent, embed]),
          ...linearWeights(layer, "ffn_routed_up", [embed, latent]),
          { ...named("ffn_routed_norm.weight", latent), optional: true },
        ]
      : []),
  ];
}
