// Every tensor of a file is read, or the file is refused: one that is left out silently would give other results than the model's. What
// llama.cpp leaves out, too, is named in a warning. And tensors that files have in two forms: both give the same.

import { expect, test } from "vitest";
import type { Weight } from "../../src/graph/graph.ts";
import { tensorOf } from "../../src/graph/weight-source.ts";
import { buildModel } from "../../src/models/build.ts";
import { plainMetadata, tinyMetadata, tinyModel } from "../support/tiny-engine.ts";

/** A tiny model with other keys and tensors. */
function changed(
  architecture: string,
  keys: Record<string, number>,
  change: (tensors: Map<string, Weight>) => void,
) {
  const { tensors } = tinyModel({ architecture });
  const own = Object.entries(keys).map(([key, value]) => [`${architecture}.${key}`, value]);
  const metadata = plainMetadata({ ...tinyMetadata(architecture), ...Object.fromEntries(own) });
  const mine = new Map(tensors);
  change(mine);
  return { metadata, tensors: mine };
}

const like = (weight: Weight, name: string, shape: readonly number[] = weight.shape): Weight => ({
  ...weight,
  name,
  shape,
});

test("a tensor that the architecture knows and the file's form does not use is an error", () => {
  const file = changed("qwen3moe", {}, (tensors) => {
    const [count, ff, embed] = tensors.get("blk.0.ffn_up_exps.weight")!.shape as number[];
    const fused = "blk.0.ffn_gate_up_exps.weight";
    const up = tensors.get("blk.0.ffn_up_exps.weight")!;
    tensors.set(fused, like(up, fused, [count!, 2 * ff!, embed!]));
  });
  expect(() => buildModel(file)).toThrow(
    /2 tensors of the file would not be used.*\n {2}blk.0.ffn_gate_exps.weight\n {2}blk.0.ffn_up_exps.weight/,
  );
});

test("gate and up of experts in one tensor", () => {
  const file = changed("qwen3moe", {}, (tensors) => {
    for (const layer of [0, 1]) {
      const name = (part: string) => `blk.${layer}.ffn_${part}_exps.weight`;
      const up = tensors.get(name("up"))!;
      const [count, ff, embed] = up.shape as [number, number, number];
      tensors.set(name("gate_up"), like(up, name("gate_up"), [count, 2 * ff, embed]));
      tensors.delete(name("gate"));
      tensors.delete(name("up"));
    }
  });
  const { graph } = buildModel(file);
  const read = new Set(graph.weights.map(tensorOf));
  expect([...file.tensors.keys()].filter((name) => !read.has(name))).toEqual([]);
});

test("without either form, what is missing is named", () => {
  const file = changed("qwen3moe", {}, (tensors) => tensors.delete("blk.1.ffn_up_exps.weight"));
  expect(() => buildModel(file)).toThrow(/missing: blk.1.ffn_up_exps.weight/);
});

test("layers that predict further tokens are left out with a warning, whatever they hold", () => {
  const file = changed("qwen3", { block_count: 3, nextn_predict_layers: 1 }, (tensors) => {
    for (const name of ["attn_q.weight", "nextn.eh_proj.weight"]) {
      const full = `blk.2.${name}`;
      tensors.set(full, like(tensors.get("blk.0.attn_q.weight")!, full));
    }
  });
  const { config, warnings } = buildModel(file);
  expect(config.layers).toBe(2);
  expect(warnings).toEqual([
    "2 tensors of the layer that predicts further tokens (nextn) are not read: tokens are generated one by one",
  ]);
  expect(buildModel(tinyModel()).warnings).toEqual([]);
});

test("factors of rope for short and for long contexts: the ones that the context needs are read", () => {
  const file = changed("minicpm", { "rope.scaling.original_context_length": 64 }, (tensors) => {
    const norm = tensors.get("output_norm.weight")!;
    for (const name of ["rope_factors_long.weight", "rope_factors_short.weight"]) {
      tensors.set(name, like(norm, name, [8]));
    }
  });
  const factorsAt = (context: number) =>
    buildModel(file, context)
      .graph.weights.map(({ name }) => name)
      .filter((name) => name.startsWith("rope_"));
  expect(factorsAt(64)).toEqual(["rope_factors_short.weight"]);
  expect(factorsAt(65)).toEqual(["rope_factors_long.weight"]);
});
