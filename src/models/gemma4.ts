// Gemma 4 (text, without experts): as Gemma 3, with heads of another size in layers with a window, normed values, layers at the end
// that share the KV cache of earlier ones, an input of each layer's own, and a scale of each layer's result.

import type { Rope } from "../graph/graph.ts";
import type { Arch, ModelConfig } from "./arch.ts";
import { LIMITS, readCommon, readerOf, refuseExperts } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights, geglu } from "./parts/feed-forward.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import {
  perLayerEndWeights,
  perLayerInputs,
  perLayerOutput,
  perLayerWeights,
} from "./parts/per-layer-inputs.ts";
import { baseOf, ropeFromMetadata, ropeOfBase } from "./rope.ts";

interface Gemma4Config extends ModelConfig {
  /** Of each layer. */
  windows: (number | undefined)[];
  layerHeads: number[];
  layerKvHeads: number[];
  layerFeedForward: number[];
  /** Of the layers with a window. */
  windowHeadDim: number;
  windowRope: Rope;
  /** The first layer without a KV cache of its own. */
  sharedFrom: number;
  /** Values of each layer's own input; 0: there is none. */
  perLayer: number;
  /** Of the logits; undefined: they are not capped. */
  logitSoftcap: number | undefined;
}

const norms = ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"];

export const gemma4: Arch<Gemma4Config> = {
  names: ["gemma4"],
  about: "Gemma 4 (text, without experts)",

  config(header) {
    const read = readerOf(header);
    refuseExperts(read);
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
    return {
      ...common,
      heads: Math.max(...layerHeads),
      kvHeads: Math.max(...layerKvHeads),
      headDim,
      feedForward: Math.max(...layerFeedForward),
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
      }).map((spec) => ({ ...spec, ...(isOptional(c, layer, spec.name) && { optional: true }) })),
      ...gatedWeights(c.embed, c.layerFeedForward[layer]!, layer),
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
      const ropeFactors = window ? "none" : undefined; // those of the file are for full attention
      const a = attention(g, w, norm(x, "attn_norm"), { ...options, scale: 1, ropeFactors }); // [tokens, embed]
      x = g.add(x, norm(a, "post_attention_norm"), "attn_residual"); // [tokens, embed]
      const f = geglu(g, w, norm(x, "ffn_norm"), layer); // [tokens, embed]
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
function isOptional(c: Gemma4Config, layer: number, name: string): boolean {
  return name.includes("attn_v.") || (layer >= c.sharedFrom && name.includes("attn_k"));
}

/** The size of a head of keys, which must be that of values. */
function sameSize(read: ConfigReader, suffix: string): number {
  const size = read.integer(`attention.key_length${suffix}`, LIMITS.size);
  const values = read.integer(`attention.value_length${suffix}`, LIMITS.size);
  if (values !== size) read.fail(`attention.value_length${suffix}`, values, `${size}, as keys`);
  return size;
}
