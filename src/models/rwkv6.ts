// RWKV 6, and QRWKV 6 (made from Qwen 2): linear attention with a state that decays at a rate that depends on the token.

import type { GraphBuilder } from "../graph/builder.ts";
import type { Value, Weight } from "../graph/graph.ts";
import { rowsOf } from "../graph/weight-source.ts";
import type { Arch, WeightLookup, WeightSpec } from "./arch.ts";
import { LIMITS, readerOf } from "./config.ts";
import { layerWeights } from "./parts/decoder-weights.ts";
import { decoderOutputs } from "./parts/ends.ts";
import { swiglu } from "./parts/feed-forward.ts";
import { linear, linearWeights } from "./parts/linear.ts";
import { flat } from "./parts/mamba.ts";
import { repeated } from "./parts/repeat.ts";
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

interface Rwkv6Config extends RwkvConfig {
  /** Columns between the two matrices of mixtures, and of decays. */
  mixRank: number;
  decayRank: number;
  /** The residual is halved after each period of this many layers; 0: never. */
  halveEvery: number;
  /** The shares of the token before are one tensor. */
  fusedLerps: boolean;
  /** The number of neighbouring heads that share keys and values. */
  sharing: number;
}

/** The values that the token before is mixed into, in the order of the tensors. */
const parts = ["w", "k", "v", "r", "g"] as const;

export const rwkv6: Arch<Rwkv6Config> = {
  names: ["rwkv6", "rwkv6qwen2"],
  about: "RWKV 6, QRWKV 6",

  config(header) {
    const isQwen = readerOf(header).architecture === "rwkv6qwen2";
    const { read, ...c } = readRwkv(header, isQwen);
    const halve = "rescale_every_n_layers";
    const heads = c.embed / c.headSize;
    const kvHeads = isQwen ? read.count("attention.head_count_kv", heads) || heads : heads;
    if (heads % kvHeads !== 0) {
      read.fail("attention.head_count_kv", kvHeads, `0 or a divisor of the ${heads} heads`);
    }
    return {
      sharing: heads / kvHeads,
      ...c,
      mixRank: read.integer("time_mix_extra_dim", LIMITS.size),
      decayRank: read.integer("time_decay_extra_dim", LIMITS.size),
      // llama.cpp reads the key in both, and computes it in the first.
      halveEvery: read.number(halve) && !isQwen ? read.integer(halve, LIMITS.layers) : 0,
      fusedLerps: header.tensors.has("blk.0.time_mix_lerp_fused.weight"),
    };
  },

  weights: (c) => [
    ...rwkvEnds(c),
    ...layerWeights(c, (layer) => [...rwkvLayer(c, layer), ...ownWeights(c, layer)]),
  ],

  forward(g, c, w) {
    const embedded = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    const endNorm = rwkvNorms(g, w, c, undefined);
    let x = c.isQwen ? embedded : endNorm(embedded, "token_embd_norm"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = rwkvNorms(g, w, c, layer);
      const t = timeMix(g, w, norm(x, "attn_norm"), c, layer); // [tokens, embed]
      x = g.add(x, t, "attn_residual"); // [tokens, embed]
      const f = c.isQwen
        ? swiglu(g, w, norm(x, "ffn_norm"), layer)
        : channelMix(g, w, norm(x, "attn_norm_2"), layer); // [tokens, embed]
      x = g.add(x, f, "ffn_residual"); // [tokens, embed]
      const isHalved = c.halveEvery > 0 && (layer + 1) % c.halveEvery === 0;
      if (isHalved) x = g.scale(x, 0.5, "halved"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x, endNorm);
  },
};

/** [tokens, embed] -> [tokens, embed] */
function timeMix(g: GraphBuilder, w: WeightLookup, x: Value, c: Rwkv6Config, layer: number): Value {
  const { embed, headSize, mixRank } = c;
  const weight = (name: string) => w.get(`blk.${layer}.time_mix_${name}.weight`);
  const bounded = (value: Value, name: string) => g.softcap(value, 1, `time_mix_${name}_tanh`);
  const shift = shifted(g, x, layer, "time_mix_shift"); // [tokens, embed]
  const all = mixed(g, x, shift, weight("lerp_x"), "time_mix_xx"); // [tokens, embed]
  const low = bounded(g.matmul(all, weight("w1"), "time_mix_w1"), "mix"); // [tokens, 5 * mixRank]
  // The second matrices of all parts are one tensor, one after the other: [5 * embed, mixRank].
  const second: Weight = { ...weight("w2"), shape: [parts.length * embed, mixRank] };
  /** The token with a share of the one before that depends on both: [tokens, embed]. */
  const part = (index: number) => {
    const name = parts[index]!;
    const own = g.slice(low, index * mixRank, mixRank, `time_mix_low_${name}`); // [tokens, mixRank]
    const lerp = c.fusedLerps
      ? rowsOf(flat(weight("lerp_fused")), index * embed, embed)
      : flat(weight(`lerp_${name}`));
    const share = g.matmul(
      own,
      rowsOf(second, index * embed, embed),
      `time_mix_share_${name}`,
      lerp,
    );
    return g.add(x, g.mul(share, shift, `time_mix_part_${name}`), `time_mix_x${name}`);
  };

  const lowDecay = bounded(g.matmul(part(0), weight("decay_w1"), "time_mix_decay_w1"), "decay");
  const rate = g.matmul(lowDecay, weight("decay_w2"), "time_mix_decay_w2", flat(weight("decay"))); // [tokens, embed]
  const speed = g.scale(g.activate(rate, "exp", "time_mix_rate"), -1, "time_mix_speed"); // [tokens, embed]
  const decay = g.activate(speed, "exp", "time_mix_decay"); // [tokens, embed]
  const k = linear(g, w, part(1), layer, "time_mix_key"); // [tokens, embed]
  const v = linear(g, w, part(2), layer, "time_mix_value"); // [tokens, embed]
  const r = linear(g, w, part(3), layer, "time_mix_receptance"); // [tokens, embed]
  const gate = linear(g, w, part(4), layer, "time_mix_gate"); // [tokens, embed]
  const state = g.state({ kind: "recurrent", layer, floats: embed * headSize });
  if (c.isQwen) {
    const kvHeads = embed / headSize / c.sharing;
    const shared = (value: Value, name: string) =>
      repeated(g, value, c.sharing, `time_mix_${name}_shared`, kvHeads);
    // A key's weight is the part of the state that decays: k * (1 - w).
    const keys = shared(k, "k"); // [tokens, embed]
    const kept = g.scale(g.mul(keys, decay, "time_mix_kw"), -1, "time_mix_kw_minus"); // [tokens, embed]
    const key = g.add(keys, kept, "time_mix_kx"); // [tokens, embed]
    const scaled = g.scale(r, headSize ** -0.5, "time_mix_r_scaled"); // [tokens, embed]
    // RWKV 7's rule, without a removal.
    const removal = { a: key, b: g.scale(key, 0, "time_mix_none") };
    const gla = { r: scaled, w: decay, k: key, v: shared(v, "v"), ...removal, bonus: undefined };
    const y = g.wkv({ ...gla, heads: embed / headSize, state }, "time_mix_wkv"); // [tokens, embed]
    const gated = g.gate(gate, y, "sigmoid", "time_mix_gated"); // [tokens, embed]
    return linear(g, w, gated, layer, "time_mix_output"); // [tokens, embed]
  }
  const bonus = flat(weight("first")); // [embed]
  const operands = { r, w: decay, k, v, a: undefined, b: undefined, bonus, state };
  const y = g.wkv({ ...operands, heads: embed / headSize }, "time_mix_wkv"); // [tokens, embed]
  const normed = headNorm(g, w, y, headSize, layer); // [tokens, embed]
  const gated = g.gate(gate, normed, "silu", "time_mix_gated"); // [tokens, embed]
  return linear(g, w, gated, layer, "time_mix_output"); // [tokens, embed]
}

/** sigmoid(receptance) * value(relu(key)^2): [tokens, embed] -> [tokens, embed]. */
function channelMix(g: GraphBuilder, w: WeightLookup, x: Value, layer: number): Value {
  const shift = shifted(g, x, layer, "channel_mix_shift"); // [tokens, embed]
  const part = (name: string) =>
    mixed(
      g,
      x,
      shift,
      w.get(`blk.${layer}.channel_mix_lerp_${name}.weight`),
      `channel_mix_x${name}`,
    );
  const key = linear(g, w, part("k"), layer, "channel_mix_key"); // [tokens, feedForward]
  const receptance = linear(g, w, part("r"), layer, "channel_mix_receptance"); // [tokens, embed]
  const value = linear(
    g,
    w,
    g.activate(key, "relu_squared", "channel_mix_squared"),
    layer,
    "channel_mix_value",
  ); // [tokens, embed]
  return g.gate(receptance, value, "sigmoid", "channel_mix_gated"); // [tokens, embed]
}

function ownWeights(c: Rwkv6Config, layer: number): WeightSpec[] {
  const { embed, headSize, mixRank, decayRank, fusedLerps, isQwen, sharing } = c;
  const named = (name: string, ...shape: number[]) => ({
    name: `blk.${layer}.${name}.weight`,
    shape,
  });
  const lerps = fusedLerps
    ? [named("time_mix_lerp_fused", parts.length, embed)]
    : parts.map((part) => named(`time_mix_lerp_${part}`, embed));
  const kvCols = embed / sharing;
  const biased = [
    ...linearWeights(layer, "time_mix_key", [kvCols, embed], "optional"),
    ...linearWeights(layer, "time_mix_value", [kvCols, embed], "optional"),
    ...linearWeights(layer, "time_mix_receptance", [embed, embed], "optional"),
  ];
  return [
    ...(isQwen ? biased : []),
    named("time_mix_lerp_x", embed),
    ...lerps,
    ...linearWeights(layer, "time_mix_w1", [parts.length * mixRank, embed]),
    named("time_mix_w2", parts.length, embed, mixRank),
    named("time_mix_decay", embed),
    ...linearWeights(layer, "time_mix_decay_w1", [decayRank, embed]),
    ...linearWeights(layer, "time_mix_decay_w2", [embed, decayRank]),
    ...linearWeights(layer, "time_mix_gate", [embed, embed]),
    ...(isQwen
      ? []
      : [
          named("time_mix_first", embed / headSize, headSize),
          named("channel_mix_lerp_r", embed),
          ...linearWeights(layer, "channel_mix_receptance", [embed, embed]),
        ]),
  ];
}
