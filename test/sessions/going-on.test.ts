// What goes on: stories that outgrow the context, answers that were stopped; what leaves nothing behind; and presets.

import { describe, expect, test } from "vitest";
import { Presets } from "../../apps/sessions/presets.ts";
import { Runs } from "../../apps/sessions/runs.ts";
import { slide } from "../../apps/sessions/slide.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import { FakeModel, scratchStore, settle } from "./fakes.ts";

function scene(mode: "chat" | "story") {
  const opened = scratchStore();
  const runs = new Runs(opened.store, { saveEveryMs: 60_000 });
  const { id } = opened.store.createSession({ mode, title: "t" });
  return { ...opened, runs, id, model: new FakeModel() };
}

const text = (tokens: readonly number[]) => String.fromCodePoint(...tokens);
const letters = (count: number) => Array.from({ length: count }, (_, at) => at);

describe("a text longer than the context", () => {
  test("keeps its beginning and its latest part, with room for the answer", () => {
    for (const length of [1, 100, 175, 176, 177, 200, 255, 256, 300, 1000, 5000]) {
      const { tokens, dropped } = slide(letters(length), 256, 80);
      expect(tokens.length + dropped).toBe(length);
      expect(tokens.length).toBeLessThanOrEqual(256 - 80);
      expect(tokens.at(-1)).toBe(length - 1);
      expect(dropped > 0).toBe(length > 176);
      if (dropped === 0) continue;
      expect(tokens.slice(0, 64)).toEqual(letters(64));
      expect(tokens.length).toBeGreaterThan(64 + 50); // enough of the latest
    }
  });

  test("is cut in large steps, so that most prompts only grow", () => {
    const cuts = new Set(letters(400).map((more) => slide(letters(300 + more), 256, 80).dropped));
    expect(cuts.size).toBeLessThan(10);
  });

  test.each([1, 2, 3, 8, 60])("fits a context of %i", (contextSize) => {
    for (const wanted of [undefined, 1, 100]) {
      const { tokens } = slide(letters(500), contextSize, wanted);
      expect(tokens.length).toBeLessThanOrEqual(Math.max(contextSize - 1, 0));
    }
  });
});

describe("a story", () => {
  test("goes on past the context, and says how much the model did not see", async () => {
    const { runs, model, store, id } = scene("story");
    model.contextSize = 60;
    const { run, answers } = await runs.ask(id, model, {
      content: `Beginning${"-".repeat(100)}end`,
      settings: { maxTokens: 10 },
    });
    await settle();
    const [first] = model.spoken;
    expect(text(first!.tokens)).toMatch(/^Beginning-+end$/);
    expect(first!.tokens.length).toBeLessThanOrEqual(50);
    first!.say(" more");
    first!.end();
    await run.done;
    expect(store.message(id, answers[0]!.id)).toMatchObject({
      content: " more",
      tokens: { prompt: first!.tokens.length, dropped: 112 - first!.tokens.length },
    });
    expect(store.path(id, answers[0]!.id)[0]!.content).toHaveLength(112); // nothing was cut of the story
  });

  test("slides in the middle of an answer that reaches the end of the context", async () => {
    const { runs, model, store, id } = scene("story");
    model.contextSize = 60;
    const settings = { maxTokens: 50 };
    const { run, answers } = await runs.ask(id, model, { content: "x".repeat(40), settings });
    await settle();
    for (let count = 0; count < 20; count++) model.spoken[0]!.say("a");
    model.spoken[0]!.end("context");
    await settle();
    const [, second] = model.spoken;
    expect(second!.options.maxTokens).toBe(30);
    expect(text(second!.tokens)).toMatch(/^x{15}x*a{20}$/);
    second!.say("b");
    second!.end("length");
    await run.done;
    expect(store.message(id, answers[0]!.id)).toMatchObject({
      content: `${"a".repeat(20)}b`,
      stopReason: "length",
      tokens: { generated: 21 },
    });
  });

  test("has no empty pieces: an answer without a word is taken out", async () => {
    const { runs, model, store, id } = scene("story");
    const { run, user } = await runs.ask(id, model, { content: "The end.", count: 2 });
    await settle();
    model.spoken[0]!.say(" \n");
    model.spoken[0]!.end();
    model.spoken[1]!.end();
    await run.done;
    expect(store.messages(id).map(({ content }) => content)).toEqual(["The end."]);
    expect(store.session(id).leaf).toBe(user!.id);
  });

  test("that is stopped before its first word, or cut off with the process, has none either", async () => {
    const { runs, model, store, id, database } = scene("story");
    const { run, user } = await runs.ask(id, model, { content: "So" });
    await settle();
    run.cancel();
    await run.done;
    expect(store.messages(id)).toHaveLength(1);
    store.begin(id, user!.id, { content: undefined, model: "fake", count: 2 });
    const again = new SessionStore(database);
    expect(again.messages(id)).toHaveLength(1);
    expect(again.session(id).leaf).toBe(user!.id);
  });
});

describe("an answer that was stopped", () => {
  test("goes on where it ended, in the same message", async () => {
    const { runs, model, store, id } = scene("chat");
    const { run, answers } = await runs.ask(id, model, { content: "Count" });
    await settle();
    model.spoken[0]!.say("one, two");
    run.cancel();
    await run.done;
    const message = answers[0]!.id;
    const { run: second, answers: resumed } = await runs.ask(id, model, { message });
    expect(resumed).toMatchObject([{ id: message, content: "one, two", state: "streaming" }]);
    await settle();
    expect(model.prompts.at(-1)).toBe("<user>Count<assistant>one, two");
    model.spoken[1]!.say(", three");
    model.spoken[1]!.end();
    const events = [];
    for await (const event of second.events(undefined, new AbortController().signal)) {
      events.push(event);
    }
    expect(events[0]).toMatchObject({ name: "snapshot" });
    expect(store.messages(id)).toHaveLength(2);
    expect(store.message(id, message)).toMatchObject({
      content: "one, two, three",
      state: "complete",
      stopReason: "end",
    });
  });

  test("keeps its words when going on fails or is stopped at once", async () => {
    const { runs, model, store, id } = scene("chat");
    const { run, answers } = await runs.ask(id, model, { content: "Count" });
    await settle();
    model.spoken[0]!.say("one");
    run.cancel();
    await run.done;
    const message = answers[0]!.id;
    const { run: second } = await runs.ask(id, model, { message });
    second.cancel();
    await second.done;
    expect(store.message(id, message)).toMatchObject({ content: "one", state: "aborted" });
  });

  test("is refused where it makes no sense", async () => {
    const { runs, model, store, id } = scene("chat");
    const user = store.addMessage(id, null, { role: "user", content: "Hi" });
    const answer = store.addMessage(id, user.id, { role: "assistant", content: "Hello" });
    const empty = store.addMessage(id, user.id, { role: "assistant", content: "" });
    store.addMessage(id, answer.id, { role: "user", content: "And?" });
    const refused = async (message: string, more: object = {}) =>
      await expect(runs.ask(id, model, { message, ...more })).rejects;
    await (await refused(user.id)).toThrow(/is not an answer/);
    await (await refused(empty.id)).toThrow(/no text to continue/);
    await (await refused(answer.id)).toThrow(/has messages below it/);
    await (await refused(answer.id, { content: "x" })).toThrow(/Leave out "content"/);
    await (await refused("nobody")).toThrow(/there is no message/);
  });
});

test("presets are settings under a name, replaced and deleted by it", () => {
  const { database } = scratchStore();
  const presets = new Presets(database);
  expect(presets.all()).toEqual([]);
  presets.save("Pirate", { systemPrompt: "Arr", temperature: 1 });
  presets.save("calm", { temperature: 0.2 });
  presets.save("Pirate", { temperature: 1.2 });
  expect(presets.all()).toEqual([
    { name: "calm", settings: { temperature: 0.2 } },
    { name: "Pirate", settings: { temperature: 1.2 } },
  ]);
  presets.delete("calm");
  expect(() => presets.delete("calm")).toThrow(/no preset "calm"/);
  expect(presets.all()).toHaveLength(1);
});
