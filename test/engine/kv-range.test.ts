// Keys and values that the KV cache's type cannot hold: the model is opened again with a cache of F32, says so once, and writes the text
// that it would have written with F32 from the start. In every type of a cache, on every opt level, in the middle of an answer, for
// several requests at once, where memory has no room for it, and without a word for models whose values are in range. On a GPU:
// test/backends/webgpu-widened.test.ts.

import { describe, expect, test } from "vitest";
import {
  type GenerateOptions,
  type KvType,
  MemoryError,
  type Model,
  ModelError,
  open,
} from "../../src/index.ts";
import { changedModel } from "../support/changed-model.ts";
import { tinyGguf } from "../support/tiny-file.ts";

const text = "the cat sat";
const options: GenerateOptions = { maxTokens: 6, temperature: 0, ignoreEos: true };

/** Its keys and values are beyond all 16-bit types in layer 1. */
async function loud(): Promise<File> {
  return await changedModel({ weightType: "f32" }, "blk.1.attn_norm.weight", (values) => {
    values.fill(1e9);
  });
}

/** What it says with this cache, and its facts then. */
async function said(file: File, settings: object, work: (model: Model) => Promise<void>) {
  const warnings: string[] = [];
  const onWarning = (warning: string) => warnings.push(warning);
  await using model = await open(file, { threads: 1, onWarning, ...settings });
  await work(model);
  const { running, waiting } = await model.status();
  expect([running, waiting]).toEqual([0, 0]);
  return { warnings, info: model.info };
}

async function tokensOf(file: File, settings: object): Promise<readonly number[]> {
  let ids: readonly number[] = [];
  await said(file, settings, async (model) => {
    ids = (await model.generate(text, options).result).tokenIds;
  });
  return ids;
}

const types: readonly KvType[] = ["f16", "q8_0", "q4_0", "q4_1", "iq4_nl"];

describe.each([1, 2, 3] as const)("level %i", (level) => {
  test.each(level === 1 ? types.slice(0, 2) : types)(
    "%s goes on with F32, and says so",
    async (kvType) => {
      const file = await loud();
      const wanted = await tokensOf(file, { level, kvType: "f32" });
      const { warnings, info } = await said(file, { level, kvType }, async (model) => {
        expect(model.info.kvType).toBe(kvType);
        expect((await model.generate(text, options).result).tokenIds).toEqual(wanted);
        expect((await model.generate(text, options).result).tokenIds).toEqual(wanted);
      });
      expect(info.kvType).toBe("f32");
      expect(warnings).toHaveLength(1);
      const reaches = `^the model's keys or values leave what a KV cache of ${kvType} can hold: "blk\\.1[^"]+" reaches -?\\d\\.\\d+e\\+\\d`;
      expect(warnings[0]).toMatch(new RegExp(`${reaches}.*a KV cache of f32 instead of ${kvType}`));
      expect(info.warnings).toEqual(warnings);
    },
  );

  test("values in range are no reason", async () => {
    const file = new File([Uint8Array.from(await tinyGguf())], "tiny.gguf");
    const { warnings, info } = await said(file, { level, kvType: "f16" }, async (model) => {
      await model.generate(text, options).result;
    });
    expect([warnings, info.kvType]).toEqual([[], "f16"]);
  });
});

test("requests of all kinds go on, however many run", async () => {
  const file = await loud();
  const wanted = await tokensOf(file, { kvType: "f32" });
  const { warnings } = await said(file, { kvType: "f16", parallel: 4 }, async (model) => {
    const tokens = await model.tokenize(text);
    const [scored, logits, embedded, ...written] = await Promise.all([
      model.score(tokens, { from: 1 }),
      model.logits(text, { top: 1 }),
      model.embed([text]),
      ...Array.from({ length: 4 }, () => model.generate(text, options).result),
    ]);
    expect(scored.logprobs.every((value) => Number.isFinite(value))).toBe(true);
    expect(logits.positions.every(({ norm }) => Number.isFinite(norm))).toBe(true);
    expect(embedded[0]!.vector.every((value) => Number.isFinite(value))).toBe(true);
    expect(written.map(({ tokenIds }) => tokenIds)).toEqual(Array(4).fill(wanted));
    expect(model.info.kvType).toBe("f32");
    expect((await model.health()).restarts).toBe(0); // nobody has lost anything
  });
  expect(warnings).toHaveLength(1);
});

test("in the middle of an answer: no token is said twice, none is missing", async () => {
  // Only the embedding of `late` has a value in the column that the first norm makes loud, and no prompt has this token.
  const late = 101;
  const file = await changedModel(
    { weightType: "f32" },
    "token_embd.weight",
    (values, [cols]) => {
      for (let at = 0; at < values.length; at += cols!) values[at] = at === late * cols! ? 1 : 0;
    },
    "blk.0.attn_norm.weight",
    (values) => {
      values[0] = 1e9;
    },
  );
  const forced = { ...options, logitBias: { [late]: 1000 } };
  let wanted: readonly number[] = [];
  await said(file, { kvType: "f32" }, async (opened) => {
    wanted = (await opened.generate(text, forced).result).tokenIds;
  });
  expect(wanted[0]).toBe(late);
  const { warnings } = await said(file, { kvType: "f16" }, async (opened) => {
    const generation = opened.generate(text, forced);
    const events: number[] = [];
    let all = "";
    for await (const { id, text: part } of generation.tokens()) {
      if (id >= 0) events.push(id);
      all += part;
    }
    const result = await generation.result;
    expect(events).toEqual(wanted);
    expect(result.tokenIds).toEqual(wanted);
    expect(result.text).toBe(all);
  });
  expect(warnings).toHaveLength(1);
});

test("where F32 has no room: an error with the numbers, and the model is there for others", async () => {
  const file = await loud();
  const sizes: number[] = [];
  for (const kvType of ["f16", "f32"]) {
    await said(file, { kvType }, async (model) => {
      const { weightBytes, kvBytes, workBytes } = (await model.status()).memory;
      sizes.push(weightBytes + kvBytes + workBytes);
    });
  }
  const ramBytes = Math.floor((sizes[0]! + sizes[1]!) / 2);
  const settings = { kvType: "f16", ramBytes, mmap: false };
  await said(file, settings, async (model) => {
    for (let time = 0; time < 2; time++) {
      const error = await model.generate(text, options).result.catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(ModelError);
      const { message } = error as Error;
      expect(message).toMatch(
        /KV cache of f16 can hold: "blk\.1.* reaches .*KV cache of f32: .*KiB.*Use at most \d+ as contextSize/s,
      );
      expect((error as Error).cause).toBeInstanceOf(MemoryError);
    }
    expect(await model.tokenize("the cat")).not.toHaveLength(0);
    expect(model.info.kvType).toBe("f16");
  });
});

test("a state that was saved with another cache is refused, with both types", async () => {
  const file = await loud();
  let saved: Uint8Array | undefined;
  const tokens = [1, 5, 6, 7];
  const quiet = new File([Uint8Array.from(await tinyGguf())], "tiny.gguf");
  await said(quiet, { kvType: "f16" }, async (model) => {
    await model.generate(tokens, options).result;
    saved = await model.stateBytes({ tokens });
  });
  expect(saved).toBeDefined();
  await said(file, { kvType: "f16" }, async (model) => {
    await model.generate(text, options).result;
    const own = await model.stateBytes({ tokens: await model.tokenize(text) });
    expect((await model.loadState(own)).tokenIds.length).toBeGreaterThan(0);
    await expect(model.loadState(saved!)).rejects.toThrow(/f16|weights/);
  });
});
