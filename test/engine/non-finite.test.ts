// A model with damaged weights reports where and why, instead of a text. One whose values leave
// F16's range goes on with F32 there, and says so. On the
// reference and on the CPU backend, in generation and in scoring.

import { describe, expect, test } from "vitest";
import { f32ToF16 } from "../../src/base/half.ts";
import { type Model, ModelError, open } from "../../src/index.ts";
import { changedModel } from "../support/changed-model.ts";

/** The tiny model with all values of one F32 vector changed to `value`. */
function withNorm(weightType: string, norm: string, value: number): Promise<File> {
  return changedModel({ weightType }, norm, (values) => values.fill(value));
}

const text = "the cat sat";

async function errorOf(work: Promise<unknown>): Promise<Error> {
  const error = await work.then(
    () => undefined,
    (caught: unknown) => caught,
  );
  expect(error).toBeInstanceOf(ModelError);
  return error as Error;
}

async function using(file: File, options: object, check: (model: Model) => Promise<void>) {
  await using model = await open(file, { threads: 1, ...options });
  await check(model);
  // It is still there afterwards, with all its room.
  expect((await model.status()).running).toBe(0);
}

describe.each([1, 2])("level %i", (level) => {
  test("values beyond F16 beside F16 weights stay F32, and it is said once", async () => {
    const file = await withNorm("f16", "blk.1.ffn_norm.weight", 1e6);
    const said: string[] = [];
    const onWarning = (warning: string) => said.push(warning);
    await using(file, { level, kvType: "f32", onWarning }, async (model) => {
      expect(model.info.warnings).toEqual([]);
      const { tokenIds } = await model.generate(text, { maxTokens: 4, ignoreEos: true }).result;
      expect(tokenIds).toHaveLength(4);
      await model.generate("cat", { maxTokens: 4, seed: 1, ignoreEos: true }).result;
      await model.score(await model.tokenize(text), { from: 1 });
      expect(said).toHaveLength(1);
      expect(said[0]).toMatch(
        /^"blk\.1\.ffn_norm" reaches -?\d\.\d+e\+6, which f16 cannot hold: beside blk\.1\.ffn_(gate|up)\.weight .* stays f32/,
      );
      expect(model.info.warnings).toEqual(said);
    });
  });

  test("the same values beside F32 weights are no problem", async () => {
    const file = await withNorm("f32", "blk.1.ffn_norm.weight", 1e6);
    await using(file, { level, kvType: "f32" }, async (model) => {
      const { tokenIds } = await model.generate(text, { maxTokens: 4, ignoreEos: true }).result;
      expect(tokenIds).toHaveLength(4);
    });
  });

  test("a weight that is not a number is named", async () => {
    const file = await withNorm("f32", "blk.0.ffn_norm.weight", Number.NaN);
    await using(file, { level, kvType: "f32" }, async (model) => {
      const { message } = await errorOf(model.generate(text, { maxTokens: 4 }).result);
      expect(message).toMatch(
        /"blk\.0\.ffn_norm" holds NaN, computed with blk\.0\.ffn_norm\.weight/,
      );
    });
  });
});

test("what F16 holds at most is where the overflow begins", () => {
  expect(f32ToF16(65504)).toBe(0x7bff);
  expect(f32ToF16(65520)).toBe(0x7c00);
});
