// Large texts: tokenized on the text thread, with the same tokens as on the engine's; refused by length without
// tokenizing.

import { rmSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { EngineLine } from "../../src/engine/rpc.ts";
import { TextDesk } from "../../src/engine/text-desk.ts";
import { ContextError, type Model, open, openTokenizer } from "../../src/index.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import { tinyFile } from "../support/tiny-file.ts";

type File = Awaited<ReturnType<typeof tinyFile>>;

/** Twice what the engine's thread takes at a time. */
const long = "the cat sat, é 😀. ".repeat(900);

describe("a model", () => {
  let file: File;
  let model: Model;

  beforeAll(async () => {
    file = await tinyFile();
    model = await open(file.path, { threads: 1, contextSize: 128 });
  });

  afterAll(async () => {
    await model.dispose();
    file.remove();
  });

  test("gives the same tokens for long texts as for short ones, and the text back", async () => {
    const tokenizer = await openTokenizer(file.path);
    const tokens = await model.tokenize(long);
    expect(tokens).toEqual(tokenizer.encode(long));
    expect(await model.countTokens(long)).toBe(tokens.length);
    expect(await model.detokenize(tokens)).toBe(long);
    const many = await Promise.all(
      Array.from({ length: 40 }, () => model.tokenize("cat ".repeat(99))),
    );
    expect(new Set(many.map(String)).size).toBe(1);
  });

  test("renders long conversations there, too", async () => {
    const messages = [{ role: "user" as const, content: long }];
    expect((await model.applyTemplate(messages)).text).toBe(`<user>${long}\n<assistant>`);
  });

  test("gives the bytes of tokens, in one call", async () => {
    const tokens = await model.tokenize("é", { addBos: false });
    const pieces = await model.tokenPieces(tokens);
    expect(pieces.map((piece) => [...piece])).toEqual([[0x20], [0xc3], [0xa9]]);
    await expect(model.tokenPieces([-1])).rejects.toThrow("expected a whole number");
    await expect(model.detokenize([2 ** 31])).rejects.toThrow("expected a whole number");
    await expect(model.tokenPieces([100_000])).rejects.toThrow("not in the vocabulary");
  });

  test("refuses a prompt that is too long, also one whose length alone says so", async () => {
    const generation = model.chat().send(long, { maxTokens: 1 });
    await expect(generation.result).rejects.toThrow(
      /the prompt has (at least )?\d+ tokens.*context holds 128/,
    );
    await expect(generation.result).rejects.toThrow(ContextError);
    const endless = model.generate("x".repeat(1_000_000), { maxTokens: 1 });
    await expect(endless.result).rejects.toThrow(/at least \d+ tokens/);
    await expect(model.tokenize(long, { maxTokens: 100 })).rejects.toThrow(ContextError);
    await expect(model.tokenize("the", { maxTokens: 1 })).rejects.toThrow("the text has 5 tokens");
  });
});

test("a file that is gone: the engine does it all", async () => {
  const file = await tinyFile();
  await using model = await open(file.path, { threads: 1 });
  const tokens = (await openTokenizer(file.path)).encode(long);
  rmSync(file.path);
  expect(await model.tokenize(long)).toEqual(tokens);
  file.remove();
});

/** A thread that answers `open` with a fingerprint and everything else with its own name. */
function fakeThread(fingerprint: number): EngineThread & { ended: boolean } {
  let listener: (message: unknown) => void = () => {};
  const thread = {
    ended: false,
    post: (message: unknown) => {
      const { id, method } = message as { id: number; method: string };
      const result = method === "open" ? fingerprint : "text thread";
      queueMicrotask(() => listener({ id, kind: "result", result }));
    },
    onMessage: (listen: typeof listener) => {
      listener = listen;
    },
    onFailure: () => {},
    ref: () => {},
    unref: () => {},
    terminate: async () => {
      thread.ended = true;
    },
  };
  return thread;
}

function fakeEngine(fingerprint: number): EngineLine {
  const call = async (method: string) =>
    method === "fingerprint" ? fingerprint : ("engine" as unknown);
  return { call } as unknown as EngineLine;
}

function fakeDesk(here: number, there: number) {
  const thread = fakeThread(there);
  const request = { spec: { kind: "path" as const, path: "x" }, chatTemplate: undefined };
  const desk = new TextDesk(fakeEngine(here), { start: () => thread, request });
  const ask = (units: number) =>
    desk.call("detokenize", { ids: new Int32Array(), special: false }, units);
  return { desk, thread, ask };
}

test("short texts go to the engine; what is long, alone or together, does not", async () => {
  const { desk, thread, ask } = fakeDesk(1, 1);
  expect(await ask(5000)).toBe("engine");
  expect(await ask(5000)).toBe("engine"); // one after the other
  expect(await ask(9000)).toBe("text thread");
  expect((await Promise.all([ask(5000), ask(5000)])).sort()).toEqual(["engine", "text thread"]);
  await desk.dispose();
  expect(thread.ended).toBe(true);
});

test("another model in the file's place is not used", async () => {
  const { thread, ask } = fakeDesk(1, 2);
  expect(await ask(9000)).toBe("engine");
  expect(thread.ended).toBe(true);
});
