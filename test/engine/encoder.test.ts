// An encoder, opened as any model: whole texts in one batch, no other text in its vectors, and no generation.

import { afterAll, beforeAll, expect, test } from "vitest";
import { ContextError, type Model, open, UsageError } from "../../src/index.ts";
import { describeShared, sharedPath } from "../support/shared.ts";

const words = ["big yes, her", "play cake Tom in happy moon saw", "She", "sky fly bird in he sad"];
/** Of seven to some forty tokens. */
const texts = words.map((word, i) => `${word} `.repeat(i + 1).trim());

describeShared("an encoder", "archs", () => {
  let model: Model;
  beforeAll(async () => {
    model = await open(sharedPath("archs/bert.gguf"), { contextSize: 64, threads: 1 });
  });
  afterAll(async () => await model.dispose());

  test("its info", () => {
    expect(model.info.generates).toBe(false);
    expect(model.info.embedding).toEqual({ size: 64, pooling: "mean" });
  });

  test("texts in one batch have the bits that each has alone", async () => {
    const many = [...texts, ...texts.toReversed()];
    const together = await model.embed(many);
    const { batches, batchSequences } = await model.status();
    expect(batchSequences).toBeGreaterThan(batches);
    for (const [i, text] of many.entries()) {
      const [alone] = await model.embed([text]);
      expect(together[i], text).toEqual(alone);
    }
  });

  test("a text that fills the context is one batch", async () => {
    const before = await model.status();
    const [whole] = await model.embed([new Array<number>(64).fill(20)], { pooling: "none" });
    expect(whole!.vector.length).toBe(64 * 64);
    expect((await model.status()).batches).toBe(before.batches + 1);
  });

  test("a longer one is refused with the numbers", async () => {
    await expect(model.embed(["she", new Array<number>(65).fill(20)])).rejects.toThrow(
      new ContextError(
        "the text has 65 tokens, but the context holds 64. Shorten it, or use a larger contextSize (trained for 256)",
      ),
    );
  });

  test("it does not generate, and says what it does", async () => {
    const says = /is an encoder, which makes embeddings. Use embed\(\), or a model that generates/;
    await expect(model.generate("big").result).rejects.toThrow(says);
    await expect(model.logits("big")).rejects.toThrow(says);
    await expect(model.score([2, 20, 3])).rejects.toThrow(says);
  });

  test("without a classifier it does not rank", async () => {
    const ranked = model.embed(["big"], { pooling: "rank" });
    await expect(ranked).rejects.toThrow(UsageError);
    await expect(ranked).rejects.toThrow(/has no classifier that could rank texts/);
  });

  test("an abort ends a long list", async () => {
    const stop = new AbortController();
    const many = model.embed(new Array<string>(500).fill(texts[3]!), { signal: stop.signal });
    stop.abort();
    await expect(many).rejects.toMatchObject({ code: "aborted" });
    expect((await model.embed(["big"]))[0]!.vector.length).toBe(64);
  });
});
