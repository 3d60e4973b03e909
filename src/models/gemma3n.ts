// Gemma 3n (text): as Gemma 3 with normed values, four residuals of which one is computed with (AltUp), a low-rank path beside
// attention (LAuReL), sparse activations in the first layers, an input of each layer's own, and layers from the 20th on that share
// the KV cache of earlier ones.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Rope, Value, Weight } from "../graph/graph.ts";
import { rowsOf } from "../graph/weight-source.ts";
import type { Arch, ModelConfig, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readCommon, readerOf } from "./config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { endWeights } from "./parts/ends.ts";
import { gatedWeights } from "./parts/feed-forward.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { normWeights, ones, rmsNorms } from "./parts/norms.ts";
import {
  perLayerEndWeights,
  perLayerInputs,
  perLayerOutput,
  perLayerWeights,
} from "./parts/per-layer-inputs.ts";
import { ropeFromMetadata, windowRope } from "./rope.ts";

interface Gemma3nConfig extends ModelConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  /** The rope of the layers with a window. */
  windowRope: Rope;
  layerFeedForward: number[];
  /** Values of each layer's own input. */
  perLayer: number;
  logitSoftcap: number;
}

/** Residuals; the first is the one that is computed with. */
const RESIDUALS = 4;
const LAUREL_RANK = 64;
const PER_LAYER = 256;
/** The first layer without a KV cache of its own. */
const SHARED_FROM = 20;
/** Layers with gates that are cut off below the 95th percentile of a normal distribution. */
const SPARSE_LAYERS = 10;
const CUTOFF = 1.6448533535003662;
/** For divisions by a magnitude. */
const TINY = 1e-30;

const norms = [
  ...["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"],
  ...["altup_router_norm", "laurel_post_norm", "altup_correct_scale"],
];

export const gemma3n: Arch<Gemma3nConfig> = {
  names: ["gemma3n"],
  about: "Gemma 3n (text)",

  config(header) {
    const read = readerOf(header);
    const common = readCommon(header, { window: "own" });
    const { layers, embed } = common;
    const heads = read.integer("attention.head_count", LIMITS.heads);
    const kvHeads = read.integerOr("attention.head_count_kv", heads, LIMITS.heads);
    if (heads % kvHeads !== 0) {
      read.fail("attention.head_count_kv", kvHeads, `a divisor of the ${heads} heads`);
    }
    const headDim = read.integerOr("attention.key_length", embed / heads, LIMITS.size);
    const layerFeedForward = read.integersPerLayer("feed_forward_length", layers, LIMITS.size);
    const rope = ropeFromMetadata(read, headDim, "half");
    const window = read.integer("attention.sliding_window", LIMITS.context);
    return {
      ...common,
      heads,
      kvHeads,
      headDim,
      feedForward: Math.max(...layerFeedForward),
      rope,
      windows: read.windowsPerLayer(layers, 5, LIMITS.context, window),
      windowRope: windowRope(read, rope, 10000),
      layerFeedForward,
      perLayer: PER_LAYER,
      logitSoftcap: read.positiveOr("final_logit_softcapping", 30),
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...perLayerEndWeights(c),
    { name: "altup_proj.weight", shape: [RESIDUALS - 1, c.embed, c.embed] },
    { name: "altup_unembd_proj.weight", shape: [RESIDUALS - 1, c.embed, c.embed] },
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, norms),
      ...ownAttentionWeights(c, layer),
      ...gatedWeights(c.embed, c.layerFeedForward[layer]!, layer),
      ...perLayerWeights(c, layer),
      ...linearWeights(layer, "altup_correct_coef", [RESIDUALS, RESIDUALS]),
      ...linearWeights(layer, "altup_predict_coef", [RESIDUALS * RESIDUALS, RESIDUALS]),
      ...linearWeights(layer, "altup_router", [RESIDUALS, c.embed]),
      ...linearWeights(layer, "laurel_l", [LAUREL_RANK, c.embed]),
      ...linearWeights(layer, "laurel_r", [c.embed, LAUREL_RANK]),
    ]),
  ],

  forward(g, c, w) {
    const states: number[] = [];
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    const x = g.scale(embedded, Math.sqrt(c.embed), "embed_scaled"); // [tokens, embed]
    const inputs = perLayerInputs(g, w, x, c); // [tokens, layers * perLayer]
    const added = projections(g, w.get("altup_proj.weight"), [x, x, x], x); // each [tokens, embed]
    let residuals = [x, ...added]; // each [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const predicted = predict(g, w, c, residuals, layer); // each [tokens, embed]
      const active = predicted[0]!; // [tokens, embed]
      const a = norm(active, "attn_norm"); // [tokens, embed]
      const low = linear(g, w, linear(g, w, a, layer, "laurel_l"), layer, "laurel_r"); // [tokens, embed]
      const laurel = g.add(norm(low, "laurel_post_norm"), a, "laurel"); // [tokens, embed]
      const attended = attention(g, w, a, { ...c, ...cacheOf(g, c, layer, states) }); // [tokens, embed]
      const post = g.add(norm(attended, "post_attention_norm"), active, "attn_residual"); // [tokens, embed]
      const mixed = g.scale(g.add(post, laurel, "attn_laurel"), Math.SQRT1_2, "laurel_residual"); // [tokens, embed]
      const fed = feedForward(g, w, norm(mixed, "ffn_norm"), layer); // [tokens, embed]
      const done = g.add(norm(fed, "post_ffw_norm"), mixed, "ffn_residual"); // [tokens, embed]
      const corrected = correct(g, w, c, predicted, done, layer); // each [tokens, embed]
      const scale = w.get(`blk.${layer}.altup_correct_scale.weight`); // [embed]
      const first = g.mulWeight(corrected[0]!, scale, "altup_scaled"); // [tokens, embed]
      const own = perLayerOutput(g, w, first, inputs, layer, c); // [tokens, embed]
      residuals = corrected.map((one, i) =>
        i === 0 ? one : g.add(one, own, `per_layer_residual_${i}`),
      );
    }
    g.layer(undefined);
    const wanted = residuals.map((one, i) => g.select(one, `selected_${i}`)); // each [outputs, embed]
    const back = projections(g, w.get("altup_unembd_proj.weight"), wanted.slice(1), wanted[0]!); // each [outputs, embed]
    const sum = back.reduce((all, one, i) => g.add(all, one, `altup_sum_${i}`), wanted[0]!); // [outputs, embed]
    const mean = g.scale(sum, 1 / RESIDUALS, "altup_mean"); // [outputs, embed]
    const hidden = rmsNorms(g, w, c, undefined)(mean, "output_norm"); // [outputs, embed]
    const matrix = w.maybe("output.weight") ?? w.get("token_embd.weight");
    const logits = g.logits(hidden, matrix, "logits"); // [logits, vocab]
    return { hidden, logits: g.softcap(logits, c.logitSoftcap, "logits_capped") }; // [logits, vocab]
  },
};

/** Layers that share a cache have matrices for keys and values in most files, which are not used. */
function ownAttentionWeights(c: Gemma3nConfig, layer: number): WeightSpec[] {
  const extras = { qkvBias: "none", outputBias: "none", headNorms: true } as const;
  const isLeft = (name: string) => layer >= SHARED_FROM && /\.attn_[kv]/.test(name);
  return attentionWeights(c, layer, extras).map((spec) =>
    isLeft(spec.name) ? { ...spec, optional: true, unread: true } : spec,
  );
}

/** Attention's options of a layer: from SHARED_FROM on, the cache of the last layer before it that has or has no window, too. */
function cacheOf(g: GraphBuilder, c: Gemma3nConfig, layer: number, states: number[]) {
  const window = c.windows[layer];
  const cols = c.kvHeads * c.headDim;
  const sharesKv = layer >= SHARED_FROM;
  states[layer] = sharesKv
    ? states[SHARED_FROM - (window ? 2 : 1)]!
    : g.state({ kind: "kv", layer, kCols: cols, vCols: cols, ...(window && { window }) });
  const rope = window ? c.windowRope : c.rope;
  return { layer, window, rope, state: states[layer], sharesKv, valueNorm: true, scale: 1 };
}

/** The matrices of a stack [n, embed, embed] times xs, each with the magnitude of `like`. */
function projections(g: GraphBuilder, stack: Weight, xs: readonly Value[], like: Value): Value[] {
  const [count, embed] = [stack.shape[0]!, stack.shape[2]!];
  const rows = { ...stack, shape: [count * embed, embed] };
  const size = magnitude(g, like, stack.name); // [tokens, 1]
  return xs.map((x, i) => {
    const name = `${stack.name.replace(".weight", "")}_${i}`;
    const out = g.matmul(x, rowsOf(rows, i * embed, embed), name); // [tokens, embed]
    const unit = g.rmsNorm(out, ones(g, embed), TINY, `${name}_unit`); // [tokens, embed]
    return g.mul(unit, size, `${name}_sized`); // [tokens, embed]
  });
}

/** sqrt(mean(x^2)): [tokens, n] -> [tokens, 1]. It is the mean of x times its norm. */
function magnitude(g: GraphBuilder, x: Value, name: string): Value {
  const unit = g.rmsNorm(x, ones(g, x.cols), TINY, `${name}_like`); // [tokens, n]
  return meanOf(g, g.mul(x, unit, `${name}_products`), `${name}_magnitude`); // [tokens, 1]
}

function meanOf(g: GraphBuilder, x: Value, name: string): Value {
  const { cols } = x;
  const values = new Float32Array(cols).fill(1 / cols);
  return g.matmul(x, g.constant(`mean[${cols}]`, values, [1, cols]), name); // [tokens, 1]
}

/** The weight of each residual for an activated one: [tokens, embed] -> [tokens, RESIDUALS]. */
function modalities(
  g: GraphBuilder,
  w: WeightLookup,
  c: Gemma3nConfig,
  x: Value,
  layer: number,
  name: string,
): Value {
  const weight = w.get(`blk.${layer}.altup_router_norm.weight`); // [embed]
  const normed = g.rmsNorm(x, weight, c.normEps, `${name}_router_norm`); // [tokens, embed]
  const scaled = g.scale(normed, 1 / c.embed, `${name}_router_scaled`); // [tokens, embed]
  const router = w.get(`blk.${layer}.altup_router.weight`);
  return g.softcap(g.matmul(scaled, router, `${name}_router`), 1, `${name}_modalities`); // [tokens, RESIDUALS]
}

/** Each residual plus a weighted sum of all of them. */
function predict(
  g: GraphBuilder,
  w: WeightLookup,
  c: Gemma3nConfig,
  residuals: readonly Value[],
  layer: number,
): Value[] {
  const seen = modalities(g, w, c, residuals[0]!, layer, "predict"); // [tokens, RESIDUALS]
  const weight = w.get(`blk.${layer}.altup_predict_coef.weight`);
  const coefs = g.matmul(seen, weight, "altup_predict_coef"); // [tokens, RESIDUALS * RESIDUALS]
  return residuals.map((own, i) =>
    residuals.reduce((sum, other, j) => {
      const coef = g.slice(coefs, i * RESIDUALS + j, 1, `predict_coef_${i}_${j}`); // [tokens, 1]
      return g.add(sum, g.mul(other, coef, `predict_${i}_${j}`), `predicted_${i}_${j}`); // [tokens, embed]
    }, own),
  );
}

/** Each prediction plus its share of the layer's addition to the first. */
function correct(
  g: GraphBuilder,
  w: WeightLookup,
  c: Gemma3nConfig,
  predicted: readonly Value[],
  activated: Value,
  layer: number,
): Value[] {
  const seen = modalities(g, w, c, activated, layer, "correct"); // [tokens, RESIDUALS]
  const weight = w.get(`blk.${layer}.altup_correct_coef.weight`);
  const coefs = g.matmul(seen, weight, "altup_correct_coef", ones(g, RESIDUALS)); // [tokens, RESIDUALS]
  const minus = g.scale(predicted[0]!, -1, "altup_minus"); // [tokens, embed]
  const added = g.add(activated, minus, "altup_innovation"); // [tokens, embed]
  return predicted.map((one, i) => {
    const coef = g.slice(coefs, i, 1, `correct_coef_${i}`); // [tokens, 1]
    return g.add(one, g.mul(added, coef, `correct_${i}`), `corrected_${i}`); // [tokens, embed]
  });
}

/** geglu() with gates that are cut off in the first layers. */
function feedForward(g: GraphBuilder, w: WeightLookup, x: Value, layer: number): Value {
  const gate = linear(g, w, x, layer, "ffn_gate"); // [tokens, feedForward]
  const up = linear(g, w, x, layer, "ffn_up"); // [tokens, feedForward]
  const kept = layer < SPARSE_LAYERS ? cutOff(g, gate) : gate; // [tokens, feedForward]
  const inner = g.gate(kept, up, "gelu", "ffn_gelu"); // [tokens, feedForward]
  return linear(g, w, inner, layer, "ffn_down"); // [tokens, embed]
}

/** max(0, x - mean - CUTOFF * deviation), with the deviation of a sample: as a norm with a bias, times the deviation. */
function cutOff(g: GraphBuilder, x: Value): Value {
  const { cols } = x;
  const unit = ones(g, cols);
  const bias = -CUTOFF * Math.sqrt(cols / (cols - 1));
  const below = g.constant(`cutoff[${cols}]`, new Float32Array(cols).fill(bias));
  const plain = g.layerNorm(x, unit, undefined, TINY, "ffn_gate_norm"); // [tokens, feedForward]
  const deviation = meanOf(g, g.mul(x, plain, "ffn_gate_products"), "ffn_gate_deviation"); // [tokens, 1]
  const above = g.layerNorm(x, unit, below, TINY, "ffn_gate_above"); // [tokens, feedForward]
  return g.mul(g.activate(above, "relu", "ffn_gate_relu"), deviation, "ffn_gate_kept"); // [tokens, feedForward]
}
