// The layer after the last one, which predicts a further token (nextn, "multi-token prediction"): from the hidden state of a
// position and the token that follows it, the logits of the token after that.
//
//   x = eh_proj [norm(embedding of token t + 1), norm(hidden state of t)], one layer of the model's own kind, norm, output matrix
//
// The hidden state is the input of the model's output matrix, or this layer's own of an earlier token: a chain. The layer has keys
// and values of its own. As in llama.cpp (graph_mtp of each model).

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Value } from "../../graph/graph.ts";
import type { ModelConfig, WeightLookup, WeightSpec } from "../arch.ts";
import type { DecoderOutputs } from "./ends.ts";
import { normWeights } from "./norms.ts";

/** The weights beside the layer's own. */
export function nextWeights(c: ModelConfig): WeightSpec[] {
  const { embed, vocabSize, layers: layer } = c;
  const table = [vocabSize, embed];
  const own = `blk.${layer}.nextn`;
  return [
    ...normWeights(layer, embed, ["nextn.enorm", "nextn.hnorm"]),
    { name: `${own}.eh_proj.weight`, shape: [embed, 2 * embed] },
    // The model's own, where the file has none for the layer.
    { name: `${own}.embed_tokens.weight`, shape: table, optional: true },
    { name: `${own}.shared_head_norm.weight`, shape: [embed], optional: true },
    { name: `${own}.shared_head_head.weight`, shape: table, optional: true },
    { name: "token_embd.weight", shape: table },
    { name: "output_norm.weight", shape: [embed] },
    { name: "output.weight", shape: table, optional: true },
  ];
}

/** `through`: the layer, [tokens, embed] -> [tokens, embed]. */
export function nextOutputs(
  g: GraphBuilder,
  c: ModelConfig,
  w: WeightLookup,
  through: (x: Value) => Value,
): DecoderOutputs {
  const { layers: layer, embed, normEps } = c;
  const own = `blk.${layer}.nextn`;
  const table = w.maybe(`${own}.embed_tokens.weight`) ?? w.get("token_embd.weight");
  const matrix = w.maybe(`${own}.shared_head_head.weight`) ?? w.maybe("output.weight") ?? table;
  const norm = w.maybe(`${own}.shared_head_norm.weight`) ?? w.get("output_norm.weight");
  const before = g.input(embed, "hidden_before"); // [tokens, embed]
  const token = g.embed(table, "embed"); // [tokens, embed]
  g.layer(layer);
  const e = g.rmsNorm(token, w.get(`${own}.enorm.weight`), normEps, "nextn.enorm"); // [tokens, embed]
  const h = g.rmsNorm(before, w.get(`${own}.hnorm.weight`), normEps, "nextn.hnorm"); // [tokens, embed]
  const both = g.concat(e, h, "nextn.concat"); // [tokens, 2 * embed]
  const x = through(g.matmul(both, w.get(`${own}.eh_proj.weight`), "nextn.eh_proj")); // [tokens, embed]
  g.layer(undefined);
  const hidden = g.rmsNorm(g.select(x, "selected"), norm, normEps, "output_norm"); // [outputs, embed]
  return { hidden, logits: g.logits(hidden, matrix, "logits") }; // [logits, vocab]
}
