// A mixture of experts, without the norm before it and the residual after it: a router chooses some feed-forward networks for each
// token, and the weighted sum of their results is the output. Parts that a file does not have (biases, a shared expert) are not
// computed.

import type { GraphBuilder } from "../../graph/builder.ts";
import type { GateActivation, Routing, Value } from "../../graph/graph.ts";
import type { ExpertConfig, WeightLookup, WeightSpec } from "../arch.ts";
import type { SparseConfig } from "../sparse-config.ts";
import { gatedWeights, gateWithin, swiglu } from "./feed-forward.ts";
import { type Presence, present } from "./linear.ts";

export interface MoeShape {
  readonly layer: number;
  readonly routing: Routing;
  /** Default: silu. */
  readonly activation?: GateActivation;
  /** The router's input: [tokens, embed]. Default: the experts' input. */
  readonly routed?: Value;
  /** The limit of silu(gate) and up, of experts and of the shared one. Default: they are not limited. */
  readonly limit?: number | undefined;
  readonly sharedLimit?: number | undefined;
}

/** Gate and up of all experts in one tensor, which newer files have. */
const FUSED = "ffn_gate_up_exps";

/** [tokens, embed] -> [tokens, embed]: weight * down(silu(gate(x)) * up(x)), summed over a token's experts, plus the shared one. */
export function moe(g: GraphBuilder, w: WeightLookup, x: Value, shape: MoeShape): Value {
  const { layer, routing, activation = "silu", routed = x } = shape;
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const bias = (name: string) => w.maybe(`blk.${layer}.${name}.bias`);
  const experts = (input: Value, name: string) =>
    g.matmulId(input, routes, weight(name), name, bias(name));

  const logits = g.matmul(routed, weight("ffn_gate_inp"), "ffn_gate_inp", bias("ffn_gate_inp")); // [tokens, experts]
  const scales = w.maybe(`blk.${layer}.ffn_down_exps.scale`); // [experts]
  const choice = bias("exp_probs_b") ?? w.maybe(`blk.${layer}.exp_probs_b`); // [experts]
  const routes = g.route(logits, routing, "ffn_route", choice, scales); // [tokens, 2 * used]
  const half = (fused: Value, name: string, part: number) => {
    const size = fused.cols / 2 / routing.used;
    return g.slice(fused, part * size, size, name, routing.used); // [tokens, used * feedForward]
  };
  const fused = w.maybe(`blk.${layer}.${FUSED}.weight`) && experts(x, FUSED); // [tokens, used * 2 * feedForward]
  const gate = fused ? half(fused, "ffn_gate_exps", 0) : experts(x, "ffn_gate_exps"); // [tokens, used * feedForward]
  const up = fused ? half(fused, "ffn_up_exps", 1) : experts(x, "ffn_up_exps"); // [tokens, used * feedForward]
  const inner = gateWithin(g, gate, up, activation, "exps", shape.limit); // [tokens, used * feedForward]
  const down = experts(inner, "ffn_down_exps"); // [tokens, used * embed]
  const out = g.combine(down, routes, "ffn_moe"); // [tokens, embed]
  const shared = sharedExpert(g, w, x, layer, activation, shape.sharedLimit); // [tokens, embed]
  return shared ? g.add(out, shared, "ffn_moe_shared") : out;
}

/** The experts of `routes` alone, without fused matrices and biases; `suffix`: of their tensors' names. */
export function routedExperts(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  routes: Value,
  suffix: string,
): Value {
  const experts = (input: Value, name: string) =>
    g.matmulId(input, routes, w.get(`blk.${layer}.${name}_${suffix}.weight`), `${name}_${suffix}`);
  const [gate, up] = [experts(x, "ffn_gate"), experts(x, "ffn_up")]; // [tokens, used * feedForward]
  const inner = g.gate(gate, up, "silu", `ffn_silu_${suffix}`); // [tokens, used * feedForward]
  return g.combine(experts(inner, "ffn_down"), routes, `ffn_moe_${suffix}`); // [tokens, embed]
}

/** The expert that every token uses, weighted by a gate of its own where the file has one; undefined: there is none. */
export function sharedExpert(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  activation: GateActivation,
  limit?: number,
): Value | undefined {
  const maybe = (name: string) => w.maybe(`blk.${layer}.${name}.weight`);
  const gateWeight = maybe("ffn_gate_shexp");
  if (!gateWeight) return undefined;
  const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
  const gate = g.matmul(x, gateWeight, "ffn_gate_shexp"); // [tokens, shared]
  const up = g.matmul(x, weight("ffn_up_shexp"), "ffn_up_shexp"); // [tokens, shared]
  const inner = gateWithin(g, gate, up, activation, "shexp", limit); // [tokens, shared]
  const down = g.matmul(inner, weight("ffn_down_shexp"), "ffn_down_shexp"); // [tokens, embed]
  const ownGate = maybe("ffn_gate_inp_shexp");
  if (!ownGate) return down;
  const weighed = g.matmul(x, ownGate, "ffn_gate_inp_shexp"); // [tokens, 1]
  return g.gate(weighed, down, "sigmoid", "ffn_shexp"); // [tokens, embed]
}

/** Which optional weights a family has. */
export interface MoeExtras {
  /** Biases of the experts' matrices and of the router. */
  readonly biases?: boolean;
  /** A bias on the router's scores, for choosing only. Default: "none". */
  readonly choiceBias?: Presence;
  /** A gate of the shared expert, where the model has one. */
  readonly sharedGate?: boolean;
}

/** The weights that moe() reads. */
export function moeWeights(
  embed: number,
  { count, feedForward, shared }: ExpertConfig,
  layer: number,
  { biases = false, choiceBias = "none", sharedGate = false }: MoeExtras = {},
): WeightSpec[] {
  const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
  const fused = named(`${FUSED}.weight`, count, 2 * feedForward, embed);
  const own = [
    named("ffn_gate_inp.weight", count, embed),
    { ...fused, optional: true },
    { ...named("ffn_gate_exps.weight", count, feedForward, embed), unless: fused.name },
    { ...named("ffn_up_exps.weight", count, feedForward, embed), unless: fused.name },
    named("ffn_down_exps.weight", count, embed, feedForward),
    { ...named("ffn_down_exps.scale", count), optional: true },
  ];
  const ownBiases = [
    named("ffn_gate_inp.bias", count),
    named("ffn_gate_exps.bias", count, feedForward),
    named("ffn_up_exps.bias", count, feedForward),
    named("ffn_down_exps.bias", count, embed),
  ];
  const ofShared = [
    named("ffn_gate_shexp.weight", shared, embed),
    named("ffn_up_shexp.weight", shared, embed),
    named("ffn_down_shexp.weight", embed, shared),
    ...(sharedGate ? [named("ffn_gate_inp_shexp.weight", 1, embed)] : []),
  ];
  // The bias has two names.
  const short = named("exp_probs_b", count);
  const choice =
    choiceBias === "none"
      ? []
      : [
          ...present({ ...named("exp_probs_b.bias", count), unless: short.name }, choiceBias),
          ...present(short, "optional"),
        ];
  return [...own, ...(biases ? ownBiases : []), ...choice, ...(shared > 0 ? ofShared : [])];
}

/** The experts of a layer that has some, and the dense network of one that has none: [tokens, embed] -> [tokens, embed]. */
export function moeOrSwiglu(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  layer: number,
  { sparse, routing }: Pick<SparseConfig, "sparse" | "routing">,
): Value {
  return sparse[layer] ? moe(g, w, x, { layer, routing }) : swiglu(g, w, x, layer);
}

/** The weights that moeOrSwiglu() reads. */
export function moeOrSwigluWeights(
  { embed, experts, feedForward, sparse }: SparseConfig,
  layer: number,
  extras?: MoeExtras,
): WeightSpec[] {
  return sparse[layer]
    ? moeWeights(embed, experts, layer, extras)
    : gatedWeights(embed, feedForward, layer);
}
