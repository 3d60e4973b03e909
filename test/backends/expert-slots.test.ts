// Which experts lie in slots of the GPU: the least recently used one leaves, a batch of more experts than slots has passes, and
// every expert of a batch has a slot in exactly one of them. And which nodes may be repeated.

import { describe, expect, test } from "vitest";
import { expertRanges } from "../../src/backends/webgpu/experts/expert-ranges.ts";
import { ExpertSlots } from "../../src/backends/webgpu/experts/expert-slots.ts";
import { splitGraph } from "../../src/graph/split.ts";
import { buildModel } from "../../src/models/build.ts";
import { Random } from "../support/random.ts";
import { tinyModel } from "../support/tiny-engine.ts";

/** A batch of tokens with these experts: the experts of each pass, and what was uploaded: [expert, slot]. */
function run(slots: ExpertSlots, tokens: readonly (readonly number[])[]) {
  const used = tokens[0]!.length;
  const routes = Float32Array.from(tokens.flatMap((ids) => [...ids, ...ids.map(() => 0.5)]));
  slots.begin(routes, tokens.length, used, 2 * used);
  const passes: number[][] = [];
  const uploads: [number, number][] = [];
  while (slots.next((expert, slot) => uploads.push([expert, slot]))) {
    const own = [...slots.table.keys()].filter((id) => slots.table[id]! < slots.slots);
    passes.push(own);
    // No two experts of a pass share a slot.
    expect(new Set(own.map((id) => slots.table[id])).size).toBe(own.length);
  }
  return { passes, uploads };
}

describe("the slots of a layer", () => {
  test("what is there is not uploaded; the least recently used leaves", () => {
    const slots = new ExpertSlots(8, 3);
    expect(run(slots, [[0, 1]]).uploads).toEqual([
      [0, 0],
      [1, 1],
    ]);
    expect(run(slots, [[1, 2]]).uploads).toEqual([[2, 2]]);
    expect(run(slots, [[5, 1]]).uploads).toEqual([[5, 0]]); // in place of 0
    expect(run(slots, [[0, 1]]).uploads).toEqual([[0, 2]]); // in place of 2
    expect([slots.hits, slots.misses]).toEqual([3, 5]);
    expect([...slots.uses]).toEqual([2, 4, 1, 0, 0, 1, 0, 0]);
  });

  test("more experts than slots: passes, the ones that are there in the first", () => {
    const slots = new ExpertSlots(8, 2);
    run(slots, [[6, 7]]);
    const { passes, uploads } = run(slots, [
      [0, 7],
      [3, 6],
      [1, 0],
    ]);
    expect(passes).toEqual([[6, 7], [0, 3], [1]]);
    expect(uploads).toHaveLength(3);
    expect(run(slots, [[1, 3]]).uploads).toEqual([]);
  });

  test("a random text: each expert in exactly one pass, and no more uploads than misses", () => {
    const random = new Random(7);
    const slots = new ExpertSlots(32, 5);
    let uploaded = 0;
    for (let i = 0; i < 200; i++) {
      const tokens = Array.from({ length: 1 + random.below(6) }, () =>
        Array.from({ length: 4 }, () => random.below(32)),
      );
      const { passes, uploads } = run(slots, tokens);
      const all = [...new Set(tokens.flat())].sort((a, b) => a - b);
      expect(passes.flat().sort((a, b) => a - b)).toEqual(all);
      uploaded += uploads.length;
    }
    // What has a slot at the beginning of a batch keeps it until its pass.
    expect(uploaded).toBe(slots.misses);
  });

  test("texts that dwell on a topic: recent use hits more often than any fixed list", () => {
    const random = new Random(3);
    const slots = new ExpertSlots(128, 32);
    const uses = new Float64Array(128);
    let topic: number[] = [];
    for (let i = 0; i < 2000; i++) {
      if (i % 100 === 0) topic = Array.from({ length: 24 }, () => random.below(128));
      const token = Array.from({ length: 8 }, () => topic[random.below(24)]!);
      run(slots, [token]);
      for (const id of new Set(token)) uses[id]!++;
    }
    const all = uses.reduce((sum, count) => sum + count, 0);
    const fixed = [...uses].sort((a, b) => b - a).slice(0, 32);
    const hitsOfList = fixed.reduce((sum, count) => sum + count, 0) / all;
    expect(slots.hits / (slots.hits + slots.misses)).toBeGreaterThan(hitsOfList + 0.3);
  });

  test("ids that no expert has are those of the kernels: the last one, or the first", () => {
    const slots = new ExpertSlots(4, 2);
    expect(run(slots, [[9, -1]]).passes).toEqual([[0, 3]]);
    expect(run(slots, [[Number.NaN, 3]]).passes).toEqual([[0, 3]]);
  });
});

describe("the nodes that are repeated", () => {
  const { graph } = buildModel(tinyModel({ architecture: "qwen3moe" }));

  test("from the first matmul of a layer's experts to the last", () => {
    const ranges = expertRanges(graph, 2);
    expect(ranges).toHaveLength(2);
    for (const { from, to, experts, slots, weights } of ranges) {
      expect([graph.nodes[from]!.op, graph.nodes[to - 1]!.op]).toEqual(["matmul_id", "matmul_id"]);
      expect([experts, slots, weights.length]).toEqual([4, 2, 3]);
    }
    expect(expertRanges(graph, 4)).toEqual([]);
    expect(expertRanges(graph, 0.3).map(({ slots }) => slots)).toEqual([2, 2]);
    expect(expertRanges(graph, 0.99)).toEqual([]);
    expect(expertRanges(graph, undefined)).toEqual([]);
  });

  test("a share of experts that there are none of is refused", () => {
    const { graph: dense } = buildModel(tinyModel({ architecture: "llama" }));
    expect(expertRanges(dense, 2)).toEqual([]);
    expect(() => expertRanges(dense, 0.5)).toThrow(
      /a share of the experts, but this model has none/,
    );
  });

  test("experts of a layer that are in two places are refused", () => {
    const { back } = splitGraph(graph, -1, {
      weight: ({ name }) => (/ffn_(up|gate)_exps/.test(name) ? "front" : undefined),
    });
    expect(expertRanges(back, 2)).toHaveLength(2); // the last matmul alone
    const middle = splitGraph(graph, -1, {
      weight: ({ name }) => (name.includes("ffn_up_exps.weight") ? "front" : undefined),
    }).back;
    expect(() => expertRanges(middle, 2)).toThrow(
      /expertSlots: .* some are on the processor\. Leave out expertSlots/,
    );
  });
});
