// What is refused of a mixture of experts before anything is allocated for it: counts that cannot be, and weights of other
// shapes.

import { expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Weight } from "../../src/graph/graph.ts";
import { buildGraph, checkWeights } from "../../src/models/build.ts";
import { archNamed } from "../../src/models/table.ts";
import { plainMetadata, tinyMetadata } from "../support/tiny-engine.ts";

const arch = archNamed("qwen2moe");
const counts = {
  expert_count: 8,
  expert_used_count: 2,
  expert_feed_forward_length: 16,
  expert_shared_feed_forward_length: 24,
};

function config(change: Record<string, number> = {}) {
  const keys = Object.entries({ ...counts, ...change }).map(
    ([key, value]) => [`qwen2moe.${key}`, value] as const,
  );
  const metadata = plainMetadata({ ...tinyMetadata("qwen2moe"), ...Object.fromEntries(keys) });
  const table = { name: "token_embd.weight", shape: [48, 32], dtype: dtypeByName("f32")! };
  return arch.config({ metadata, tensors: new Map([[table.name, table]]) });
}

function tensorsOf(c: ReturnType<typeof config>): Map<string, Weight> {
  const dtype = dtypeByName("f32")!;
  const own = arch.weights(c).filter(({ optional }) => !optional);
  return new Map(own.map(({ name, shape }) => [name, { name, shape, dtype }]));
}

test.each([
  ["expert_count", 0, /expert_count: got 0, expected an integer from 1 to 4096/],
  ["expert_count", 2 ** 31, /expert_count: got 2147483648, expected an integer from 1 to 4096/],
  ["expert_used_count", 0, /expert_used_count: got 0, expected an integer from 1 to 8/],
  ["expert_used_count", 9, /expert_used_count: got 9, expected an integer from 1 to 8/],
  ["expert_feed_forward_length", -1, /expert_feed_forward_length: got -1/],
  ["expert_shared_feed_forward_length", 0.5, /expert_shared_feed_forward_length: got 0.5/],
])("%s %d", (key, value, message) => {
  expect(() => config({ [key]: value })).toThrow(message);
});

test("experts of another number or size: one error names every weight", () => {
  const c = config();
  const tensors = tensorsOf(c);
  const name = "blk.1.ffn_down_exps.weight";
  tensors.set(name, { ...tensors.get(name)!, shape: [7, 32, 16] });
  tensors.delete("blk.0.ffn_gate_exps.weight");
  expect(() => checkWeights(arch.weights(c), tensors)).toThrow(
    /missing: blk.0.ffn_gate_exps.weight \[8, 16, 32\]\n.*shape: blk.1.ffn_down_exps.weight is \[7, 32, 16\], expected \[8, 32, 16\]/,
  );
});

test("an outer dimension of 1 may be left out", () => {
  const c = config();
  const tensors = tensorsOf(c);
  const name = "blk.0.ffn_gate_inp_shexp.weight";
  expect(tensors.get(name)!.shape).toEqual([1, 32]);
  tensors.set(name, { ...tensors.get(name)!, shape: [32] });
  expect(() => checkWeights(arch.weights(c), tensors)).not.toThrow();
});

test("the graph has a shape on every value", () => {
  const c = config();
  const tensors = tensorsOf(c);
  const graph = buildGraph(arch, c, {
    get: (name) => tensors.get(name)!,
    maybe: (name) => tensors.get(name),
  });
  const cols = (name: string) => graph.nodes.find((node) => node.name === name)?.out?.cols;
  expect(cols("blk.0.ffn_route")).toBe(4);
  expect(cols("blk.0.ffn_gate_exps")).toBe(2 * 16);
  expect(cols("blk.0.ffn_down_exps")).toBe(2 * 32);
  expect(cols("blk.0.ffn_moe")).toBe(32);
  expect(cols("blk.0.ffn_shexp")).toBe(32);
});
