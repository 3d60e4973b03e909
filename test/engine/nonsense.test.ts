// A model with damaged weights, or keys that its cache cannot hold, reports where and why, instead of a text. One whose values leave
// F16's range goes on with F32 there, and says so. On the
// reference and on the CPU backend, in generation and in scoring.

import { describe, expect, test } from "vitest";
import { f32ToF16 } from "../../src/base/half.ts";
import { type Model, ModelError, open } from "../../src/index.ts";
import { tinyGguf } from "../support/tiny-file.ts";

/** The tiny model with all values of one F32 vector changed to `value`. */
async function withNorm(weightType: string, norm: string, value: number): Promise<File> {
  const file = Buffer.from(await tinyGguf({ weightType }));
  const { tensors } = await parsed(file);
  const { offset, bytes } = tensors.get(norm)!;
  for (let at = offset; at < offset + bytes; at += 4) file.writeFloatLE(value, at);
  return new File([Uint8Array.from(file)], "tiny.gguf");
}

async function parsed(file: Uint8Array) {
  const { openModelFile } = await import("../../src/formats/open-model-file.ts");
  const { currentPlatform } = await import("../../src/platform/current.ts");
  const platform = await currentPlatform();
  const spec = platform.describeSource(new File([Uint8Array.from(file)], "tiny.gguf"));
  const opened = await openModelFile(await platform.openModelSource(spec));
  const tensors = new Map<string, { offset: number; bytes: number }>();
  for (const [name, { offset, byteLength }] of opened.tensors) {
    tensors.set(name, { offset, bytes: byteLength });
  }
  await opened.close();
  return { tensors };
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

describe.each([1, 2, 3] as const)("keys and values beyond the KV cache's type, level %i", (level) => {
  test.each(["f16", "q8_0", "q4_0"] as const)("%s: goes on with F32, and says so", async (kvType) => {
    const file = await withNorm("f32", "blk.1.attn_norm.weight", 1e9);
    const options = { maxTokens: 6, seed: 1, ignoreEos: true };
    let wanted: readonly number[] = [];
    await using(file, { level, kvType: "f32" }, async (model) => {
      wanted = (await model.generate(text, options).result).tokenIds;
    });
    const said: string[] = [];
    const onWarning = (warning: string) => said.push(warning);
    await using(file, { level, kvType, onWarning }, async (model) => {
      expect(model.info.kvType).toBe(kvType);
      const { tokenIds } = await model.generate(text, options).result;
      expect(tokenIds).toEqual(wanted);
      expect(model.info.kvType).toBe("f32");
      expect((await model.generate(text, options).result).tokenIds).toEqual(wanted);
      expect(said).toHaveLength(1);
      expect(said[0]).toMatch(
        new RegExp(`^the model's keys or values leave what a KV cache of ${kvType} can hold: "blk.1[^"]+" reaches -?\\d\\.\\d+e\\+\\d.*f32 instead of ${kvType}`),
      );
      expect(model.info.warnings).toEqual(said);
    });
  });
});

test("what F16 holds at most is where the overflow begins", () => {
  expect(f32ToF16(65504)).toBe(0x7bff);
  expect(f32ToF16(65520)).toBe(0x7c00);
});
