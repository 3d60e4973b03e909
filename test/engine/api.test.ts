// The public API through real engine threads, on a tiny random model: streaming, determinism, abort, chat, dispose.
// Held against: the same answer asked for in other ways, and errors written here.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  ContextError,
  DisposedError,
  FormatError,
  inspect,
  type Model,
  open,
  openTokenizer,
  SourceError,
  UsageError,
} from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
beforeAll(async () => {
  file = await tinyFile();
  model = await open(file.path, { kvType: "f32" });
});
afterAll(async () => {
  await model.dispose();
  file.remove();
});

describe("generate", () => {
  test("streams the text that the result has", async () => {
    const generation = model.generate("the cat", { temperature: 0, maxTokens: 12 });
    let streamed = "";
    for await (const piece of generation) streamed += piece;
    const result = await generation.result;
    expect(streamed).toBe(result.text);
    expect(result.tokenIds).toHaveLength(12);
    expect(result.stopReason).toBe("length");
    expect(result.timings.promptTokens).toBe(result.promptTokenIds.length);
    expect(result.timings.generatedTokens).toBe(12);
    const { sampledTokens, sampleMs, promptMs, generatedMs, totalMs } = result.timings;
    expect(sampledTokens).toBe(12);
    expect(sampleMs).toBeGreaterThan(0);
    expect(sampleMs).toBeLessThanOrEqual(generatedMs);
    expect(totalMs).toBeGreaterThanOrEqual(promptMs + generatedMs);
    expect(result.text).not.toContain("\uFFFD".repeat(12));
  });

  test("greedy is what logits() says", async () => {
    const { greedy } = await model.logits("the cat", { greedy: 10 });
    const { tokenIds } = await model.generate("the cat", { temperature: 0, maxTokens: 10 }).result;
    expect(tokenIds).toEqual(greedy);
  });

  test("token ids are a prompt too", async () => {
    const ids = await model.tokenize("the cat");
    const a = await model.generate(ids, { temperature: 0, maxTokens: 5 }).result;
    const b = await model.generate("the cat", { temperature: 0, maxTokens: 5 }).result;
    expect(a.tokenIds).toEqual(b.tokenIds);
    expect(await model.detokenize(ids)).toBe("the cat");
  });

  test("a seed repeats the text, another one changes it", async () => {
    const options = { temperature: 1.5, topK: 0, topP: 1, minP: 0, maxTokens: 20, ignoreEos: true };
    const run = async (seed: number) =>
      (await model.generate("a", { ...options, seed }).result).tokenIds;
    expect(await run(1)).toEqual(await run(1));
    expect(await run(1)).not.toEqual(await run(2));
  });

  test("a stop string ends the text before it", async () => {
    const whole = (await model.generate("the", { temperature: 0, maxTokens: 30 }).result).text;
    const stop = whole.slice(4, 7);
    const result = await model.generate("the", { temperature: 0, maxTokens: 30, stop: [stop] })
      .result;
    expect(result.text).toBe(whole.slice(0, whole.indexOf(stop)));
    expect(result).toMatchObject({ stopReason: "stop", stopString: stop });
  });

  test("log-probabilities come with the tokens", async () => {
    const events = [];
    const generation = model.generate("the", { temperature: 0, maxTokens: 4, logprobs: 3 });
    for await (const event of generation.tokens()) if (event.id >= 0) events.push(event);
    expect(events).toHaveLength(4);
    for (const event of events) {
      expect(event.top).toHaveLength(3);
      expect(event.top![0]!.id).toBe(event.id); // greedy takes the best
      expect(event.logprob).toBe(event.top![0]!.logprob);
      expect(event.logprob).toBeLessThan(0);
    }
  });

  test("several at once give what each gives alone", async () => {
    const prompts = ["the", "cat", "sat a", "eee"];
    const run = async (prompt: string) =>
      (await model.generate(prompt, { temperature: 0, maxTokens: 8 }).result).tokenIds;
    const alone = [];
    for (const prompt of prompts) alone.push(await run(prompt));
    expect(await Promise.all(prompts.map(run))).toEqual(alone);
  });

  test("it ends when the context is full, and says so", async () => {
    const small = await open(file.path, { contextSize: 32 });
    const result = await small.generate("the", { temperature: 0, ignoreEos: true }).result;
    expect(result.stopReason).toBe("context");
    // Every place of the context was used; the last token needs none, since nothing is computed from it.
    expect(result.promptTokenIds.length + result.tokenIds.length).toBe(33);
    await small.dispose();
  });

  test("a prompt that does not fit is refused with both numbers", async () => {
    const small = await open(file.path, { contextSize: 32 });
    const long = "cat ".repeat(40);
    const count = (await small.tokenize(long)).length;
    const refused = small.generate(long).result;
    await expect(refused).rejects.toThrow(ContextError);
    await expect(refused).rejects.toThrow(`${count} tokens, but the context holds 32`);
    await small.dispose();
  });

  test("wrong options are refused by name", async () => {
    const refused = [
      [{ temperature: -1 }, "temperature"],
      [{ maxTokens: 1.5 }, "maxTokens"],
      [{ stop: [""] }, "stop"],
      [{ stop: "cat" }, "stop"],
      [{ seed: () => 1 }, "plain data"],
      [{ temprature: 1 }, "temprature"],
      [{ logprobs: -1 }, "logprobs"],
    ] as const;
    for (const [options, name] of refused) {
      const result = model.generate("a", options as object).result;
      await expect(result).rejects.toThrow(UsageError);
      await expect(result).rejects.toThrow(name);
    }
    await expect(model.generate([9999]).result).rejects.toThrow("token id 9999");
    await expect(model.generate([]).result).rejects.toThrow("no tokens");
    expect(() => model.generate(5 as unknown as string)).toThrow("prompt: got number");
    await expect(model.logits("a", { top: -1 })).rejects.toThrow("top: got -1");
    await expect(model.logits("a", { greedy: 1.5 })).rejects.toThrow("greedy: got 1.5");
    expect((await model.logits("a", { top: 0 })).positions[0]!.top).toEqual([]);
  });

  test("what cannot be sent to the engine is forgotten, not rejected again at the end", async () => {
    const other = await open(file.path);
    const seed = (() => 1) as unknown as number;
    await expect(other.generate("a", { seed }).result).rejects.toThrow(UsageError);
    await other.dispose(); // an unhandled rejection here fails the run
  });

  test("two readers of one generation share its pieces, and both end", async () => {
    const generation = model.generate("the cat", { temperature: 0, maxTokens: 12 });
    const read = async () => {
      let seen = "";
      for await (const piece of generation) seen += piece;
      return seen.length;
    };
    const [a, b] = await Promise.all([read(), read()]);
    expect(a! + b!).toBe((await generation.result).text.length);
  });

  test("an id that the tokenizer does not know (a padded embedding table) is no text", async () => {
    const padded = await tinyFile({ vocab: 272 });
    const other = await open(padded.path);
    const options = { temperature: 0, maxTokens: 2, logprobs: 1, logitBias: { 270: 1e6 } };
    const { text, tokenIds } = await other.generate("the", options).result;
    expect({ text, tokenIds }).toEqual({ text: "", tokenIds: [270, 270] });
    await other.dispose();
    padded.remove();
  });
});

describe("abort", () => {
  test("a signal stops within one token; the text so far is the result", async () => {
    const controller = new AbortController();
    const generation = model.generate("the", {
      temperature: 0,
      ignoreEos: true,
      signal: controller.signal,
    });
    let seen = 0;
    for await (const event of generation.tokens()) {
      if (event.id >= 0 && ++seen === 5) controller.abort();
    }
    const result = await generation.result;
    expect(result.stopReason).toBe("aborted");
    // What was on its way when we aborted may still arrive; the context (512) was far from full.
    expect(result.tokenIds.length).toBeLessThan(100);
  });

  test("leaving the loop stops it", async () => {
    const generation = model.generate("the", { temperature: 0, ignoreEos: true });
    for await (const piece of generation) if (piece) break;
    expect((await generation.result).stopReason).toBe("aborted");
  });

  test("a signal that was aborted before", async () => {
    const signal = AbortSignal.abort();
    const { stopReason, tokenIds } = await model.generate("the", { signal }).result;
    expect({ stopReason, tokenIds }).toEqual({ stopReason: "aborted", tokenIds: [] });
    await expect(open(file.path, { signal })).rejects.toThrow("aborted");
  });
});

describe("chat", () => {
  const options = { temperature: 0, maxTokens: 6, ignoreEos: true };

  test("remembers, reuses its cache, undoes and answers again", async () => {
    const chat = model.chat({ system: "cat", ...options });
    const first = await chat.send("the").result;
    // Other chats may have begun like this one, but none of them has asked this.
    expect(first.timings.cachedTokens).toBeLessThan(first.promptTokenIds.length - 1);
    expect(chat.messages.map((message) => message.role)).toEqual(["system", "user", "assistant"]);
    const second = await chat.send("sat").result;
    // What the template repeats of the first exchange was not computed again.
    expect(second.timings.cachedTokens).toBeGreaterThanOrEqual(first.promptTokenIds.length);

    const fresh = model.chat({ messages: chat.messages.slice(0, 3), ...options });
    expect((await fresh.send("sat").result).tokenIds).toEqual(second.tokenIds);

    expect((await chat.regenerate().result).tokenIds).toEqual(second.tokenIds);
    expect(chat.messages).toHaveLength(5);
    expect(chat.undo()).toBe(true);
    expect(chat.messages).toHaveLength(3);
    expect(chat.undo()).toBe(true);
    expect(chat.undo()).toBe(false);
    chat.dispose();
    fresh.dispose();
    expect(() => chat.send("a")).toThrow(DisposedError);
  });

  test("one answer at a time", async () => {
    const chat = model.chat(options);
    const first = chat.send("the");
    await expect(chat.send("again").result).rejects.toThrow("still answering");
    const { text } = await first.result;
    expect(chat.messages).toEqual([
      { role: "user", content: "the" },
      { role: "assistant", content: text },
    ]);
    chat.dispose();
  });

  test("a message that fails leaves the conversation as it was", async () => {
    const small = await open(file.path, { contextSize: 64 });
    const chat = small.chat({ temperature: 0, maxTokens: 4 });
    await chat.send("the").result;
    const before = chat.messages;
    await expect(chat.send("cat ".repeat(80)).result).rejects.toThrow(ContextError);
    expect(chat.messages).toBe(before);
    await small.dispose();
  });

  test("the template can be seen and replaced", async () => {
    const messages = [{ role: "user" as const, content: "hi" }];
    expect((await model.applyTemplate(messages)).text).toBe("<user>hi\n<assistant>");
    const chatml = await open(file.path, { chatTemplate: "chatml" });
    expect((await chatml.applyTemplate(messages)).text).toContain("<|im_start|>user\nhi<|im_end|>");
    await chatml.dispose();
    await expect(open(file.path, { chatTemplate: "nonsense" })).rejects.toThrow("chatml");
  });
});

describe("open and dispose", () => {
  test("says how far it is", async () => {
    const seen: number[] = [];
    const other = await open(file.path, {
      onProgress: ({ loadedBytes, totalBytes }) => seen.push(loadedBytes / totalBytes),
    });
    expect(seen[0]).toBe(0);
    expect(seen.at(-1)).toBe(1);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    await other.dispose();
  });

  test("info", () => {
    expect(model.info).toMatchObject({
      name: "tiny",
      format: "gguf",
      architecture: "llama",
      layers: 2,
      contextSize: 512,
      hasChatTemplate: true,
      weightType: "f32",
    });
  });

  test("what cannot be opened says why, as the same error class as on this thread", async () => {
    await expect(open("/no/such/file.gguf")).rejects.toThrow(SourceError);
    await expect(open(import.meta.filename)).rejects.toThrow(FormatError);
    await expect(open(file.path, { contextSize: 0 })).rejects.toThrow("contextSize: got 0");
    await expect(open(file.path, { kvType: "q9" as "f16" })).rejects.toThrow('"q9"');
    for (const threads of [0, 257]) {
      await expect(open(file.path, { threads })).rejects.toThrow(
        `threads: got ${threads}, expected a whole number from 1 to 256`,
      );
    }
    await expect(open(5 as unknown as string)).rejects.toThrow("model: got 5");
    await expect(open(file.path, { threds: 2 } as object)).rejects.toThrow('"threds"');
  });

  test("an abort does not wait for a server that never answers", async () => {
    const server = createServer(() => {}); // takes the request and says nothing
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const controller = new AbortController();
    const opening = open(`http://127.0.0.1:${port}/model.gguf`, { signal: controller.signal });
    server.once("request", () => controller.abort());
    await expect(opening).rejects.toThrow("aborted");
    server.closeAllConnections();
    server.close();
  });

  test("nothing works after dispose, running work is rejected, twice is fine", async () => {
    const other = await open(file.path);
    const running = other.generate("the", { ignoreEos: true }).result;
    const expectation = expect(running).rejects.toThrow(DisposedError);
    await other.dispose();
    await expectation;
    await expect(other.tokenize("a")).rejects.toThrow(DisposedError);
    await expect(other.generate("a").result).rejects.toThrow(DisposedError);
    await other.dispose();
  });

  test("inspect and openTokenizer read the header only", async () => {
    const seen = await inspect(file.path);
    expect(seen).toMatchObject({ format: "gguf", architecture: "llama" });
    expect(seen.tensors.find((tensor) => tensor.name === "token_embd.weight")?.shape).toEqual([
      265, 32,
    ]);
    expect(seen.memory!.totalBytes).toBeGreaterThan(seen.memory!.weightBytes);
    const tokenizer = await openTokenizer(file.path);
    expect(tokenizer.decode(tokenizer.encode("the cat"))).toBe("the cat");
  });
});
