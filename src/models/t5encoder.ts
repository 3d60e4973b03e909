// The encoder of T5: RMS norms before each half of a layer, no positions but a bias on the scores for the distance of two tokens,
// which all layers share; scores are not scaled. A GELU-gated network (T5 1.1), or a plain one with ReLU (T5).

import type { GraphBuilder } from "../graph/builder.ts";
import type { Weight } from "../graph/graph.ts";
import type { Arch, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { encoderOutputs } from "./parts/encoder.ts";
import { gatedWeights, geglu, mlp } from "./parts/feed-forward.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";

/** Distances from this on have the last bucket. */
const MOST_DISTANCE = 128;

interface T5Config extends EncoderConfig {
  /** Buckets of distances, half of them for keys after the query. */
  buckets: number;
}

export const t5encoder: Arch<T5Config> = {
  names: ["t5encoder"],
  about: "encoders of T5, T5 1.1, Flan-T5, UMT5 and mT5",

  config(header) {
    const read = readerOf(header);
    const key = "attention.relative_buckets_count";
    const buckets = read.integer(key, LIMITS.size);
    if (buckets % 4 !== 0) read.fail(key, buckets, "a multiple of 4");
    return { ...readEncoderConfig(header, "half"), buckets };
  },

  weights: (c) => [
    { name: "token_embd.weight", shape: [c.vocabSize, c.embed] },
    { name: "enc.output_norm.weight", shape: [c.embed] },
    // Not read: hidden states are the result.
    { name: "output.weight", shape: [c.vocabSize, c.embed], optional: true, unread: true },
    ...layerWeights(c, (layer) => layerOf(c, layer)).map((spec) => ({
      ...spec,
      name: encoderName(spec.name),
    })),
  ],

  forward(g, c, w) {
    const own = encoderLookup(w);
    const buckets = distanceBuckets(g, c.buckets); // [2 * 128 + 1]
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, own, c, layer);
      const bias = relativeBias(own, layer); // [buckets * heads]
      const options = { ...c, layer, rope: undefined, scale: 1, bias, buckets };
      const a = attention(g, own, norm(x, "attn_norm"), options); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const isGated = own.maybe(`blk.${layer}.ffn_gate.weight`) !== undefined;
      const inner = isGated ? geglu(g, own, f, layer) : mlp(g, own, f, layer, "relu"); // [tokens, embed]
      x = g.add(x, inner, "ffn_residual"); // [tokens, embed]
    }
    const norm = rmsNorms(g, w, c, undefined);
    return encoderOutputs(g, w, x, undefined, (y) => norm(y, "enc.output_norm"));
  },
};

function layerOf(c: T5Config, layer: number): WeightSpec[] {
  const { embed, heads, feedForward, buckets } = c;
  return [
    ...normWeights(layer, embed, ["attn_norm", "ffn_norm"]),
    ...attentionWeights(c, layer, { qkvBias: "none", outputBias: "none", headNorms: false }),
    { name: `blk.${layer}.attn_rel_b.weight`, shape: [buckets, heads], optional: layer > 0 },
    ...gatedWeights(embed, feedForward, layer).map((spec) =>
      spec.name.includes("ffn_gate") ? { ...spec, optional: true } : spec,
    ),
  ];
}

/** The name that T5's files have for a weight of a layer. */
function encoderName(name: string): string {
  return `enc.${name.replace("attn_output", "attn_o")}`;
}

function encoderLookup(w: WeightLookup): WeightLookup {
  return { get: (name) => w.get(encoderName(name)), maybe: (name) => w.maybe(encoderName(name)) };
}

/** The layer's own, or that of the first layer. */
function relativeBias(w: WeightLookup, layer: number): Weight {
  const weight = w.maybe(`blk.${layer}.attn_rel_b.weight`) ?? w.get("blk.0.attn_rel_b.weight"); // [buckets, heads]
  return { ...weight, shape: [weight.shape[0]! * weight.shape[1]!] };
}

/** Near distances have a bucket each, further ones share buckets of growing width; positions after the query have the second half. */
function distanceBuckets(g: GraphBuilder, buckets: number): Weight {
  const half = buckets / 2;
  const exact = half / 2;
  const values = Float32Array.from({ length: 2 * MOST_DISTANCE + 1 }, (_, i) => {
    const distance = i - MOST_DISTANCE;
    const far = Math.abs(distance);
    const shared =
      exact +
      (Math.fround(Math.log(far / exact)) * (half - exact)) / Math.log(MOST_DISTANCE / exact);
    const bucket = far < exact ? far : Math.min(Math.floor(Math.fround(shared)), half - 1);
    return bucket + (distance > 0 ? half : 0);
  });
  return g.constant(`buckets[${buckets}]`, values);
}
