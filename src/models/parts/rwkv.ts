// The common parts of RWKV 6 and 7: the token before, group norms of heads, and their configuration. Models made from Qwen 2 (QRWKV,
// ARWKV) have RMS norms, a SiLU-gated network, and in a layer one state of the token before instead of two.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value, Weight } from "../../graph/graph.ts";
import type { ModelConfig, ModelHeader, WeightLookup, WeightSpec } from "../arch.ts";
import { LIMITS, readerOf } from "../config.ts";
import type { ConfigReader } from "../config-reader.ts";
import { readAttentionless } from "../recurrent-config.ts";
import { gatedWeights } from "./feed-forward.ts";
import { linearWeights } from "./linear.ts";
import { layerNorms, type Norm, ones, rmsNorms } from "./norms.ts";

export interface RwkvConfig extends ModelConfig {
  /** Columns of a head. */
  headSize: number;
  /** Made from Qwen 2. */
  isQwen: boolean;
}

export function readRwkv(
  header: ModelHeader,
  isQwen: boolean,
): RwkvConfig & { read: ConfigReader } {
  const read = readerOf(header);
  const c = readAttentionless(header, { norm: isQwen ? "rms" : "layer" });
  const headSize = read.integer("wkv.head_size", LIMITS.size);
  if (c.embed % headSize !== 0) {
    read.fail("wkv.head_size", headSize, `a divisor of embedding_length, ${c.embed}`);
  }
  const shifts = read.integerOr("token_shift_count", 2, 2);
  const expected = isQwen ? 1 : 2;
  if (shifts !== expected) read.fail("token_shift_count", shifts, `${expected}`);
  return {
    ...c,
    headSize,
    isQwen,
    feedForward: read.integer("feed_forward_length", LIMITS.size),
    read,
  };
}

/** The token before minus this one; 0 comes before the first: [tokens, n] -> [tokens, n]. */
export function shifted(g: GraphBuilder, x: Value, layer: number, name: string): Value {
  const { cols } = x;
  const values = Float32Array.from({ length: 2 * cols }, (_, i) => (i % 2 === 0 ? 1 : -1));
  const taps = g.constant(`shift[${cols}]`, values, [cols, 2]);
  const state = g.state({ kind: "recurrent", layer, floats: cols });
  return g.shortConv(x, taps, state, name);
}

/** x + difference * weight: [tokens, n] -> [tokens, n]. */
export function mixed(
  g: GraphBuilder,
  x: Value,
  difference: Value,
  weight: Weight,
  name: string,
): Value {
  return g.add(x, g.mulWeight(difference, weight, `${name}_part`), name);
}

/** The norms of a layer, or the ones outside of layers. */
export function rwkvNorms(
  g: GraphBuilder,
  w: WeightLookup,
  c: RwkvConfig,
  layer: number | undefined,
): Norm {
  if (!c.isQwen) return layerNorms(g, w, c, layer);
  return (x, name) => {
    const normed = rmsNorms(g, w, c, layer)(x, name);
    const bias = layer === undefined ? w.maybe(`${name}.bias`) : undefined;
    return bias ? g.addWeight(normed, bias, `${name}_biased`) : normed;
  };
}

/** LayerNorm of each head, with a weight and a bias for each column (time_mix_ln): [tokens, n] -> [tokens, n]. */
export function headNorm(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  headSize: number,
  layer: number,
): Value {
  const plain = g.layerNorm(x, ones(g, headSize), undefined, 64e-5, "time_mix_ln_plain"); // [tokens, n]
  const [weight, bias] = ["weight", "bias"].map((part) =>
    w.get(`blk.${layer}.time_mix_ln.${part}`),
  );
  const weighed = g.mulWeight(plain, weight!, "time_mix_ln_weighed"); // [tokens, n]
  return g.addWeight(weighed, bias!, "time_mix_ln"); // [tokens, n]
}

/** The weights of both ends, and of norms and matrices that both versions have in a layer. */
export function rwkvEnds({ vocabSize, embed, isQwen }: RwkvConfig): WeightSpec[] {
  const vector = (name: string) => ({ name, shape: [embed] });
  const norms = ["token_embd_norm", "output_norm"].flatMap((name) => [
    vector(`${name}.weight`),
    vector(`${name}.bias`),
  ]);
  return [
    { name: "token_embd.weight", shape: [vocabSize, embed] },
    ...(isQwen
      ? [vector("output_norm.weight"), { ...vector("output_norm.bias"), optional: true }]
      : norms),
    { name: "output.weight", shape: [vocabSize, embed], optional: true },
  ];
}

export function rwkvLayer({ embed, feedForward, isQwen }: RwkvConfig, layer: number): WeightSpec[] {
  const vector = (name: string) => ({ name: `blk.${layer}.${name}`, shape: [embed] });
  if (isQwen) {
    return [
      vector("attn_norm.weight"),
      vector("ffn_norm.weight"),
      ...linearWeights(layer, "time_mix_output", [embed, embed]),
      ...gatedWeights(embed, feedForward, layer),
    ];
  }
  return [
    ...["attn_norm", "attn_norm_2", "time_mix_ln"].flatMap((name) => [
      vector(`${name}.weight`),
      vector(`${name}.bias`),
    ]),
    ...["key", "value", "receptance", "output"].flatMap((name) =>
      linearWeights(layer, `time_mix_${name}`, [embed, embed]),
    ),
    vector("channel_mix_lerp_k.weight"),
    ...linearWeights(layer, "channel_mix_key", [feedForward, embed]),
    ...linearWeights(layer, "channel_mix_value", [embed, feedForward]),
  ];
}
