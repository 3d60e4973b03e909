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

/** What can be read after a batch of an encoder whose last residual is x, [tokens, embed]; `norm`: the last one, if any. */
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
