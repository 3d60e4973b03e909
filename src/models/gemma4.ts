// Gemma 4 (text): as Gemma 3, with heads of another size in layers with a window, normed values, layers at the end
// that share the KV cache of earlier ones, an input of each layer's own, and a scale of each layer's result. With
// experts, a layer adds up a dense network and a mixture, each with norms of its own.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Rope, Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readCommon, readExperts, readerOf } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, geglu } from "./parts/feed-forward.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import {
  perLayerEndWeights,
  perLayerInputs,
  perLayerOutput,
  perLayerWeights,
} from "./parts/per-layer-inputs.ts";
import { baseOf, ropeFromMetadata, ropeOfBase } from "./rope.ts";

interface Gemma4Config extends ModelConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  layerHeads: number[];
  layerKvHeads: number[];
  layerFeedForward: number[];
  /** The head size of the layers with a window. */
  windowHeadDim: number;
  windowRope: Rope;
  /** The first layer without a KV cache of its own. */
  sharedFrom: number;
  /** Values of each layer's own input; 0: there is none. */
  perLayer: number;
  /** The layers with experts. */
  sparse: boolean[];
  /** The softcap of the logits; undefined: they are not capped. */
  logitSoftcap: number | undefined;
}

const norms = ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"];

export const gemma4: Arch<Gemma4Config> = {
  names: ["gemma4"],
  about: "Gemma 4 (text)",

  config(header) {
    const read = readerOf(header);
    const common = readCommon(header, { window: "own" });
    const { layers } = common;
    const layerHeads = read.integersPerLayer("attention.head_count", layers, LIMITS.heads);
    const layerKvHeads = read.integersPerLayer("attention.head_count_kv", layers, LIMITS.heads);
    const layerFeedForward = read.integersPerLayer("feed_forward_length", layers, LIMITS.size);
    layerKvHeads.forEach((kvHeads, i) => {
      if (layerHeads[i]! % kvHeads === 0) return;
      read.fail(`attention.head_count_kv[${i}]`, kvHeads, `a divisor of ${layerHeads[i]} heads`);
    });
    const window = read.integer("attention.sliding_window", LIMITS.context);
    const headDim = sameSize(read, "");
    const windowHeadDim = sameSize(read, "_swa");
    const windowDims = read.integerOr("rope.dimension_count_swa", windowHeadDim, windowHeadDim);
    const shared = read.number("attention.shared_kv_layers") ?? 0;
    const softcap = "final_logit_softcapping";
    const feedForward = Math.max(...layerFeedForward);
    const experts = readExperts(read, feedForward, "optional");
    const hasRouter = (layer: number) =>
      header.tensors.has(`blk.${layer}.ffn_gate_inp.weight`) && experts !== undefined;
    return {
      ...common,
      ...(experts && { experts }),
      sparse: Array.from({ length: layers }, (_, layer) => hasRouter(layer)),
      heads: Math.max(...layerHeads),
      kvHeads: Math.max(...layerKvHeads),
      headDim,
      feedForward,
      rope: ropeFromMetadata(read, headDim, "half"),
      windows: read.windowsPerLayer(layers, 6, LIMITS.context, window),
      layerHeads,
      layerKvHeads,
      layerFeedForward,
      windowHeadDim,
      windowRope: ropeOfBase(windowDims, baseOf(read, "rope.freq_base_swa", 10000), "half"),
      // Two layers at least have a cache: one with a window, one without.
      sharedFrom: shared === 0 ? layers : layers - read.integer(SHARED_KEY, layers - 2),
      perLayer: read.number(PER_LAYER_KEY) ? read.integer(PER_LAYER_KEY, LIMITS.size) : 0,
      logitSoftcap: read.number(softcap) ? read.positive(softcap) : undefined,
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...(c.perLayer > 0 ? perLayerEndWeights(c) : []),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, norms),
      ...attentionWeights({ ...c, ...headsOf(c, layer) }, layer, {
        qkvBias: "none",
        outputBias: "none",
        headNorms: true,
      }).map((spec) => ({ ...spec, ...presenceOf(c, layer, spec.name) })),
      ...gatedWeights(c.embed, c.layerFeedForward[layer]!, layer),
      ...(c.sparse[layer] ? sparseWeights(c, layer) : []),
      ...(c.perLayer > 0 ? perLayerWeights(c, layer) : []),
      { name: `blk.${layer}.layer_output_scale.weight`, shape: [1], optional: true },
    ]),
  ],

  forward(g, c, w) {
    const states: number[] = [];
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, Math.sqrt(c.embed), "embed_scaled"); // [tokens, embed]
    const inputs = c.perLayer > 0 ? perLayerInputs(g, w, x, c) : undefined; // [tokens, layers * perLayer]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const own = headsOf(c, layer);
      const { window, kvHeads, headDim } = own;
      const cols = kvHeads * headDim;
      const sharesKv = layer >= c.sharedFrom;
      states[layer] = sharesKv
        ? states[c.sharedFrom - (window ? 2 : 1)]!
        : g.state({ kind: "kv", layer, kCols: cols, vCols: cols, ...(window && { window }) });
      const options = { ...c, ...own, layer, state: states[layer], sharesKv, valueNorm: true };
      const ropeFactors = window ? "none" : undefined; // the file's factors are for full attention
      const a = attention(g, w, norm(x, "attn_norm"), { ...options, scale: 1, ropeFactors }); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const dense = geglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
      const f = c.sparse[layer]
        ? g.add(norm(dense, "post_ffw_norm_1"), mixture(g, w, x, layer, c), "ffn_sum")
        : dense; // [tokens, embed]
      x = g.add(x, norm(f, "post_ffw_norm"), "ffn_residual"); // [tokens, embed]
      if (inputs) x = g.add(x, perLayerOutput(g, w, x, inputs, layer, c), "per_layer_residual"); // [tokens, embed]
      const scale = w.maybe(`blk.${layer}.layer_output_scale.weight`); // [1]
      if (scale) x = g.mulWeight(x, scale, "layer_scaled"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    if (c.logitSoftcap === undefined) return outputs;
    return { ...outputs, logits: g.softcap(outputs.logits, c.logitSoftcap, "logits_capped") }; // [logits, vocab]
  },
};

/** The experts, with a router that reads the residual by a norm of its own: [tokens, embed] -> [tokens, embed]. */
function mixture(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  c: Gemma4Config,
): Value {
  const norm = rmsNorms(g, w, c, layer);
  const { used } = c.experts!;
  const routing = { used, gating: "softmax", normalise: true, scale: 1 } as const;
  const scales = w.get(`blk.${layer}.ffn_gate_inp.scale`); // [embed]
  const normed = g.rmsNorm(x, scales, c.normEps, "ffn_router_norm"); // [tokens, embed]
  const routed = g.scale(normed, 1 / Math.sqrt(c.embed), "ffn_router_scaled"); // [tokens, embed]
  const shape = { layer, routing, routed, activation: "gelu" } as const;
  return norm(moe(g, w, norm(x, "pre_ffw_norm_2"), shape), "post_ffw_norm_2"); // [tokens, embed]
}

/** The weights that mixture() reads, and the norm of the dense network beside it. */
function sparseWeights({ embed, experts }: Gemma4Config, layer: number): WeightSpec[] {
  const norms = ["pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"];
  return [
    ...moeWeights(embed, { ...experts!, shared: 0 }, layer),
    { name: `blk.${layer}.ffn_gate_inp.scale`, shape: [embed] },
    ...normWeights(layer, embed, norms),
  ];
}

const SHARED_KEY = "attention.shared_kv_layers";
const PER_LAYER_KEY = "embedding_length_per_layer_input";

/** Heads, window and positions of a layer. */
function headsOf(c: Gemma4Config, layer: number) {
  const window = c.windows[layer];
  return {
    heads: c.layerHeads[layer]!,
    kvHeads: c.layerKvHeads[layer]!,
    headDim: window ? c.windowHeadDim : c.headDim,
    window,
    rope: window ? c.windowRope : c.rope,
  };
}

/** Keys and values are the same where the file has no matrix for values; layers that share a cache need neither. */
function presenceOf(c: Gemma4Config, layer: number, name: string): Partial<WeightSpec> {
  const isShared = layer >= c.sharedFrom && /\.attn_[kv]/.test(name);
  return isShared || name.includes("attn_v.") ? { optional: true, unread: isShared } : {};
}

/** The size of a head of keys, which must be that of values. */
function sameSize(read: ConfigReader, suffix: string): number {
  const size = read.integer(`attention.key_length${suffix}`, LIMITS.size);
  const values = read.integer(`attention.value_length${suffix}`, LIMITS.size);
  if (values !== size) read.fail(`attention.value_length${suffix}`, values, `${size}, as keys`);
  return size;
}
