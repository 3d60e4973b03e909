// MiniMax-01 (Text and M1): lightning attention, a sum over all tokens that decays at a rate of each head's own; every few layers plain attention; experts. A
// layer adds its result not to its input but to the norm of it, times a factor.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, ExpertConfig, ModelConfig, WeightLookup } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";

interface Minimax01Config extends ModelConfig {
  experts: ExpertConfig;
  /** Whether each layer has lightning attention. */
  isRecurrent: boolean[];
  residualScale: number;
}

export const minimax01: Arch<Minimax01Config> = {
  names: ["minimax-01"],
  about: "MiniMax-Text-01, MiniMax-M1",

  config(header) {
    const read = readerOf(header);
    const c = readConfig(header, "half", { experts: "required" });
    const interval = read.integerOr("full_attention_interval", 8, LIMITS.layers);
    const key = "attention.recurrent_layers";
    const isRecurrent = header.metadata.has(`${read.architecture}.${key}`)
      ? read.flagsPerLayer(key, c.layers, interval)
      : Array.from({ length: c.layers }, (_, layer) => (layer + 1) % interval !== 0);
    // Rates fall from layer to layer, to 0 in the last.
    if (c.layers < 2) read.fail("block_count", c.layers, "at least 2");
    return {
      ...c,
      fusedQkv: false,
      experts: c.experts!,
      isRecurrent,
      residualScale: read.positive("residual_scale"),
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => {
      const cols = c.heads * c.headDim;
      return [
        ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
        ...(c.isRecurrent[layer]
          ? [
              ...normWeights(layer, cols, ["attn_norm_2"]),
              ...linearWeights(layer, "attn_qkv", [3 * cols, c.embed]),
              ...linearWeights(layer, "attn_gate", [cols, c.embed]),
              ...linearWeights(layer, "attn_output", [c.embed, cols]),
            ]
          : attentionWeights(c, layer, { qkvBias: "optional", headNorms: false })),
        ...moeWeights(c.embed, c.experts, layer),
      ];
    }),
  ],

  forward(g, c, w) {
    const { used } = c.experts;
    const routing = { used, gating: "softmax", normalise: true, scale: 1 } as const;
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      const mixed = c.isRecurrent[layer]
        ? lightningAttention(g, w, a, c, layer)
        : attention(g, w, a, { ...c, layer }); // [tokens, embed]
      x = g.add(mixed, g.scale(a, c.residualScale, "attn_norm_scaled"), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = moe(g, w, f, { layer, routing }); // [tokens, embed]
      x = g.add(out, g.scale(f, c.residualScale, "ffn_norm_scaled"), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** output(norm(sums) * sigmoid(gate(x))): [tokens, embed] -> [tokens, embed]. Queries read the sums S = decay * S + k v^T, as in Mamba 2. */
function lightningAttention(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  c: Minimax01Config,
  layer: number,
): Value {
  const { heads, headDim } = c;
  const all = g.activate(linear(g, w, x, layer, "attn_qkv"), "silu", "attn_qkv_silu"); // [tokens, heads * 3 * headDim]
  const part = (name: string, index: number) => g.slice(all, index * headDim, headDim, name, heads); // [tokens, heads * headDim]
  const [q, k, v] = [part("attn_q", 0), part("attn_k", 1), part("attn_v", 2)];
  const routing = { used: heads, gating: "all", normalise: false, scale: 1 } as const;
  const routes = g.route(g.slice(q, 0, 1, "attn_heads", heads), routing, "attn_route"); // [tokens, 2 * heads]
  const dt = g.slice(routes, heads, heads, "attn_steps"); // [tokens, heads]: ones
  const a = g.constant(`lightning[${layer}]`, decays(heads, layer, c.layers)); // [heads]
  const skip = g.constant(`zeros[${heads}]`, new Float32Array(heads)); // [heads]
  const state = g.state({ kind: "recurrent", layer, floats: heads * headDim * headDim });
  const operands = { x: v, dt, b: k, c: q, a, skip, states: headDim, state };
  const y = g.ssmScan(operands, "attn_lightning"); // [tokens, heads * headDim]
  const normed = rmsNorms(g, w, c, layer)(y, "attn_norm_2"); // [tokens, heads * headDim]
  const gate = linear(g, w, x, layer, "attn_gate"); // [tokens, heads * headDim]
  return linear(g, w, g.gate(gate, normed, "sigmoid", "attn_gated"), layer, "attn_output"); // [tokens, embed]
}

/** The logarithm of the factor on a head's sums at each token. */
function decays(heads: number, layer: number, layers: number): Float32Array {
  const start = 2 ** -(2 ** -(Math.log2(heads) - 3));
  const ofLayer = 1 - layer / (layers - 1) + 1e-5;
  return Float32Array.from({ length: heads }, (_, head) => -(start ** (head + 1)) * ofLayer);
}
