// The two ends of a decoder: the token embeddings, and the last norm with the output matrix.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { Outputs, Value } from "../../graph/graph.ts";
import type { ModelConfig, WeightLookup, WeightSpec } from "../arch.ts";
import { type Presence, present } from "./linear.ts";
import { type Norm, rmsNorms } from "./norms.ts";
import { type Contexts, ropeFactorWeights } from "./rope-factors.ts";

/** The outputs of a batch of a decoder. */
export interface DecoderOutputs extends Outputs {
  readonly hidden: Value;
  readonly logits: Value;
}

/** The last hidden state and the logits, for the tokens that are outputs. */
export function decoderOutputs(
  g: GraphBuilder,
  c: ModelConfig,
  w: WeightLookup,
  x: Value,
  norm: Norm = rmsNorms(g, w, c, undefined),
): DecoderOutputs {
  g.layer(undefined);
  const wanted = g.select(x, "selected"); // [outputs, embed]
  const hidden = norm(wanted, "output_norm"); // [outputs, embed]
  // Tied embeddings: the output matrix is the embedding table.
  const matrix = w.maybe("output.weight") ?? w.get("token_embd.weight");
  return { hidden, logits: g.logits(hidden, matrix, "logits", w.maybe("output.bias")) }; // [logits, vocab]
}

/** Which optional weights the ends of a family have. */
export interface EndExtras {
  /** The weight of the last norm. Default: "required". */
  readonly outputNorm?: Presence;
  readonly outputNormBias?: Presence;
  /** The output matrix. Default: "optional"; without it, the embedding table is used. */
  readonly output?: Presence;
  readonly logitsBias?: Presence;
}

/** The weights of both ends, and of rope where the file has factors for it. */
export function endWeights(
  c: Pick<ModelConfig, "vocabSize" | "embed" | "rope"> & Contexts,
  {
    outputNorm = "required",
    outputNormBias = "none",
    output = "optional",
    logitsBias = "none",
  }: EndExtras = {},
): WeightSpec[] {
  const { vocabSize, embed } = c;
  return [
    { name: "token_embd.weight", shape: [vocabSize, embed] },
    ...present({ name: "output_norm.weight", shape: [embed] }, outputNorm),
    ...present({ name: "output_norm.bias", shape: [embed] }, outputNormBias),
    ...present({ name: "output.weight", shape: [vocabSize, embed] }, output),
    ...present({ name: "output.bias", shape: [vocabSize] }, logitsBias),
    ...ropeFactorWeights(c),
  ];
}
