// Hung threads: their callers get an error, the engine is restarted if requested, and a thread that is only slow is
// left alone. Aborts reach running work on texts.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { HangError, RestartingError } from "../../src/base/errors.ts";
import { BEATS, type Methods } from "../../src/engine/protocol.ts";
import { Line } from "../../src/engine/rpc.ts";
import { AbortedError, type Model, open, WorkerError } from "../../src/index.ts";
import type { EngineThread } from "../../src/platform/platform.ts";
import { magicWords, openHanging } from "../support/hanging-platform.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;

beforeAll(async () => {
  file = await tinyFile();
});

afterAll(() => file.remove());

const greedy = { temperature: 0, maxTokens: 5 };

async function untilOk(model: Model): Promise<number> {
  for (let tries = 0; tries < 2000; tries++) {
    const { status, restarts } = await model.health();
    if (status === "ok") return restarts;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error("the engine did not come back");
}

describe("an engine that hangs", () => {
  test("is ended, and the model is of no use any more", async () => {
    await using model = await openHanging(file.path, ["engine"], { hangSeconds: 2 });
    expect(await model.health()).toEqual({ status: "ok", restarts: 0 });
    const other = model.generate("the", { maxTokens: 1_000_000, ignoreEos: true });
    other.result.catch(() => {});
    const hung = model.generate(magicWords);
    await expect(hung.result).rejects.toThrow(HangError);
    await expect(hung.result).rejects.toThrow(
      "the engine's thread did not respond for 2 s and was stopped; its running requests are lost. Open the model again",
    );
    await expect(model.generate("the").result).rejects.toThrow(WorkerError);
    expect((await model.health()).status).toBe("error");
  });

  test("says so before it is ended", async () => {
    await using model = await openHanging(file.path, ["engine"], { hangSeconds: 100 });
    model.tokenize(magicWords).catch(() => {});
    expect((await model.health({ timeoutMs: 200 })).status).toBe("error");
  });

  test("is started again where that was asked for", async () => {
    const options = { hangSeconds: 2, restart: true };
    let mayStart = Promise.resolve();
    await using model = await openHanging(file.path, ["engine"], options, {}, () => mayStart);
    const { text } = await model.generate("the cat", greedy).result;
    const looked = Promise.withResolvers<void>();
    mayStart = looked.promise;
    await expect(model.generate(magicWords).result).rejects.toThrow(HangError);
    await expect(model.generate("the cat").result).rejects.toThrow(RestartingError);
    expect((await model.health()).status).toBe("loading");
    looked.resolve();
    expect(await untilOk(model)).toBe(1);
    expect((await model.generate("the cat", greedy).result).text).toBe(text);
    expect(await model.tokenize("the cat ".repeat(2000))).toHaveLength(16_002);
  });
});

/** A thread that says nothing; what it is sent is kept. */
function silentThread() {
  const sent: { method: string; flags?: Int32Array }[] = [];
  let ended = false;
  const thread: EngineThread = {
    post: (message) => void sent.push(message as { method: string }),
    onMessage: () => {},
    onFailure: () => {},
    ref: () => {},
    unref: () => {},
    terminate: async () => {
      ended = true;
    },
  };
  return { thread, sent, isEnded: () => ended };
}

test("a thread in the middle of something long is not ended while it goes on", async () => {
  const { thread, sent, isEnded } = silentThread();
  const line = new Line<Methods>(thread, { hangSeconds: 0.3 });
  const { flags } = sent.find(({ method }) => method === "share")!;
  const answer = expect(line.call("alive", {})).rejects.toThrow(HangError);
  for (let i = 0; i < 50; i++) {
    Atomics.add(flags!, BEATS, 1); // it computes op after op, and answers nothing
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(isEnded()).toBe(false);
  expect(sent.filter(({ method }) => method === "ping")).toHaveLength(1); // no second before it answers
  await answer;
  expect(isEnded()).toBe(true);
});

test("a thread that nothing is asked of is not watched", async () => {
  const { thread, sent, isEnded } = silentThread();
  new Line<Methods>(thread, { hangSeconds: 0.06 });
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(isEnded()).toBe(false);
  expect(sent.map(({ method }) => method)).toEqual(["share"]);
});

const long = "the cat sat, é 😀. ".repeat(900);

test("a text thread that hangs fails the text that it was at; the next thread does the others", async () => {
  await using model = await openHanging(file.path, ["text"], { hangSeconds: 2 });
  const right = await model.tokenize(long);
  const hung = model.tokenize(magicWords + long);
  const others = [model.countTokens(long), model.countTokens(long)];
  await expect(hung).rejects.toThrow(HangError);
  await expect(hung).rejects.toThrow("the thread that works on texts did not respond");
  expect(await Promise.all(others)).toEqual([right.length, right.length]);
  expect(await model.health()).toEqual({ status: "ok", restarts: 0 });
});

describe("an abort reaches", () => {
  const endless = "the cat sat, é 😀. ".repeat(1_000_000);
  let model: Model;

  beforeAll(async () => {
    model = await open(file.path, { threads: 1 });
    await model.tokenize(long); // the thread for texts is there
  });

  afterAll(async () => await model.dispose());

  test("a text that is being tokenized", async () => {
    const gone = new AbortController();
    const counted = model.countTokens(endless, { signal: gone.signal });
    setTimeout(() => gone.abort(), 30);
    await expect(counted).rejects.toThrow(AbortedError);
    expect(await model.countTokens(long)).toBeGreaterThan(900);
  });

  test("one that waits behind it, and one that was never begun", async () => {
    const gone = new AbortController();
    const first = model.countTokens(endless, { signal: gone.signal });
    const second = model.countTokens(endless, { signal: gone.signal });
    gone.abort();
    await expect(first).rejects.toThrow(AbortedError);
    await expect(second).rejects.toThrow(AbortedError);
    await expect(model.countTokens(endless, { signal: gone.signal })).rejects.toThrow(AbortedError);
  });

  test("a template that is being rendered", async () => {
    const template =
      "{% for i in range(999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}";
    await using slow = await open(file.path, { threads: 1, chatTemplate: template });
    const gone = new AbortController();
    const messages = Array.from({ length: 4000 }, () => ({ role: "user" as const, content: "a" }));
    const rendered = slow.applyTemplate(messages, { signal: gone.signal });
    setTimeout(() => gone.abort(), 300);
    await expect(rendered).rejects.toThrow(AbortedError);
  });

  test("a generation whose prompt is not tokens yet: it ends as any other that is stopped", async () => {
    const gone = new AbortController();
    const messages = [{ role: "user" as const, content: endless }];
    const generation = model.chat({ messages, signal: gone.signal }).send("more");
    gone.abort(); // a prompt that is far too long is refused as soon as it is rendered
    const { stopReason, text, promptTokenIds } = await generation.result;
    expect({ stopReason, text, promptTokenIds }).toEqual({
      stopReason: "aborted",
      text: "",
      promptTokenIds: [],
    });
  });
});
