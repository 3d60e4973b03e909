// The two ends of encoders: embeddings with the types of tokens, and hidden states with the scores of a classifier.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Outputs, Value } from "../../graph/graph.ts";
import { rowsOf } from "../../graph/weight-source.ts";
import type { WeightLookup, WeightSpec } from "../arch.ts";
import type { EncoderConfig } from "../encoder-config.ts";
import { attentionWeights } from "./attention.ts";
import {
  classifierScores,
  classifierWeights,
  type HeadLayers,
  type HeadShape,
  hasClassifier,
} from "./classifier.ts";
import { layerWeights } from "./decoder-weights.ts";
import { layerNorms, normWeights } from "./norms.ts";

/** [tokens, embed]: all tokens have type 0, the first of two texts. */
export function typedEmbedding(g: GraphBuilder, w: WeightLookup): Value {
  const x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
  const types = w.maybe("token_types.weight");
  if (!types) return x;
  const first = { ...rowsOf(types, 0, 1), shape: [x.cols] }; // [embed]
  return g.addWeight(x, first, "embed_types"); // [tokens, embed]
}

/** typedEmbedding() after the norm that BERT's descendants have: [tokens, embed]. */
export function normedEmbedding(g: GraphBuilder, c: EncoderConfig, w: WeightLookup): Value {
  return layerNorms(g, w, c, undefined)(typedEmbedding(g, w), "token_embd_norm");
}

/** The outputs of a batch of an encoder with the last residual x, [tokens, embed]; `norm`: the last one, if any. */
export function encoderOutputs(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  head: HeadShape | undefined,
  norm: (x: Value) => Value = (y) => y,
): Outputs {
  g.layer(undefined);
  const hidden = norm(g.select(x, "selected")); // [outputs, embed]
  const scores = head && classifierScores(g, w, hidden, head); // [logits, labels]
  return { hidden, ...(scores && { scores }) };
}

/** The same where the classifier reads the mean over the whole text. */
export function encoderOutputsOfMean(
  g: GraphBuilder,
  c: EncoderConfig,
  w: WeightLookup,
  x: Value,
  head: HeadShape,
  norm: (x: Value) => Value,
): Outputs {
  if (!hasClassifier(w)) return encoderOutputs(g, w, x, undefined, norm);
  g.layer(undefined);
  const normed = norm(x); // [tokens, embed]
  const hidden = g.select(normed, "selected"); // [outputs, embed]
  const mean = g.select(textMean(g, c, normed), "selected_mean"); // [outputs, embed]
  const scores = classifierScores(g, w, mean, head)!; // [logits, labels]
  return { hidden, scores };
}

/** The mean of x over each token's text: attention with all scores 0, to x itself: [tokens, embed] -> [tokens, embed]. */
function textMean(g: GraphBuilder, { heads, layers }: EncoderConfig, x: Value): Value {
  const state = g.state({ kind: "kv", layer: layers, kCols: x.cols, vCols: x.cols });
  const query = g.scale(x, 0, "mean_query"); // [tokens, embed]
  g.kvWrite(x, x, state);
  const shape = { state, heads, kvHeads: heads, headDim: x.cols / heads };
  return g.attention(query, { ...shape, scale: 1, causal: false }, "mean"); // [tokens, embed]
}

function typeWeights({ tokenTypes, embed }: EncoderConfig): WeightSpec[] {
  if (tokenTypes === 0) return [];
  return [{ name: "token_types.weight", shape: [tokenTypes, embed], optional: true }];
}

/** The weights of a BERT: both ends, and layers with norms behind attention and behind the network. */
export function bertWeights(
  c: EncoderConfig,
  feedForward: (layer: number) => WeightSpec[],
  head: HeadLayers = "two",
): WeightSpec[] {
  return [
    { name: "token_embd.weight", shape: [c.vocabSize, c.embed] },
    ...typeWeights(c),
    { name: "token_embd_norm.weight", shape: [c.embed] },
    { name: "token_embd_norm.bias", shape: [c.embed] },
    ...classifierWeights(c, head),
    ...layerWeights(c, (layer) => [
      ...attentionWeights(c, layer, { qkvBias: "optional", headNorms: false }),
      ...normWeights(layer, c.embed, ["attn_output_norm", "layer_output_norm"], "required"),
      ...feedForward(layer),
    ]),
  ];
}
