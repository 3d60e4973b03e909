// The two ends of a decoder: the token embeddings, and the last norm with the output matrix.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Outputs, Value } from "../../graph/graph.ts";
import type { ModelConfig, WeightLookup, WeightSpec } from "../arch.ts";

/** The last hidden state and the logits, for the tokens that are outputs. */
export function decoderOutputs(
  g: GraphBuilder,
  { normEps }: ModelConfig,
  w: WeightLookup,
  x: Value,
): Outputs {
  g.layer(undefined);
  const wanted = g.select(x, "selected"); // [outputs, embed]
  const hidden = g.rmsNorm(wanted, w.get("output_norm.weight"), normEps, "output_norm"); // [outputs, embed]
  // Tied embeddings: the output matrix is the embedding table.
  const matrix = w.maybe("output.weight") ?? w.get("token_embd.weight");
  return { hidden, logits: g.logits(hidden, matrix, "logits") }; // [logits, vocab]
}

/** The weights of both ends, and of rope where the file has factors for it. */
export function endWeights({ vocabSize, embed, rope }: ModelConfig): WeightSpec[] {
  return [
    { name: "token_embd.weight", shape: [vocabSize, embed] },
    { name: "output_norm.weight", shape: [embed] },
    { name: "output.weight", shape: [vocabSize, embed], optional: true },
    { name: "rope_freqs.weight", shape: [rope.dims / 2], optional: true },
  ];
}
