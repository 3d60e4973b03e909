// LFM2, the architecture with the simplest recurrent state, out of the parts in src/models: layers of attention, and layers of
// short convolutions between two gates. For tests that hold state against llama.cpp; it is not in the table of architectures.
//
// One matrix makes both gates and the input. The graph cannot cut a value into parts, so the file's tensor is shown as three.

import { readFileSync } from "node:fs";
import { expect } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import type { Metadata } from "../../src/base/metadata.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { Engine } from "../../src/engine/engine.ts";
import { computeLogits } from "../../src/engine/generator.ts";
import { openGguf } from "../../src/formats/gguf/open-gguf.ts";
import type { GraphBuilder } from "../../src/graph/builder.ts";
import { weightBytes } from "../../src/graph/cost.ts";
import type { Value, Weight } from "../../src/graph/graph.ts";
import type { Arch, WeightLookup, WeightSpec } from "../../src/models/arch.ts";
import { readConfig } from "../../src/models/config.ts";
import { attention, attentionWeights } from "../../src/models/parts/attention.ts";
import { decoderOutputs, endWeights } from "../../src/models/parts/ends.ts";
import { gatedWeights, swiglu } from "../../src/models/parts/feed-forward.ts";
import { registerArch } from "../../src/models/table.ts";
import { tokenizerFromMetadata } from "../../src/tokenizers/from-metadata.ts";
import { memorySource } from "../formats/support.ts";
import { sharedPath } from "../support/shared.ts";
import { greedyTokens } from "../support/tiny-engine.ts";
import { readArchGolden } from "./arch-golden.ts";

const TAPS = 3;
/** Of the tiny file: layers 0 and 2 convolve, 1 and 3 attend. */
const isConvolved = (layer: number): boolean => layer % 2 === 0;
const parts = ["b", "c", "x"] as const;

const lfm2: Arch = {
  names: ["lfm2"],
  about: "a test",
  config: (header) => readConfig({ ...header, metadata: withKvHeads(header.metadata) }, "half"),

  weights: (c) => [
    ...endWeights(c),
    ...Array.from({ length: c.layers }, (_, layer): WeightSpec[] => {
      const named = (name: string, ...shape: number[]) => ({ name: `blk.${layer}.${name}`, shape });
      const mixing = isConvolved(layer)
        ? [
            ...parts.map((part) => named(`shortconv.in_proj.${part}`, c.embed, c.embed)),
            named("shortconv.conv.weight", c.embed, TAPS),
            named("shortconv.out_proj.weight", c.embed, c.embed),
          ]
        : attentionWeights(c, layer, { qkvBias: "none", headNorms: true });
      const norms = ["attn_norm.weight", "ffn_norm.weight"].map((name) => named(name, c.embed));
      return [...mixing, ...norms, ...gatedWeights(c.embed, c.feedForward, layer)];
    }).flat(),
  ],

  forward(g, c, w) {
    let x = g.embed(w.get("token_embd.weight"), "embed"); // [tokens, embed]
    for (let layer = 0; layer < c.layers; layer++) {
      g.layer(layer);
      const norm = (name: string) => w.get(`blk.${layer}.${name}.weight`);
      const a = g.rmsNorm(x, norm("attn_norm"), c.normEps, "attn_norm"); // [tokens, embed]
      const mixed = isConvolved(layer)
        ? gatedConv(g, w, a, layer)
        : attention(g, w, a, { ...c, layer });
      x = g.add(x, mixed, "attn_residual"); // [tokens, embed]
      const f = g.rmsNorm(x, norm("ffn_norm"), c.normEps, "ffn_norm"); // [tokens, embed]
      x = g.add(x, swiglu(g, w, f, layer), "ffn_residual"); // [tokens, embed]
    }
    return decoderOutputs(g, c, w, x);
  },
};

/** out_proj(c * conv(b * x)): [tokens, embed] -> [tokens, embed]. */
function gatedConv(g: GraphBuilder, w: WeightLookup, input: Value, layer: number): Value {
  const weight = (name: string) => w.get(`blk.${layer}.shortconv.${name}`);
  const [b, c, x] = parts.map((part) => g.matmul(input, weight(`in_proj.${part}`), part)); // [tokens, embed]
  const state = g.state({ kind: "recurrent", layer, floats: (TAPS - 1) * input.cols });
  const conv = g.shortConv(g.mul(b!, x!, "bx"), weight("conv.weight"), state, "conv"); // [tokens, embed]
  return g.matmul(g.mul(c!, conv, "gated"), weight("out_proj.weight"), "out_proj"); // [tokens, embed]
}

registerArch(lfm2);

/** Layers with attention have two KV heads each; the array has a 0 for the others. */
function withKvHeads(metadata: Metadata): Metadata {
  const key = "lfm2.attention.head_count_kv";
  return {
    ...metadata,
    has: (name) => metadata.has(name),
    string: (name) => metadata.string(name),
    boolean: (name) => metadata.boolean(name),
    numbers: (name) => metadata.numbers(name),
    number: (name) => (name === key ? 2 : metadata.number(name)),
    arrayLength: (name) => (name === key ? undefined : metadata.arrayLength(name)),
  };
}

async function loadLfm2(backend: Backend): Promise<Engine> {
  const gguf = new Uint8Array(readFileSync(sharedPath("archs/lfm2.gguf")));
  const file = await openGguf(memorySource({ "lfm2.gguf": gguf }), "lfm2.gguf");
  const tensors = new Map<string, Weight>();
  /** Where the bytes of a shown tensor are. */
  const places = new Map<string, { name: string; offset: number }>();
  const show = (weight: Weight, name: string, offset: number) => {
    tensors.set(weight.name, weight);
    places.set(weight.name, { name, offset });
  };
  for (const { name, shape, dtype } of file.tensors.values()) {
    const [rows, cols] = shape as [number, number];
    if (name.endsWith("in_proj.weight")) {
      parts.forEach((part, i) => {
        const third = { name: name.replace("weight", part), shape: [rows / 3, cols], dtype };
        show(third, name, i * weightBytes(third));
      });
    } else {
      const shown = name === "token_embd_norm.weight" ? "output_norm.weight" : name;
      show({ name: shown, shape, dtype }, name, 0);
    }
  }
  return await Engine.load(
    {
      name: "lfm2",
      format: file.format,
      metadata: file.metadata,
      tensors,
      readTensor: (shown, target, at) => {
        const { name, offset } = places.get(shown)!;
        return file.readTensor(file.tensors.get(name)!, target, offset + at);
      },
      tokenizer: tokenizerFromMetadata(file.metadata),
      template: undefined,
      backend,
    },
    { contextSize: 128, kvType: dtypeByName("f32")!, parallel: 3 },
    { progress: () => {}, check: () => {} },
  );
}

/** llama.cpp's logits and tokens: of every position, after reuse from a checkpoint, and for three at a time. */
export async function expectLfm2(backend: Backend): Promise<void> {
  const engine = await loadLfm2(backend);
  const control = { aborted: false, breathe: async () => {}, now: () => 0 };
  for (const { tokens, positions, greedy } of readArchGolden("lfm2").cases) {
    const options = { top: engine.vocabSize, greedy: greedy.length };
    const got = await computeLogits(engine, [...tokens], options, control);
    positions.forEach(({ top }, i) => {
      const logits = new Map(got.positions[i]!.top);
      const apart = top.map(([id, logit]) => Math.abs(logits.get(id)! - logit));
      expect(Math.max(...apart), `position ${i} of ${tokens.length}`).toBeLessThan(2e-3);
    });
    expect(got.greedy).toEqual(greedy);
    const again = () => greedyTokens(engine, [...tokens], greedy.length);
    expect(await again()).toEqual(greedy);
    expect(await Promise.all([again(), again(), again()])).toEqual([greedy, greedy, greedy]);
  }
  engine.dispose();
}
