// Granite with adapters: as Granite, and every matrix has low-rank additions, one for each adapter. A token that activates one stands
// in the text; from there on, this adapter is added. Attention over the tokens that do so finds it.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import type { Arch, ModelConfig, ModelHeader, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readConfig, readerOf } from "./config.ts";
import type { ConfigReader } from "./config-reader.ts";
import { attentionWeights } from "./parts/attention.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs, endWeights } from "./parts/ends.ts";
import { gatedWeights } from "./parts/feed-forward.ts";
import { linear, linearRows } from "./parts/linear.ts";
import { normWeights, rmsNorms } from "./parts/norms.ts";
import { repeated } from "./parts/repeat.ts";
import { ropeFactors } from "./parts/rope-factors.ts";

interface SwitchConfig extends ModelConfig {
  /** Factor on the scores; undefined: the usual one. */
  scale: number | undefined;
  embedScale: number;
  residualScale: number;
  /** The divisor of logits. */
  logitScale: number;
  hasRope: boolean;
  /** The token that activates each adapter, and the token that lends it its embedding. */
  activating: readonly number[];
  substitutes: readonly number[];
  /** Columns between the two matrices of an addition. */
  rank: number;
  /** The distance from 0 of the score of a token that activates an adapter. */
  gain: number;
}

/** Adapter numbers up to here are exact where floats find the nearest of them. */
const MOST_ADAPTERS = 512;

export const graniteswitch: Arch<SwitchConfig> = {
  names: ["graniteswitch"],
  about: "Granite with adapters that tokens switch",

  config(header) {
    const read = readerOf(header);
    const c = readConfig(header, "interleaved");
    const count = read.integer("adapters.count", MOST_ADAPTERS);
    return {
      ...c,
      fusedQkv: true,
      scale: read.number("attention.scale") ? read.positive("attention.scale") : undefined,
      embedScale: read.positiveOr("embedding_scale", 1),
      residualScale: read.positiveOr("residual_scale", 1),
      logitScale: read.positive("logit_scale"),
      hasRope: read.boolean("rope.scaling.finetuned") ?? true,
      activating: tokensOf(header, "adapters.token_ids_activate", count, c.vocabSize),
      substitutes: tokensOf(header, "adapters.token_ids_substitute", count, c.vocabSize),
      rank: read.integer("adapters.lora_rank", LIMITS.size),
      gain: read.positiveOr("adapters.router_gain", 15),
    };
  },

  weights: (c) => [
    ...endWeights(c),
    ...layerWeights(c, (layer) => [
      ...normWeights(layer, c.embed, ["attn_norm", "ffn_norm"]),
      ...attentionWeights(c, layer, { qkvBias: "none", outputBias: "none", headNorms: false }),
      ...gatedWeights(c.embed, c.feedForward, layer),
      ...additionWeights(c, layer),
    ]),
  ],

  forward(g, c, w) {
    const pairs = c.activating.flatMap((token, i) => [token, c.substitutes[i]!]);
    const embedded = g.embed(w.get("token_embd.weight"), "embed", pairs); // [tokens, embed]
    const signals = g.embed(signalTable(g, c), "router_signals"); // [tokens, 12]
    let x = g.scale(embedded, c.embedScale, "embed_scaled"); // [tokens, embed]
    let routes: Value | undefined; // [tokens, 2]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      routes ??= router(g, signals, c);
      const matrices = switched(g, w, layer, routes);
      const norm = rmsNorms(g, w, c, layer);
      const a = attend(g, w, norm(x, "attn_norm"), c, layer, matrices); // [tokens, embed]
      x = g.add(x, g.scale(a, c.residualScale, "attn_scaled"), "attn_residual"); // [tokens, embed]
      const f = norm(x, "ffn_norm"); // [tokens, embed]
      const gate = matrices(f, linear(g, w, f, layer, "ffn_gate"), "ffn_gate"); // [tokens, feedForward]
      const up = matrices(f, linear(g, w, f, layer, "ffn_up"), "ffn_up"); // [tokens, feedForward]
      const inner = g.gate(gate, up, "silu", "ffn_silu"); // [tokens, feedForward]
      const out = matrices(inner, linear(g, w, inner, layer, "ffn_down"), "ffn_down"); // [tokens, embed]
      x = g.add(x, g.scale(out, c.residualScale, "ffn_scaled"), "ffn_residual"); // [tokens, embed]
    }
    const outputs = decoderOutputs(g, c, w, x);
    return { ...outputs, logits: g.scale(outputs.logits, 1 / c.logitScale, "logits_scaled") }; // [logits, vocab]
  },
};

function tokensOf(header: ModelHeader, key: string, count: number, vocabSize: number): number[] {
  const read: ConfigReader = readerOf(header);
  const found = read.integers(key, count, vocabSize - 1);
  if (!found) read.fail(key, undefined, `${count} tokens`);
  return found;
}

/** Adds the token's adapter to `base`, a matmul of x with the matrix `name`. */
type Switched = (x: Value, base: Value, name: string) => Value;

function switched(g: GraphBuilder, w: WeightLookup, layer: number, routes: Value): Switched {
  return (x, base, name) => {
    const part = (input: Value, suffix: string) =>
      g.matmulId(input, routes, w.get(`blk.${layer}.${name}.${suffix}`), `${name}_${suffix}`);
    const added = part(part(x, "lora_a"), "lora_b"); // [tokens, n]
    return g.add(base, added, `${name}_switched`); // [tokens, n]
  };
}

function attend(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  c: SwitchConfig,
  layer: number,
  matrices: Switched,
): Value {
  const { heads, kvHeads, headDim, scale = 1 / Math.sqrt(headDim) } = c;
  const [qCols, kvCols] = [heads * headDim, kvHeads * headDim];
  const part = (name: string, from: number, count: number) => {
    const base = linearRows(g, w, x, { layer, fused: "attn_qkv", name, from, count });
    return matrices(x, base, name);
  };
  const turned = (value: Value, name: string) =>
    c.hasRope ? g.rope(value, headDim, c.rope, name, ropeFactors(w, c)) : value;
  const q = part("attn_q", 0, qCols); // [tokens, heads * headDim]
  const k = part("attn_k", qCols, kvCols); // [tokens, kvHeads * headDim]
  const v = part("attn_v", qCols + kvCols, kvCols); // [tokens, kvHeads * headDim]
  const state = g.state({ kind: "kv", layer, kCols: kvCols, vCols: kvCols });
  const qTurned = turned(q, "attn_q_rope"); // [tokens, heads * headDim]
  g.kvWrite(turned(k, "attn_k_rope"), v, state);
  const attended = g.attention(qTurned, { state, heads, kvHeads, headDim, scale }, "attn"); // [tokens, heads * headDim]
  return matrices(attended, linear(g, w, attended, layer, "attn_output"), "attn_output"); // [tokens, embed]
}

/** Times that signals are beside themselves: a cache of 8-bit blocks holds 32 values at least. */
const TIMES = 8;

/** Query, key and value of each token in the first of 4 columns each: 1; the gain, or its negative; the number of its adapter, or 0. */
function signalTable(g: GraphBuilder, { vocabSize, activating, gain }: SwitchConfig) {
  const table = new Float32Array(vocabSize * 12);
  for (let token = 0; token < vocabSize; token++) {
    table[token * 12] = 1;
    table[token * 12 + 4] = -gain;
  }
  activating.forEach((token, i) => {
    table[token * 12 + 4] = gain;
    table[token * 12 + 8] = i + 1;
  });
  return g.constant("router_signals", table, [vocabSize, 12]);
}

/** The adapter of each token, as routes of one slot; 0: none. */
function router(g: GraphBuilder, signals: Value, { activating }: SwitchConfig): Value {
  const cols = 4 * TIMES;
  const part = (name: string, from: number) =>
    repeated(g, g.slice(signals, from, 4, name), TIMES, name); // [tokens, 4 * TIMES]
  const state = g.state({ kind: "kv", layer: 0, kCols: cols, vCols: cols });
  const q = part("router_q", 0);
  g.kvWrite(part("router_k", 4), part("router_v", 8), state, "router_kv");
  const options = { state, heads: 1, kvHeads: 1, headDim: cols, scale: 1 / TIMES };
  const attended = g.attention(q, options, "router"); // [tokens, 4 * TIMES]
  const found = g.slice(attended, 0, 4, "router_found"); // [tokens, 4]: the number of the adapter, and zeros
  // The nearest number n is the one with the largest 2 n x - n^2; of two, the larger.
  const count = activating.length + 1;
  const doubled = new Float32Array(4 * count);
  const squares = new Float32Array(count);
  for (let n = 0; n < count; n++) {
    doubled[4 * n] = 2 * n;
    squares[n] = 1e-6 * n - n * n;
  }
  const bias = g.constant("router_squares", squares);
  const nearest = g.matmul(
    found,
    g.constant("router_numbers", doubled, [count, 4]),
    "router_nearest",
    bias,
  ); // [tokens, count]
  const routing = { used: 1, gating: "none", normalise: false, scale: 1 } as const;
  return g.route(nearest, routing, "router_route"); // [tokens, 2]
}

function additionWeights(c: SwitchConfig, layer: number): WeightSpec[] {
  const { embed, feedForward, heads, kvHeads, headDim, rank } = c;
  const slots = c.activating.length + 1; // the first is without an adapter
  const [qCols, kvCols] = [heads * headDim, kvHeads * headDim];
  const sizes: [name: string, inputs: number, outputs: number][] = [
    ["attn_q", embed, qCols],
    ["attn_k", embed, kvCols],
    ["attn_v", embed, kvCols],
    ["attn_output", qCols, embed],
    ["ffn_gate", embed, feedForward],
    ["ffn_up", embed, feedForward],
    ["ffn_down", feedForward, embed],
  ];
  return sizes.flatMap(([name, inputs, outputs]) => [
    { name: `blk.${layer}.${name}.lora_a`, shape: [slots, rank, inputs] },
    { name: `blk.${layer}.${name}.lora_b`, shape: [slots, outputs, rank] },
  ]);
}
