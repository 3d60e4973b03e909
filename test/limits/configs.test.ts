// The built-in shapes against something we did not write: the number of parameters that the publishers' weight files
// hold, as their model pages state it. A wrong width, head count, bias or tie would show.

import { describe, expect, test } from "vitest";
import { namedShapes, shapeNamed } from "../../src/limits/configs.ts";
import { checkShape, parameterCounts, withKvHeads } from "../../src/limits/shape.ts";

const published: Readonly<Record<string, number>> = {
  "qwen1.5-0.5b": 619_570_176,
  "qwen1.5-1.8b": 1_836_828_672,
  "qwen1.5-4b": 3_950_369_280,
  "qwen1.5-7b": 7_721_324_544,
  "qwen1.5-14b": 14_167_290_880,
  "qwen1.5-32b": 32_512_218_112,
  "qwen1.5-72b": 72_287_920_128,
  "qwen1.5-110b": 111_209_914_368,
  "qwen2.5-0.5b": 494_032_768,
  "qwen2.5-1.5b": 1_543_714_304,
  "qwen2.5-3b": 3_085_938_688,
  "qwen2.5-7b": 7_615_616_512,
  "qwen2.5-14b": 14_770_033_664,
  "qwen2.5-32b": 32_763_876_352,
  "qwen2.5-72b": 72_706_203_648,
  "qwen3-0.6b": 596_049_920,
  "qwen3-1.7b": 1_720_574_976,
  "qwen3-4b": 4_022_468_096,
  "qwen3-8b": 8_190_735_360,
  "qwen3-14b": 14_768_307_200,
  "qwen3-32b": 32_762_123_264,
  "llama-30b": 32_528_943_616,
  "llama-65b": 65_285_660_672,
  "llama-2-7b": 6_738_415_616,
  "llama-2-13b": 13_015_864_320,
  "llama-2-70b": 68_976_648_192,
  "llama-3-8b": 8_030_261_248,
  "llama-3-70b": 70_553_706_496,
  "llama-3.2-1b": 1_235_814_400,
  "llama-3.2-3b": 3_212_749_824,
  "smollm2-135m": 134_515_008,
  "smollm2-360m": 361_821_120,
  "smollm2-1.7b": 1_711_376_384,
  "mistral-v0.3-7b": 7_248_023_552,
  "tinyllama-1.1b": 1_100_048_384,
};

test("every built-in shape has a published number beside it", () => {
  expect(new Set(namedShapes.map(({ id }) => id))).toEqual(new Set(Object.keys(published)));
  expect(namedShapes.length).toBe(Object.keys(published).length);
});

test.each(namedShapes)("$id", ({ id, shape }) => {
  checkShape(shape);
  const { total, norms } = parameterCounts(shape);
  expect(total + norms).toBe(published[id]);
});

describe("names", () => {
  test("case and separators do not matter; other names are unknown", () => {
    expect(shapeNamed("Qwen1.5 7B")?.id).toBe("qwen1.5-7b");
    expect(shapeNamed("llama2-70b")?.id).toBe("llama-2-70b");
    expect(shapeNamed("qwen1.5-8b")).toBeUndefined();
  });
});

describe("shapes that no model can have", () => {
  const { shape } = shapeNamed("llama-3-8b")!;
  test("heads that do not divide", () => {
    expect(() => withKvHeads(shape, 5)).toThrow(/kvHeads: got 5, expected a divisor of the 32/);
  });
  test("a size that is no size", () => {
    expect(() => checkShape({ ...shape, layers: 0 })).toThrow(/layers: got 0, expected a whole/);
    expect(() => checkShape({ ...shape, embed: 1.5 })).toThrow(/embed: got 1.5/);
  });
});
