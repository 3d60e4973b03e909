// GroveMoE: as Qwen 3 with experts; their results go through smaller, adjugate experts, each of which neighbouring experts share. The
// same router chooses both.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Routing, Value } from "../graph/graph.ts";
import type { Arch, ExpertConfig, ModelConfig, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import { attention } from "./parts/attention.ts";
import { decoderWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { routedExperts } from "./parts/moe.ts";
import { rmsNorms } from "./parts/norms.ts";

interface GroveConfig extends ModelConfig {
  experts: ExpertConfig;
  /** Experts that share an adjugate one, columns between the matrices of one of these, and the factor on their sum. */
  sharing: number;
  adjugate: number;
  adjugateScale: number;
}

export const grovemoe: Arch<GroveConfig> = {
  names: ["grovemoe"],
  about: "GroveMoE",

  config(header) {
    const read = readerOf(header);
    const c = readConfig(header, "half", { experts: "required" });
    const experts = c.experts!;
    const key = "experts_per_group";
    const sharing = read.integer(key, experts.count);
    if (experts.count % sharing !== 0 || experts.used > experts.count / sharing) {
      read.fail(key, sharing, `a divisor of ${experts.count} that leaves ${experts.used} groups`);
    }
    return {
      ...c,
      experts,
      sharing,
      adjugate: read.integerOr("expert_chunk_feed_forward_length", c.headDim, LIMITS.size),
      adjugateScale: read.positive("expert_group_scale"),
    };
  },

  weights: (c) =>
    decoderWeights(c, { headNorms: true, feedForward: (layer) => expertWeights(c, layer) }),

  forward(g, c, w) {
    const { used } = c.experts;
    const routing: Routing = { used, gating: "softmax", normalise: true, scale: 1 };
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rmsNorms(g, w, c, layer);
      const a = norm(x, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      x = g.add(x, mixtures(g, w, f, layer, routing, c), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** The experts, and the adjugate experts of their results: [tokens, embed] -> [tokens, embed]. */
function mixtures(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  routing: Routing,
  { sharing, adjugateScale }: GroveConfig,
): Value {
  const logits = g.matmul(x, w.get(`blk.${layer}.ffn_gate_inp.weight`), "ffn_gate_inp"); // [tokens, experts]
  const routes = g.route(logits, routing, "ffn_route"); // [tokens, 2 * used]
  const out = routedExperts(g, w, x, layer, routes, "exps"); // [tokens, embed]
  const shared = g.route(logits, { ...routing, sharing }, "ffn_route_adjugate"); // [tokens, 2 * used]
  const more = routedExperts(g, w, out, layer, shared, "chexps"); // [tokens, embed]
  return g.add(out, g.scale(more, adjugateScale, "ffn_adjugate_scaled"), "ffn_moe_all");
}

function expertWeights(
  { embed, experts: { count, feedForward }, sharing, adjugate }: GroveConfig,
  layer: number,
): WeightSpec[] {
  const named = (name: string, ...shape: number[]) => ({
    name: `blk.${layer}.${name}.weight`,
    shape,
  });
  return [
    named("ffn_gate_inp", count, embed),
    named("ffn_gate_exps", count, feedForward, embed),
    named("ffn_up_exps", count, feedForward, embed),
    named("ffn_down_exps", count, embed, feedForward),
    named("ffn_gate_chexps", count / sharing, adjugate, embed),
    named("ffn_up_chexps", count / sharing, adjugate, embed),
    named("ffn_down_chexps", count / sharing, embed, adjugate),
  ];
}
