// Granite with windows, also with experts: as Granite, with sinks in every layer, and windows and positions in some. Gate and up of the
// shared expert are one tensor.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { fusedGatedWeights, fusedSwiglu, gatedWeights, swiglu } from "./parts/feed-forward.ts";
import { moe, moeWeights } from "./parts/moe.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";

interface GraniteSwaConfig extends ModelConfig {
  /** The window of each layer. */
  windows: (number | undefined)[];
  /** The layers that have positions. */
  hasRope: boolean[];
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
  embedScale: number;
  residualScale: number;
  /** The divisor of logits. */
  logitScale: number;
  /** Factor on the weights of experts. */
  routingScale: number;
}

const SCALE_KEY = "expert_weights_scale";

export const graniteSwa: Arch<GraniteSwaConfig> = {
  names: ["granite_swa"],
  about: "Granite with windows, also with experts",

  config(header) {
    const c = readConfig(header, "interleaved", { window: "own", experts: "optional" });
    const read = readerOf(header);
    return {
      ...c,
      windows: read.windowsPerLayer(c.layers, 1, LIMITS.context),
      hasRope: read.flagsPerLayer("attention.rope_pattern", c.layers, 0),
      scale: read.number("attention.scale") ? read.positive("attention.scale") : undefined,
      embedScale: read.positiveOr("embedding_scale", 1),
      residualScale: read.positiveOr("residual_scale", 1),
      logitScale: read.positive("logit_scale"),
      // 0 is 1, as in llama.cpp.
      routingScale: read.number(SCALE_KEY) ? read.positive(SCALE_KEY) : 1,
    };
  },

  weights: (c) => [
    ...decoderWeights(c, {
      feedForward: (layer) =>
        c.experts
          ? sparseWeights(c, layer)
          : gatedWeights(c.embed, c.feedForward, layer, "optional"),
    }),
    ...Array.from({ length: c.layers }, (_, i) => normWeights(i, c.heads, ["attn_sinks"])).flat(),
  ],

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    let x = g.scale(embedded, c.embedScale, "embed_scaled"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const sinks = w.get(`blk.${layer}.attn_sinks.weight`); // [heads]
      const rope = c.hasRope[layer] ? c.rope : undefined;
      const options = { ...c, layer, rope, window: c.windows[layer], sinks };
      const a = attention(g, w, norm(x, "attn_norm"), options); // [tokens, embed]
      x = g.add(x, g.scale(a, c.residualScale, "attn_scaled"), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const out = c.experts ? mixture(g, w, f, layer, c) : swiglu(g, w, f, layer); // [tokens, embed]
      x = g.add(x, g.scale(out, c.residualScale, "ffn_scaled"), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    return { ...outputs, logits: g.scale(outputs.logits, 1 / c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};

/** The experts and the shared one: [tokens, embed] -> [tokens, embed]. */
function mixture(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  { experts, routingScale }: GraniteSwaConfig,
): Value {
  const { used, shared } = experts!;
  const routing = { used, gating: "softmax", normalise: true, scale: routingScale } as const;
  const out = moe(g, w, x, { layer, routing }); // [tokens, embed]
  if (shared === 0) return out;
  return g.add(out, fusedSwiglu(g, w, x, layer, shared, "_shexp"), "ffn_moe_shared"); // [tokens, embed]
}

function sparseWeights({ embed, experts }: GraniteSwaConfig, layer: number): WeightSpec[] {
  const { shared } = experts!;
  return [
    ...moeWeights(embed, { ...experts!, shared: 0 }, layer),
    ...(shared > 0 ? fusedGatedWeights(embed, shared, layer, "_shexp") : []),
  ];
}
