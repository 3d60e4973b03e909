// RWKV 7, and ARWKV 7 (made from Qwen 2): linear attention with a state that decays and removes the value that a key held before.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value } from "../graph/graph.ts";
import { rowsOf } from "../graph/weight-source.ts";
import type { Arch, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { unit } from "./parts/delta-net.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { flat } from "./parts/mamba.ts";
import {
  headNorm,
  mixed,
  type RwkvConfig,
  readRwkv,
  rwkvEnds,
  rwkvLayer,
  rwkvNorms,
  shifted,
} from "./parts/rwkv.ts";

interface Rwkv7Config extends RwkvConfig {
  /** Columns between the two matrices of decays, of rates of learning, of values' residuals, and of gates; 0: there are no gates. */
  ranks: { decay: number; rate: number; value: number; gate: number };
}

export const rwkv7: Arch<Rwkv7Config> = {
  names: ["rwkv7", "arwkv7"],
  about: "RWKV 7, ARWKV 7",

  config(header) {
    const isQwen = readerOf(header).architecture === "arwkv7";
    const { read, ...c } = readRwkv(header, isQwen);
    const rank = (name: string) => read.integer(`attention.${name}_lora_rank`, LIMITS.size);
    const ranks = {
      decay: rank("decay"),
      rate: rank("iclr"),
      value: rank("value_residual_mix"),
      gate: isQwen && !header.tensors.has("blk.0.time_mix_g1.weight") ? 0 : rank("gate"),
    };
    return { ...c, ranks };
  },

  weights: (c) => [
    ...rwkvEnds(c),
    ...layerWeights(c, (layer) => [...rwkvLayer(c, layer), ...timeMixWeights(c, layer)]),
  ],

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    const endNorm = rwkvNorms(g, w, c, undefined);
    let x = c.isQwen ? embedded : endNorm(embedded, "token_embd_norm"); // [tokens, embed]
    let first: Value | undefined;
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rwkvNorms(g, w, c, layer);
      const { out, v } = timeMix(g, w, norm(x, "attn_norm"), c, layer, first);
      first ??= v;
      x = g.add(x, out, "attn_residual"); // [tokens, embed]
      const f = c.isQwen
        ? swiglu(g, w, norm(x, "ffn_norm"), layer)
        : channelMix(g, w, norm(x, "attn_norm_2"), layer); // [tokens, embed]
      x = g.add(x, f, "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, endNorm);
  },
};

/** value(relu(key)^2): [tokens, embed] -> [tokens, embed]. */
function channelMix(g: GraphBuilder, w: WeightLookup, x: Value, layer: number): Value {
  const shift = shifted(g, x, layer, "channel_mix_shift"); // [tokens, embed]
  const lerp = w.get(`blk.${layer}.channel_mix_lerp_k.weight`);
  const part = mixed(g, x, shift, lerp, "channel_mix_xk"); // [tokens, embed]
  const key = linear(g, w, part, layer, "channel_mix_key"); // [tokens, feedForward]
  const inner = g.activate(key, "relu_squared", "channel_mix_squared"); // [tokens, feedForward]
  return linear(g, w, inner, layer, "channel_mix_value"); // [tokens, embed]
}

/** The result of a layer, and its values, which later layers mix with theirs: [tokens, embed] each. */
function timeMix(
  g: GraphBuilder,
  w: WeightLookup,
  x: Value,
  c: Rwkv7Config,
  layer: number,
  first: Value | undefined,
): { out: Value; v: Value } {
  const { embed, headSize } = c;
  const heads = embed / headSize;
  const weight = (name: string) => w.get(`blk.${layer}.time_mix_${name}.weight`);
  const shift = shifted(g, x, layer, "time_mix_shift"); // [tokens, embed]
  const lerps = flat(weight("lerp_fused")); // [6 * embed]: of r, w, k, v, a, g
  const part = (name: string, index: number) =>
    mixed(g, x, shift, rowsOf(lerps, index * embed, embed), `time_mix_x${name}`); // [tokens, embed]
  const low = (input: Value, name: string) =>
    g.matmul(input, weight(`${name}1`), `time_mix_${name}1`); // [tokens, rank]
  const high = (input: Value, name: string) =>
    g.matmul(input, weight(`${name}2`), `time_mix_${name}2`, weight(`${name}0`)); // [tokens, embed]
  const minus = (value: Value, name: string) => g.scale(value, -1, name);

  const r = linear(g, w, part("r", 0), layer, "time_mix_receptance"); // [tokens, embed]
  const bounded = g.softcap(low(part("w", 1), "w"), 1, "time_mix_w_tanh"); // [tokens, rank]
  const rate = g.activate(high(bounded, "w"), "sigmoid", "time_mix_w_sigmoid"); // [tokens, embed]
  const decay = g.activate(g.scale(rate, -0.606531, "time_mix_w_scaled"), "exp", "time_mix_w"); // [tokens, embed]
  const key = linear(g, w, part("k", 2), layer, "time_mix_key"); // [tokens, embed]
  const xv = part("v", 3); // [tokens, embed]
  const own = linear(g, w, xv, layer, "time_mix_value"); // [tokens, embed]
  let v = own; // [tokens, embed]
  if (first) {
    const difference = g.add(first, minus(own, "time_mix_v_minus"), "time_mix_v_difference"); // [tokens, embed]
    const share = high(low(xv, "v"), "v"); // [tokens, embed]
    v = g.add(own, g.gate(share, difference, "sigmoid", "time_mix_v_part"), "time_mix_v");
  }
  const a = g.activate(high(low(part("a", 4), "a"), "a"), "sigmoid", "time_mix_a"); // [tokens, embed]
  const removed = unit(
    g,
    g.mulWeight(key, weight("k_k"), "time_mix_kk"),
    headSize,
    1e-12,
    "time_mix_kk_unit",
  ); // [tokens, embed]
  const scaled = g.mulWeight(key, weight("k_a"), "time_mix_ka"); // [tokens, embed]
  const change = g.add(
    g.mul(a, scaled, "time_mix_aka"),
    minus(scaled, "time_mix_ka_minus"),
    "time_mix_k_change",
  );
  const k = g.add(key, change, "time_mix_k"); // [tokens, embed]
  const state = g.state({ kind: "recurrent", layer, floats: embed * headSize });
  const removal = { a: minus(removed, "time_mix_kk_minus"), b: g.mul(removed, a, "time_mix_kka") };
  const operands = { r, w: decay, k, v, ...removal, bonus: undefined, heads, state };
  const plain = g.wkv(operands, "time_mix_wkv"); // [tokens, embed]
  const hasNorm = w.maybe(`blk.${layer}.time_mix_ln.weight`) !== undefined;
  const scanned = hasNorm ? headNorm(g, w, plain, headSize, layer) : plain; // [tokens, embed]
  const weighed = g.mulWeight(g.mul(k, r, "time_mix_kr"), weight("r_k"), "time_mix_rk"); // [tokens, embed]
  const bonus = g.mul(headSums(g, weighed, heads, "time_mix_rk_sum"), v, "time_mix_bonus"); // [tokens, embed]
  const sum = g.add(scanned, bonus, "time_mix_sum"); // [tokens, embed]
  if (c.ranks.gate === 0) return { out: linear(g, w, sum, layer, "time_mix_output"), v };
  const opened = g.activate(low(part("g", 5), "g"), "sigmoid", "time_mix_g_sigmoid"); // [tokens, rank]
  const gate = g.matmul(opened, weight("g2"), "time_mix_g2"); // [tokens, embed]
  return { out: linear(g, w, g.mul(sum, gate, "time_mix_gated"), layer, "time_mix_output"), v };
}

/** The sum of each head in all of its columns: [tokens, n] -> [tokens, n]. */
function headSums(g: GraphBuilder, x: Value, heads: number, name: string): Value {
  const { cols } = x;
  const size = cols / heads;
  const isOf = (head: number, col: number) => (Math.floor(col / size) === head ? 1 : 0);
  const sums = Float32Array.from({ length: heads * cols }, (_, i) =>
    isOf(Math.floor(i / cols), i % cols),
  );
  const spread = Float32Array.from({ length: heads * cols }, (_, i) =>
    isOf(i % heads, Math.floor(i / heads)),
  );
  const perHead = g.matmul(x, g.constant(`sums[${heads},${cols}]`, sums, [heads, cols]), name); // [tokens, heads]
  return g.matmul(
    perHead,
    g.constant(`spread[${cols},${heads}]`, spread, [cols, heads]),
    `${name}_spread`,
  );
}

function timeMixWeights({ embed, ranks, isQwen }: Rwkv7Config, layer: number): WeightSpec[] {
  const named = (name: string, ...shape: number[]) => ({
    name: `blk.${layer}.time_mix_${name}.weight`,
    shape,
  });
  const pair = (name: string, rank: number) => [
    ...linearWeights(layer, `time_mix_${name}1`, [rank, embed]),
    ...linearWeights(layer, `time_mix_${name}2`, [embed, rank]),
  ];
  const squares = ["key", "value", "receptance"].flatMap((name) =>
    linearWeights(layer, `time_mix_${name}`, [embed, embed]),
  );
  const groupNorm = ["weight", "bias"].map((part) => ({
    name: `blk.${layer}.time_mix_ln.${part}`,
    shape: [embed],
    optional: true,
  }));
  // The first layer has these, too, of another size, and does not use them.
  const residual = [named("v0", embed), ...pair("v", layer === 0 ? ranks.rate : ranks.value)];
  return [
    ...(isQwen ? [...squares, ...groupNorm] : []),
    named("lerp_fused", ranks.gate === 0 ? 5 : 6, embed),
    named("w0", embed),
    ...pair("w", ranks.decay),
    named("a0", embed),
    ...pair("a", ranks.rate),
    ...residual.map((spec) => (layer === 0 ? { ...spec, optional: true, unread: true } : spec)),
    ...(ranks.gate === 0 ? [] : pair("g", ranks.gate)),
    ...["k_k", "k_a", "r_k"].map((name) => named(name, embed)),
  ];
}
