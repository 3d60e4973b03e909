// Mixtures of experts as architectures of their own, for tests: what llama.cpp's qwen2moe, qwen3moe, olmoe, minimax-m2 and
// llama with experts compute, out of the parts in src/models. None of them is in the table.

import type { Metadata } from "../../src/base/metadata.ts";
import type { RopeLayout, Routing } from "../../src/graph/graph.ts";
import type { Arch, ModelConfig, WeightSpec } from "../../src/models/arch.ts";
import { readConfig } from "../../src/models/config.ts";
import {
  type AttentionExtras,
  attention,
  attentionWeights,
} from "../../src/models/parts/attention.ts";
import { decoderOutputs, endWeights } from "../../src/models/parts/ends.ts";
import { type MoeExtras, moe, moeWeights } from "../../src/models/parts/moe.ts";
import { registerArch } from "../../src/models/table.ts";

interface MoeFamily {
  readonly name: string;
  readonly layout: RopeLayout;
  readonly attention: AttentionExtras;
  /** Norms of whole rows of q and k. */
  readonly rowNorms?: boolean;
  readonly moe?: MoeExtras;
  readonly routing: Omit<Routing, "used">;
}

const softmax = { gating: "softmax", normalise: false, scale: 1 } as const;
const plain = { qkvBias: "none", headNorms: false } as const;

const families: readonly MoeFamily[] = [
  {
    name: "qwen2moe",
    layout: "half",
    attention: { qkvBias: "required", headNorms: false },
    moe: { sharedGate: true },
    routing: softmax,
  },
  {
    name: "qwen3moe",
    layout: "half",
    attention: { qkvBias: "none", headNorms: true },
    routing: { ...softmax, normalise: true },
  },
  { name: "olmoe", layout: "half", attention: plain, rowNorms: true, routing: softmax },
  {
    name: "minimax-m2",
    layout: "half",
    attention: plain,
    rowNorms: true,
    moe: { choiceBias: true },
    routing: { gating: "sigmoid", normalise: true, scale: 1 },
  },
  {
    name: "llama-moe",
    layout: "interleaved",
    attention: plain,
    routing: { ...softmax, normalise: true },
  },
];

export const moeArchs: readonly Arch[] = families.map((family) => ({
  names: [family.name],
  config: (header) => readConfig(header, family.layout, { experts: "required" }),
  weights: (c) => [...endWeights(c), ...layers(c, (layer) => layerWeights(c, layer, family))],

  forward(g, c, w) {
    const routing = { ...family.routing, used: c.experts!.used };
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = (name: string) => w.get(`blk.${layer}.${name}.weight`);
      const a = g.rmsNorm(x, norm("attn_norm"), c.normEps, "attn_norm"); // [tokens, embed]
      x = g.add(x, attention(g, w, a, { ...c, layer }), "attn_residual"); // [tokens, embed]
      const f = g.rmsNorm(x, norm("ffn_norm"), c.normEps, "ffn_norm"); // [tokens, embed]
      x = g.add(x, moe(g, w, f, { layer, routing }), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
}));

let isRegistered = false;

/** Makes them known to whoever opens a model. */
export function registerMoeArchs(): void {
  if (!isRegistered) for (const arch of moeArchs) registerArch(arch);
  isRegistered = true;
}

function layerWeights(c: ModelConfig, layer: number, family: MoeFamily): WeightSpec[] {
  const named = (name: string, size: number) => ({ name: `blk.${layer}.${name}`, shape: [size] });
  const rowNorms = [
    named("attn_q_norm.weight", c.heads * c.headDim),
    named("attn_k_norm.weight", c.kvHeads * c.headDim),
  ];
  return [
    named("attn_norm.weight", c.embed),
    ...attentionWeights(c, layer, family.attention),
    ...(family.rowNorms ? rowNorms : []),
    named("ffn_norm.weight", c.embed),
    ...moeWeights(c.embed, c.experts!, layer, family.moe),
  ];
}

function layers<T>(c: ModelConfig, each: (layer: number) => T[]): T[] {
  return Array.from({ length: c.layers }, (_, layer) => each(layer)).flat();
}

/** The metadata of a file as if its architecture were called `name`. */
export function renamed(metadata: Metadata, name: string): Metadata {
  const own = metadata.string("general.architecture")!;
  const key = (asked: string) =>
    asked.startsWith(`${name}.`) ? own + asked.slice(name.length) : asked;
  return {
    keys: () => metadata.keys(),
    has: (k) => metadata.has(key(k)),
    string: (k) => (k === "general.architecture" ? name : metadata.string(key(k))),
    number: (k) => metadata.number(key(k)),
    boolean: (k) => metadata.boolean(key(k)),
    arrayLength: (k) => metadata.arrayLength(key(k)),
    strings: (k) => metadata.strings(key(k)),
    numbers: (k) => metadata.numbers(key(k)),
    booleans: (k) => metadata.booleans(key(k)),
    preview: (k, count) => metadata.preview(key(k), count),
  };
}
