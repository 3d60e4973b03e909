// Qwen3-Next and Qwen 3.5, dense and with experts: three layers of linear attention by the gated delta rule, then one of gated attention.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, ModelHeader, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { deltaNet, deltaNetWeights } from "./parts/delta-net.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { nextOutputs, nextWeights } from "./parts/next.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { readHeadSsm, type SsmConfig } from "./recurrent-config.ts";
import { interleavedSections } from "./rope.ts";

interface Qwen35Config extends ModelConfig {
  ssm: SsmConfig;
  isRecurrent: readonly boolean[];
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
  /** As Qwen3-Next stores them. */
  fusedSteps: boolean;
  tiled: boolean;
}

export const qwen35: Arch<Qwen35Config> = {
  names: ["qwen35", "qwen35moe", "qwen3next"],
  about: "Qwen3-Next, Qwen 3.5 and 3.6, also with experts",
  config: readQwen35,

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "post_attention_norm"]),
      ...(c.isRecurrent[layer]
        ? deltaNetWeights(c.embed, c.ssm, layer, c.fusedSteps)
        : attentionWeights(c, layer)),
      ...feedForwardWeights(c, layer),
    ]),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      x = through(g, c, w, x, layer); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },

  next: {
    weights: (c) => [
      ...nextWeights(c),
      ...normWeights(c.layers, c.embed, ["attn_norm", "post_attention_norm"]),
      ...attentionWeights(c, c.layers),
      ...feedForwardWeights(c, c.layers),
    ],
    forward: (g, c, w) => nextOutputs(g, c, w, (x) => through(g, c, w, x, c.layers)),
  },
};

/** One layer: [tokens, embed] -> [tokens, embed]. */
function through(
  g: GraphBuilder,
  c: Qwen35Config,
  w: WeightLookup,
  x: Value,
  layer: number,
): Value {
  const routing = { gating: "softmax", normalise: true, scale: 1 } as const;
  const norm = rmsNorms(g, w, c, layer);
  const a = norm(x, "attn_norm"); // [tokens, embed]
  const mixed = c.isRecurrent[layer]
    ? deltaNet(g, w, a, { ...c, layer })
    : gatedAttention(g, w, a, c, layer); // [tokens, embed]
  const attended = g.add(x, mixed, "attn_residual"); // [tokens, embed]
  const f = norm(attended, "post_attention_norm"); // [tokens, embed]
  const out = c.experts
    ? moe(g, w, f, { layer, routing: { ...routing, used: c.experts.used } })
    : swiglu(g, w, f, layer); // [tokens, embed]
  return g.add(attended, out, "ffn_residual"); // [tokens, embed]
}

function readQwen35(header: ModelHeader): Qwen35Config {
  const read = readerOf(header);
  const isNext = read.architecture === "qwen3next";
  const c = readConfig(header, "half", {
    ...(read.architecture !== "qwen35" && { experts: "required" }),
  });
  const ssm = readHeadSsm(read);
  if (ssm.inner / ssm.heads !== ssm.states) {
    read.fail(
      "ssm.state_size",
      ssm.states,
      `${ssm.inner / ssm.heads}: inner_size / time_step_rank`,
    );
  }
  const interval = read.integerOr("full_attention_interval", 4, LIMITS.layers);
  const flags = "attention.recurrent_layers";
  return {
    ...c,
    rope: interleavedSections(read, c.rope),
    ssm,
    isRecurrent: read.metadata.has(`${read.architecture}.${flags}`)
      ? read.flagsPerLayer(flags, c.layers, 0)
      : Array.from({ length: c.layers }, (_, layer) => (layer + 1) % interval !== 0),
    scale: read.number("attention.scale") ? read.positive("attention.scale") : undefined,
    fusedSteps: isNext,
    tiled: !isNext,
  };
}

/** output(attention(q, k, v) * sigmoid(gate)), where one matrix makes q and the gate of each head: [tokens, embed] -> [tokens, embed]. */
function gatedAttention(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  c: Qwen35Config,
  layer: number,
): Value {
  const { heads, kvHeads, headDim, rope, scale = 1 / Math.sqrt(headDim) } = c;
  const norm = rmsNorms(g, w, c, layer);
  const cols = kvHeads * headDim;
  const state = g.state({ kind: "kv", layer, kCols: cols, vCols: cols });
  const both = linear(g, w, x, layer, "attn_q"); // [tokens, heads * 2 * headDim]
  const gate = g.slice(both, headDim, headDim, "attn_gate", heads); // [tokens, heads * headDim]
  const q = norm(g.slice(both, 0, headDim, "attn_q_part", heads), "attn_q_norm"); // [tokens, heads * headDim]
  const k = norm(linear(g, w, x, layer, "attn_k"), "attn_k_norm"); // [tokens, kvHeads * headDim]
  const v = linear(g, w, x, layer, "attn_v"); // [tokens, kvHeads * headDim]
  g.kvWrite(g.rope(k, headDim, rope, "attn_k_rope"), v, state);
  const turned = g.rope(q, headDim, rope, "attn_q_rope"); // [tokens, heads * headDim]
  const attended = g.attention(turned, { state, heads, kvHeads, headDim, scale }, "attn"); // [tokens, heads * headDim]
  const gated = g.gate(gate, attended, "sigmoid", "attn_gated"); // [tokens, heads * headDim]
  return linear(g, w, gated, layer, "attn_output"); // [tokens, embed]
}

function attentionWeights(c: Qwen35Config, layer: number): WeightSpec[] {
  const { heads, kvHeads, headDim, embed } = c;
  return [
    ...linearWeights(layer, "attn_q", [2 * heads * headDim, embed], "optional"),
    ...linearWeights(layer, "attn_k", [kvHeads * headDim, embed], "optional"),
    ...linearWeights(layer, "attn_v", [kvHeads * headDim, embed], "optional"),
    ...normWeights(layer, headDim, ["attn_q_norm", "attn_k_norm"]),
    ...linearWeights(layer, "attn_output", [embed, heads * headDim]),
  ];
}

function feedForwardWeights(c: Qwen35Config, layer: number): WeightSpec[] {
  return c.experts
    ? moeWeights(c.embed, c.experts, layer, { sharedGate: true })
    : gatedWeights(c.embed, c.feedForward, layer);
}
