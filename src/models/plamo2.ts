// PLaMo 2: layers of a scan with heads, with normed steps, keys and queries, and layers of attention; norms before and after both
// parts of a layer.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, WeightLookup, WeightSpec } from "./arch.ts";
import { readerOf } from "./config.ts";
import { projectQkv } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { fusedGatedWeights, fusedSwiglu } from "./parts/feed-forward.ts";
import { linear, linearRows, linearWeights } from "./parts/linear.ts";
import { convolved, groupNorm } from "./parts/mamba.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { type HybridConfig, readHeadSsm, readHybrid, type SsmConfig } from "./recurrent-config.ts";

interface Plamo2Config extends HybridConfig {
  ssm: SsmConfig;
}

export const plamo2: Arch<Plamo2Config> = {
  names: ["plamo2"],
  about: "PLaMo 2",
  config: (header) => ({ ...readHybrid(header, "half"), ssm: readHeadSsm(readerOf(header)) }),

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...["post_attention_norm", "post_ffw_norm"].map((name) => ({
        name: `blk.${layer}.${name}`,
        shape: [c.embed],
      })),
      ...(c.kvHeadsOf[layer] === 0 ? scanWeights(c, layer) : attentionWeights(c, layer)),
      ...fusedGatedWeights(c.embed, c.feedForward, layer),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const after = (value: Value, name: string) =>
        g.rmsNorm(value, w.get(`blk.${layer}.${name}`), c.normEps, name);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const mixed = c.kvHeadsOf[layer] === 0 ? scan(g, w, a, c, layer) : attend(g, w, a, c, layer);
      x = g.add(x, after(mixed, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = fusedSwiglu(g, w, norm(x, "ffn_norm"), layer, c.feedForward); // [tokens, embed]
      x = g.add(x, after(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** Columns of the time steps before they are spread over the heads: llama.cpp's rule. */
function stepCols({ embed }: Plamo2Config): number {
  return Math.max(64, Math.floor(embed / 16));
}

/** [tokens, embed] -> [tokens, embed] */
function scan(g: GraphBuilder, w: WeightLookup, x: Value, c: Plamo2Config, layer: number): Value {
  const { inner, states, heads } = c.ssm;
  const weight = (name: string) => w.get(`blk.${layer}.${name}`);
  const headDim = inner / heads;
  const normed = (name: string, from: number, count: number) => {
    const range = { layer, fused: "ssm_x", name: `ssm_x_${name}`, from, count };
    const value = linearRows(g, w, u, range);
    return g.rmsNorm(value, weight(`ssm_${name}_norm`), c.normEps, `ssm_${name}_norm`);
  };

  // Each head has its gate first, then its input.
  const zx = linear(g, w, x, layer, "ssm_in"); // [tokens, heads * 2 * headDim]
  const z = g.slice(zx, 0, headDim, "ssm_z", heads); // [tokens, inner]
  const u = convolved(g, w, g.slice(zx, headDim, headDim, "ssm_u", heads), layer); // [tokens, inner]
  const b = normed("b", 0, states); // [tokens, states]
  const keys = normed("c", states, states); // [tokens, states]
  const steps = linear(g, w, normed("dt", 2 * states, stepCols(c)), layer, "ssm_dt"); // [tokens, heads]
  const dt = g.activate(steps, "softplus", "ssm_dt_soft"); // [tokens, heads]
  const state = g.state({ kind: "recurrent", layer, floats: inner * states });
  const [a, skip] = [weight("ssm_a"), weight("ssm_d")];
  const y = g.ssmScan({ x: u, dt, b, c: keys, a, skip, states, state }, "ssm_scan"); // [tokens, inner]
  return linear(g, w, g.gate(z, y, "silu", "ssm_gated"), layer, "ssm_out"); // [tokens, embed]
}

function scanWeights(c: Plamo2Config, layer: number): WeightSpec[] {
  const { inner, states, heads, taps } = c.ssm;
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  return [
    ...linearWeights(layer, "ssm_in", [2 * inner, c.embed]),
    named("ssm_conv1d.weight", inner, taps),
    ...linearWeights(layer, "ssm_x", [stepCols(c) + 2 * states, inner]),
    ...linearWeights(layer, "ssm_dt", [heads, stepCols(c)], "required"),
    named("ssm_a", heads),
    named("ssm_d", heads),
    named("ssm_dt_norm", stepCols(c)),
    named("ssm_b_norm", states),
    named("ssm_c_norm", states),
    ...linearWeights(layer, "ssm_out", [c.embed, inner]),
  ];
}

/** [tokens, embed] -> [tokens, embed]; every head of q and k has a norm of its own. */
function attend(g: GraphBuilder, w: WeightLookup, x: Value, c: Plamo2Config, layer: number): Value {
  const { heads, headDim, rope } = c;
  const kvHeads = c.kvHeadsOf[layer]!;
  const cols = kvHeads * headDim;
  const turned = (value: Value, name: string) => {
    const own = w.get(`blk.${layer}.${name}_norm.weight`);
    return g.rope(
      groupNorm(g, value, own, c.normEps, `${name}_norm`),
      headDim,
      rope,
      `${name}_rope`,
    );
  };
  const state = g.state({ kind: "kv", layer, kCols: cols, vCols: cols });
  const { q, k, v } = projectQkv(g, w, x, { ...c, kvHeads, fusedQkv: true, layer });
  g.kvWrite(turned(k, "attn_k"), v, state);
  const options = { state, heads, kvHeads, headDim, scale: 1 / Math.sqrt(headDim) };
  const attended = g.attention(turned(q, "attn_q"), options, "attn"); // [tokens, heads * headDim]
  return linear(g, w, attended, layer, "attn_output"); // [tokens, embed]
}

function attentionWeights(c: Plamo2Config, layer: number): WeightSpec[] {
  const { heads, headDim, embed } = c;
  const kvHeads = c.kvHeadsOf[layer]!;
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  return [
    ...linearWeights(layer, "attn_qkv", [(heads + 2 * kvHeads) * headDim, embed]),
    named("attn_q_norm.weight", heads, headDim),
    named("attn_k_norm.weight", kvHeads, headDim),
    ...linearWeights(layer, "attn_output", [embed, heads * headDim]),
  ];
}
