// ModernBERT: LayerNorms without bias before each half of a layer (the first layer has only that of the embeddings), rotary
// positions, symmetric windows with a rope base of their own in all but every third layer, a gated GELU or SiLU network.

import type { Activation, Rope } from "../graph/graph.ts";
import type { Arch, ModelHeader } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";
import { type EncoderConfig, readEncoderConfig } from "./encoder-config.ts";
import { readGating } from "./gating.ts";
import { attention, attentionWeights } from "./parts/attention.ts";
import { classifierWeights } from "./parts/classifier.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { encoderOutputsOfMean } from "./parts/encoder.ts";
import { fusedGated, fusedGatedWeights } from "./parts/feed-forward.ts";
import { layerNorms } from "./parts/norms.ts";
import { windowRope } from "./rope.ts";

interface ModernConfig extends EncoderConfig {
  windows: (number | undefined)[];
  windowRope: Rope;
  gating: Activation;
}

export const modernBert: Arch<ModernConfig> = {
  names: ["modern-bert"],
  about: "ModernBERT, gte-modernbert, Granite Embedding R2, nomic modernbert-embed",
  config: readModern,

  weights: (c) => [
    { name: "token_embd.weight", shape: [c.vocabSize, c.embed] },
    { name: "token_embd_norm.weight", shape: [c.embed] },
    { name: "output_norm.weight", shape: [c.embed] },
    ...classifierWeights(c, "normed"),
    ...layerWeights(c, (layer) => [
      { name: `blk.${layer}.attn_norm.weight`, shape: [c.embed], optional: layer === 0 },
      { name: `blk.${layer}.ffn_norm.weight`, shape: [c.embed] },
      ...attentionWeights(c, layer, { qkvBias: "none", outputBias: "none", headNorms: false }),
      ...fusedGatedWeights(c.embed, c.feedForward, layer),
    ]),
  ],

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    const outer = layerNorms(g, w, c, undefined);
    let x = outer(embedded, "token_embd_norm"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = layerNorms(g, w, c, layer);
      const window = c.windows[layer];
      const rope = window ? c.windowRope : c.rope;
      const hasNorm = w.maybe(`blk.${layer}.attn_norm.weight`) !== undefined;
      const normed = hasNorm ? norm(x, "attn_norm") : x; // [tokens, embed]
      const a = attention(g, w, normed, { ...c, layer, window, rope }); // [tokens, embed]
      x = g.add(x, a, "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, fusedGated(g, w, f, layer, c.feedForward, c.gating), "ffn_residual"); // [tokens, embed]
    }
    const head = { normEps: c.normEps, activation: "gelu" } as const;
    return encoderOutputsOfMean(g, c, w, x, head, (y) => outer(y, "output_norm"));
  },
};

function readModern(header: ModelHeader): ModernConfig {
  const read = readerOf(header);
  const c = readEncoderConfig(header, "half", { norm: "layer", window: "own" });
  const full = read.positiveOr("rope.freq_base", 10000);
  return {
    ...c,
    windows: windowsOf(read, c.layers),
    windowRope: windowRope(read, c.rope, full),
    gating: readGating(read, "gelu"),
  };
}

/** The first of every period of layers has no window. */
function windowsOf(read: ConfigReader, layers: number): (number | undefined)[] {
  const window = read.count("attention.sliding_window", LIMITS.context);
  const every = read.integerOr("attention.sliding_window_pattern", 3, layers + 1);
  return Array.from({ length: layers }, (_, layer) =>
    window > 0 && layer % every !== 0 ? window : undefined,
  );
}
