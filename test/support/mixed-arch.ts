// Architectures for tests of state. The layers of one keep every kind of it: full attention, attention over two windows, and
// short convolutions of two lengths; those of two others only windows, or only convolutions. No model is like them; importing this file registers them in this thread.

import type { GraphBuilder } from "../../src/graph/builder.ts";
import type { Value } from "../../src/graph/graph.ts";
import type { Arch, ModelConfig, WeightLookup, WeightSpec } from "../../src/models/arch.ts";
import { readConfig } from "../../src/models/config.ts";
import { decoderOutputs, endWeights } from "../../src/models/parts/ends.ts";
import { registerArch } from "../../src/models/table.ts";

export const mixedName = "mixed-state";
export const windowsName = "windows-only";
export const convolutionsName = "convolutions-only";

type Layer = { readonly window: number | undefined } | { readonly taps: number };

/** Windows that end within a block, and one that is shorter than a block. */
const allKinds: readonly Layer[] = [
  { taps: 4 },
  { window: undefined },
  { window: 70 },
  { taps: 3 },
  { window: 9 },
  { window: 70 },
];

const archOf = (name: string, layers: readonly Layer[]): Arch => ({
  names: [name],
  about: "a test",
  config: (header) => ({ ...readConfig(header, "interleaved"), layers: layers.length }),

  weights: (c) => [...endWeights(c), ...layers.flatMap((kind, layer) => weightsOf(c, kind, layer))],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    layers.forEach((kind, layer) => {
      g.layer(layer);
      const weight = (name: string) => w.get(`blk.${layer}.${name}.weight`);
      const a = g.rmsNorm(x, weight("attn_norm"), c.normEps, "attn_norm"); // [tokens, embed]
      const mix =
        "taps" in kind
          ? convolved(g, w, a, layer, kind.taps)
          : attended(g, c, w, a, layer, kind.window);
      x = g.add(x, mix, "residual"); // [tokens, embed]
    });
    return decoderOutputs(g, c, w, x);
  },
});

function attended(
  g: GraphBuilder,
  c: ModelConfig,
  w: WeightLookup,
  x: Value,
  layer: number,
  window: number | undefined,
): Value {
  const { heads, kvHeads, headDim, rope } = c;
  const project = (from: Value, name: string) =>
    g.matmul(from, w.get(`blk.${layer}.${name}.weight`), name);
  const cols = kvHeads * headDim;
  const state = g.state({
    kind: "kv",
    layer,
    kCols: cols,
    vCols: cols,
    ...(window !== undefined && { window }),
  });
  const q = g.rope(project(x, "attn_q"), headDim, rope, "q"); // [tokens, heads * headDim]
  const k = g.rope(project(x, "attn_k"), headDim, rope, "k"); // [tokens, kvHeads * headDim]
  g.kvWrite(k, project(x, "attn_v"), state);
  const scale = headDim ** -0.5;
  const mixed = g.attention(q, { state, heads, kvHeads, headDim, scale }, "attn"); // [tokens, heads * headDim]
  return project(mixed, "attn_output"); // [tokens, embed]
}

function convolved(g: GraphBuilder, w: WeightLookup, x: Value, layer: number, taps: number): Value {
  const state = g.state({ kind: "recurrent", layer, floats: (taps - 1) * x.cols });
  return g.shortConv(x, w.get(`blk.${layer}.conv.weight`), state, "conv"); // [tokens, embed]
}

function weightsOf(c: ModelConfig, kind: Layer, layer: number): WeightSpec[] {
  const named = (name: string, ...shape: number[]) => ({
    name: `blk.${layer}.${name}.weight`,
    shape,
  });
  const norm = named("attn_norm", c.embed);
  if ("taps" in kind) return [norm, named("conv", c.embed, kind.taps)];
  const [qCols, kvCols] = [c.heads * c.headDim, c.kvHeads * c.headDim];
  return [
    norm,
    named("attn_q", qCols, c.embed),
    named("attn_k", kvCols, c.embed),
    named("attn_v", kvCols, c.embed),
    named("attn_output", c.embed, qCols),
  ];
}

registerArch(archOf(mixedName, allKinds));
registerArch(archOf(windowsName, [{ window: 40 }, { window: 9 }]));
registerArch(archOf(convolutionsName, [{ taps: 4 }, { taps: 3 }]));
