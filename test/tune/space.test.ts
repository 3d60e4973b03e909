// What a tune measures: the matmuls of a model, weighed by how many layers have them.
// Held against: the weights of a model, listed here.

import { expect, test } from "vitest";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { checkTuneOptions } from "../../src/tune/options.ts";
import {
  countedProblems,
  largestOfEachType,
  problemsOfShape,
  shapeByName,
  tokensToTune,
  withoutRareTypes,
} from "../../src/tune/space.ts";

/** The matrices of stories15M as Q4_1: the output, which is also the embedding table, is Q8_0. */
function stories15M() {
  const [q4, q8] = [dtypeByName("q4_1")!, dtypeByName("q8_0")!];
  const layer = [
    ...["attn_q", "attn_k", "attn_v", "attn_output"].map((name) => [name, [288, 288]] as const),
    ...["ffn_gate", "ffn_up"].map((name) => [name, [768, 288]] as const),
    ["ffn_down", [288, 768]] as const,
  ];
  const layers = Array.from({ length: 6 }, (_, i) =>
    layer.map(([name, shape]) => ({ name: `blk.${i}.${name}.weight`, shape, dtype: q4 })),
  );
  return [{ name: "token_embd.weight", shape: [32000, 288], dtype: q8 }, ...layers.flat()];
}

test("a type counts with all its layers: 42 of 43 matrices are not rare", () => {
  const problems = countedProblems(stories15M());
  expect(problems.reduce((sum, { count }) => sum + count, 0)).toBe(43);
  // The distinct shapes alone are 3 % of the bytes.
  const types = withoutRareTypes(problems, 0.05).map(({ dtype }) => dtype);
  expect(new Set(types)).toEqual(new Set(["q8_0", "q4_1"]));
  expect(withoutRareTypes(problems, 0.3).map(({ dtype }) => dtype)).toEqual(["q8_0"]);
});

test("a quick tune measures the shape that takes the most bytes over all layers", () => {
  const shape = shapeByName("7b");
  const all = problemsOfShape(shape, "q4_0");
  // Queries, keys, values and the output are of one shape.
  expect(all.map(({ n, k, count }) => [n, k, count])).toEqual([
    [4096, 4096, 128],
    [11008, 4096, 64],
    [4096, 11008, 32],
    [32000, 4096, 1],
  ]);
  expect(largestOfEachType(all).map(({ n, k }) => [n, k])).toEqual([[11008, 4096]]);
});

test.each([
  ["7b", 4096, 11008, 32],
  ["13B", 5120, 13824, 40],
  ["30b", 6656, 17920, 60],
  ["65b", 8192, 22016, 80],
])("--shapes %s is Llama's", (name, embed, feedForward, layers) => {
  expect(shapeByName(name)).toMatchObject({ embed, feedForward, layers });
});

test("another name is refused, with those that there are", () => {
  expect(() => shapeByName("8b")).toThrow(/expected 7b, 13b, 30b, 65b, 70b or a name such as .*8b/);
});

test("the numbers of tokens are those that were asked for, or those of the mode", () => {
  expect(tokensToTune({ tokens: [512, 1, 8, 8] })).toEqual([1, 8, 512]);
  expect(tokensToTune({ mode: "quick" })).toEqual([1, 2, 3, 4, 8, 12, 16, 32, 128]);
  expect(tokensToTune({ mStep: 16, mNum: 2 })).toEqual([1, 2, 3, 4, 6, 8, 12, 16, 32]);
  expect(() => checkTuneOptions({ tokens: [] })).toThrow("got none");
  expect(() => checkTuneOptions({ tokens: [0] })).toThrow("whole number from 1 to 4096");
  expect(() => checkTuneOptions({ tokens: [1], mNum: 2 })).toThrow("Drop one");
});
