// The parts that decoder-only transformers share, each a few lines of graph. An architecture's forward() puts them
// together; what a file does not have (biases, q/k norms) is simply not computed.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { ModelConfig, WeightLookup, WeightSpec } from "./arch.ts";

/** x + attention(norm(x)): [tokens, embed]. */
export function attentionBlock(
  g: GraphBuilder,
  c: ModelConfig,
  w: WeightLookup,
  x: Value,
  layer: number,
): Value {
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const project = (input: Value, name: string) =>
    g.matmul(input, weight(name), name, w.maybe(`blk.${layer}.${name}.bias`));
  /** Qwen3's norm of each head, where the model has one. */
  const headNorm = (heads: Value, name: string) => {
    const norm = w.maybe(`blk.${layer}.${name}.weight`);
    return norm ? g.rmsNorm(heads, norm, c.normEps, name) : heads;
  };
  const factors = w.maybe("rope_freqs.weight");

  const normed = g.rmsNorm(x, weight("attn_norm"), c.normEps, "attn_norm"); // [tokens, embed]
  const q = headNorm(project(normed, "attn_q"), "attn_q_norm"); // [tokens, heads * headDim]
  const k = headNorm(project(normed, "attn_k"), "attn_k_norm"); // [tokens, kvHeads * headDim]
  const v = project(normed, "attn_v"); // [tokens, kvHeads * headDim]
  const qRoped = g.rope(q, c.headDim, c.rope, "attn_q_rope", factors);
  const kRoped = g.rope(k, c.headDim, c.rope, "attn_k_rope", factors);
  g.kvWrite(kRoped, v, layer);
  const { heads, kvHeads, headDim } = c;
  const scale = 1 / Math.sqrt(headDim);
  const attended = g.attention(qRoped, { layer, heads, kvHeads, headDim, scale }, "attn");
  return g.add(x, project(attended, "attn_output"), "attn_residual"); // [tokens, embed]
}

/** x + down(silu(gate(norm(x))) * up(norm(x))): [tokens, embed]. */
export function gatedFeedForward(
  g: GraphBuilder,
  c: ModelConfig,
  w: WeightLookup,
  x: Value,
  layer: number,
): Value {
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const normed = g.rmsNorm(x, weight("ffn_norm"), c.normEps, "ffn_norm"); // [tokens, embed]
  const gate = g.matmul(normed, weight("ffn_gate"), "ffn_gate"); // [tokens, feedForward]
  const up = g.matmul(normed, weight("ffn_up"), "ffn_up"); // [tokens, feedForward]
  const hidden = g.gate(gate, up, "silu", "ffn_silu"); // [tokens, feedForward]
  return g.add(x, g.matmul(hidden, weight("ffn_down"), "ffn_down"), "ffn_residual");
}

/** The last norm and the output matrix, for the tokens whose logits are wanted: [outputs, vocab]. */
export function logitsHead(g: GraphBuilder, c: ModelConfig, w: WeightLookup, x: Value): Value {
  g.layer(undefined);
  const wanted = g.select(x, "selected"); // [outputs, embed]
  const normed = g.rmsNorm(wanted, w.get("output_norm.weight"), c.normEps, "output_norm");
  // Tied embeddings: the table that made the input also reads the output.
  const output = w.maybe("output.weight") ?? w.get("token_embd.weight");
  return g.matmul(normed, output, "logits");
}

/** The whole stack, for architectures that are just that. */
export function decoder(g: GraphBuilder, c: ModelConfig, w: WeightLookup): Value {
  let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
  for (let layer = 0; layer < c.layers; layer++) {
    g.layer(layer);
    x = attentionBlock(g, c, w, x, layer);
    x = gatedFeedForward(g, c, w, x, layer);
  }
  return logitsHead(g, c, w, x);
}

/** Names and shapes of the weights that decoder() reads; the extras say which optional parts the family has. */
export function decoderWeights(
  c: ModelConfig,
  extras: { qkvBias: "required" | "optional" | "none"; headNorms: boolean },
): WeightSpec[] {
  const qCols = c.heads * c.headDim;
  const kvCols = c.kvHeads * c.headDim;
  const specs: WeightSpec[] = [
    { name: "token_embd.weight", shape: [c.vocabSize, c.embed] },
    { name: "output_norm.weight", shape: [c.embed] },
    { name: "output.weight", shape: [c.vocabSize, c.embed], optional: true },
    { name: "rope_freqs.weight", shape: [c.rope.dims / 2], optional: true },
  ];
  const bias = (name: string, size: number): WeightSpec[] =>
    extras.qkvBias === "none"
      ? []
      : [{ name, shape: [size], optional: extras.qkvBias === "optional" }];
  for (let layer = 0; layer < c.layers; layer++) {
    const blk = `blk.${layer}`;
    specs.push(
      { name: `${blk}.attn_norm.weight`, shape: [c.embed] },
      { name: `${blk}.attn_q.weight`, shape: [qCols, c.embed] },
      { name: `${blk}.attn_k.weight`, shape: [kvCols, c.embed] },
      { name: `${blk}.attn_v.weight`, shape: [kvCols, c.embed] },
      ...bias(`${blk}.attn_q.bias`, qCols),
      ...bias(`${blk}.attn_k.bias`, kvCols),
      ...bias(`${blk}.attn_v.bias`, kvCols),
      { name: `${blk}.attn_output.weight`, shape: [c.embed, qCols] },
      { name: `${blk}.attn_output.bias`, shape: [c.embed], optional: true },
      { name: `${blk}.ffn_norm.weight`, shape: [c.embed] },
      { name: `${blk}.ffn_gate.weight`, shape: [c.feedForward, c.embed] },
      { name: `${blk}.ffn_up.weight`, shape: [c.feedForward, c.embed] },
      { name: `${blk}.ffn_down.weight`, shape: [c.embed, c.feedForward] },
    );
    if (extras.headNorms) {
      specs.push(
        { name: `${blk}.attn_q_norm.weight`, shape: [c.headDim] },
        { name: `${blk}.attn_k_norm.weight`, shape: [c.headDim] },
      );
    }
  }
  return specs;
}
