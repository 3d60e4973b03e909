// Qwen 3 (dense), and the text side of its VL models: as Llama, with a norm of every q and k head before the rotation, and rotary pairs half a head apart.

import type { Arch, ModelConfig } from "./arch.ts";
import { readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { classifierScores } from "./parts/classifier.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { rmsNorms } from "./parts/norms.ts";
import { classifierLabels } from "./pooling.ts";
import { interleavedSections } from "./rope.ts";

interface Qwen3Config extends ModelConfig {
  /** Scores of the classifier, where the file has one. */
  labels: number;
}

export const qwen3: Arch<Qwen3Config> = {
  names: ["qwen3", "qwen3vl"],
  about: "Qwen 3 (dense), Qwen3-Embedding, Qwen3-Reranker, Qwen 3 VL (text)",

  config(header) {
    const labels = Math.max(1, classifierLabels(header.metadata).length);
    const c = { ...readConfig(header, "half"), labels };
    const read = readerOf(header);
    const hasSections = read.architecture === "qwen3vl";
    return hasSections ? { ...c, rope: interleavedSections(read, c.rope, "required") } : c;
  },

  weights: (c) => [
    ...decoderWeights(c, { headNorms: true }),
    { name: "cls.output.weight", shape: [c.labels, c.embed], optional: true },
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    // A reranker's scores are the probabilities of its labels.
    const labels = classifierScores(g, w, outputs.hidden, c); // [logits, labels]
    return labels ? { ...outputs, scores: g.softmax(labels, "cls_softmax") } : outputs;
  },
};
