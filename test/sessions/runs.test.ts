// Runs: what is saved when, what whoever follows sees, and what is refused. The model is a fake that speaks when told.

import { describe, expect, test } from "vitest";
import type { Run, RunEvent } from "../../apps/sessions/run.ts";
import { Runs } from "../../apps/sessions/runs.ts";
import { UsageError } from "../../src/base/errors.ts";
import { FakeModel, type Opened, scratchStore, settle } from "./fakes.ts";

interface Scene extends Opened {
  runs: Runs;
  model: FakeModel;
  id: string;
  clock: { ms: number };
}

function scene(mode: "chat" | "story" = "chat"): Scene {
  const opened = scratchStore();
  const clock = { ms: 1000 };
  const runs = new Runs(opened.store, { now: () => clock.ms, saveEveryMs: 60_000 });
  const { id } = opened.store.createSession({ mode, title: "t" });
  return { ...opened, runs, model: new FakeModel(), id, clock };
}

type Seen = RunEvent & { id: string };

/** Follows a run until it ends, or until `count` events. */
async function follow(run: Run, from?: string, count: number = Number.POSITIVE_INFINITY) {
  const seen: Seen[] = [];
  for await (const event of run.events(from, new AbortController().signal)) {
    seen.push(event);
    if (seen.length >= count) break;
  }
  return seen;
}

const textOf = (events: readonly Seen[]): string =>
  events
    .map((event) =>
      event.name === "snapshot"
        ? event.data.messages[0]!.content
        : event.name === "delta"
          ? event.data.text
          : "",
    )
    .join("");

describe("a run", () => {
  test("has its question on disk before the model is asked, and its answer at the end", async () => {
    const { store, runs, model, id } = scene();
    const generate = model.generate.bind(model);
    model.generate = (tokens, options) => {
      expect(store.messages(id)).toMatchObject([
        { role: "user", content: "Hi", state: "complete" },
        { role: "assistant", content: "", state: "streaming", model: "fake" },
      ]);
      return generate(tokens, options);
    };
    const { run, user, answers } = await runs.ask(id, model, { content: "Hi" });
    await settle();
    model.spoken[0]!.say("Hel");
    model.spoken[0]!.say("lo.");
    model.spoken[0]!.end();
    await run.done;
    const [, answer] = store.messages(id);
    expect(answer).toMatchObject({
      id: answers[0]!.id,
      parent: user!.id,
      content: "Hello.",
      state: "complete",
      stopReason: "end",
      tokens: { prompt: 8, cached: 0, generated: 2 },
      timings: { tokensPerSecond: 2000 }, // by the engine's clock, not by when they came
    });
    expect(store.session(id).leaf).toBe(answers[0]!.id);
    expect(runs.running(id)).toBeUndefined();
  });

  test("is saved while it is written", async () => {
    const { store, runs, model, id, clock } = scene();
    const { run, answers } = await runs.ask(id, model, { content: "Hi" });
    await settle();
    model.spoken[0]!.say("one ");
    await settle();
    clock.ms += 60_000; // by now it is time
    model.spoken[0]!.say("two ");
    await settle();
    expect(store.message(id, answers[0]!.id)).toMatchObject({
      content: "one two ",
      state: "streaming",
    });
    run.cancel();
    await run.done;
  });

  test("is saved by the clock when no more words come", async () => {
    const opened = scratchStore();
    const runs = new Runs(opened.store, { saveEveryMs: 5 });
    const { id } = opened.store.createSession();
    const model = new FakeModel();
    const { run, answers } = await runs.ask(id, model, { content: "Hi" });
    await settle();
    model.spoken[0]!.say("one ");
    await expect.poll(() => opened.store.message(id, answers[0]!.id).content).toBe("one ");
    run.cancel();
    await run.done;
  });

  test("that is cancelled keeps what it wrote", async () => {
    const { store, runs, model, id } = scene();
    const { run, answers } = await runs.ask(id, model, { content: "Hi" });
    await settle();
    model.spoken[0]!.say("so far");
    run.cancel();
    await run.done;
    expect(store.message(id, answers[0]!.id)).toMatchObject({
      content: "so far",
      state: "aborted",
      stopReason: "aborted",
      tokens: { prompt: 8, cached: 0, generated: 1 },
    });
  });

  test("that fails says why, and keeps what it wrote", async () => {
    const { store, runs, model, id } = scene();
    const { run, answers } = await runs.ask(id, model, { content: "Hi" });
    await settle();
    model.spoken[0]!.say("so");
    model.spoken[0]!.fail(new UsageError("the engine is on fire"));
    const events = await follow(run);
    expect(store.message(id, answers[0]!.id)).toMatchObject({
      content: "so",
      state: "error",
      error: "the engine is on fire",
      tokens: { prompt: 8, cached: null, generated: 1 },
    });
    expect(events.at(-2)).toMatchObject({ name: "end", data: { error: "the engine is on fire" } });
    expect(events.at(-1)!.name).toBe("done");
  });

  test("is the only one in its session", async () => {
    const { runs, model, id } = scene();
    const both = [runs.ask(id, model, { content: "a" }), runs.ask(id, model, { content: "b" })];
    const [first, second] = await Promise.allSettled(both);
    expect(second).toMatchObject({ reason: { problem: "conflict" } });
    const { run } = (first as PromiseFulfilledResult<{ run: Run }>).value;
    await expect(runs.ask(id, model, { content: "c" })).rejects.toThrow(
      `run "${run.id}" is writing`,
    );
    expect(() => runs.keep(id, { content: "d" })).toThrow(/one at a time/);
    run.cancel();
    await run.done;
    const { run: next } = await runs.ask(id, model, { content: "c" });
    next.cancel();
    await next.done;
  });

  test("of one session does not wait for another's", async () => {
    const { runs, model, id, store } = scene();
    const other = store.createSession();
    const { run } = await runs.ask(id, model, { content: "a" });
    const { run: second } = await runs.ask(other.id, model, { content: "b" });
    await settle();
    model.spoken[1]!.end();
    await second.done;
    expect(runs.running(id)).toBe(run);
    run.cancel();
    await run.done;
  });

  test("that does not fit is refused with both numbers, and nothing is saved", async () => {
    const { store, runs, model, id } = scene();
    model.contextSize = 50;
    const asked = runs.ask(id, model, { content: "x".repeat(44) });
    await expect(asked).rejects.toThrow(/has 50 tokens, but the context of fake holds 50/);
    expect(store.messages(id)).toEqual([]);
    expect(runs.running(id)).toBeUndefined();
  });

  test("ends with the rest when the server stops, and no other begins", async () => {
    const { store, runs, model, id } = scene();
    const { answers } = await runs.ask(id, model, { content: "a" });
    await settle();
    model.spoken[0]!.say("half");
    await settle();
    await runs.close();
    expect(store.message(id, answers[0]!.id)).toMatchObject({ content: "half", state: "aborted" });
    await expect(runs.ask(id, model, { content: "b" })).rejects.toThrow(/stopping/);
  });
});

describe("whoever follows", () => {
  test("sees all of it, in order, once", async () => {
    const { runs, model, id } = scene();
    const { run } = await runs.ask(id, model, { content: "Hi" });
    const following = follow(run);
    await settle();
    for (const word of ["one ", "two ", "three"]) {
      model.spoken[0]!.say(word);
      await settle();
    }
    model.spoken[0]!.end();
    const events = await following;
    expect(events[0]).toMatchObject({ name: "snapshot", id: "0" });
    expect(events.filter(({ name }) => name === "delta")).toMatchObject([
      { id: "4", data: { text: "one " } },
      { id: "8", data: { text: "two " } },
      { id: "13", data: { text: "three" } },
    ]);
    expect(events.filter(({ name }) => name === "gauge")).not.toHaveLength(0);
    expect(events.at(-2)).toMatchObject({ name: "end", data: { state: "complete" } });
    expect(events.at(-1)).toMatchObject({ name: "done", data: { run: run.id } });
  });

  test.each([0, 1, 4, 9, 30])(
    "goes on after a break at letter %i without loss or doubling",
    async (at) => {
      const { runs, model, id } = scene();
      const { run } = await runs.ask(id, model, { content: "Hi" });
      await settle();
      const words = ["It ", "was 🙂 ", "a dark ", "and stormy ", "night"];
      for (const word of words) model.spoken[0]!.say(word);
      await settle();
      const whole = words.join("");
      model.spoken[0]!.say("!");
      model.spoken[0]!.end();
      const rest = textOf(await follow(run, `${at}`));
      expect(whole.slice(0, at) + rest).toBe(`${whole}!`);
    },
  );

  test("of two answers may be cut off after any event", async () => {
    const { runs, model, id } = scene("story");
    const { run, answers } = await runs.ask(id, model, { content: "x", count: 2 });
    await settle();
    for (const [at, spoken] of model.spoken.entries()) {
      spoken.say(`first ${at}`);
      spoken.say(" second");
      spoken.end();
    }
    await run.done;
    const all = await follow(run, "3.5");
    expect(all.length).toBeGreaterThan(4);
    for (let cut = 1; cut <= all.length; cut++) {
      const events = [...all.slice(0, cut), ...(await follow(run, all[cut - 1]!.id))];
      const texts = answers.map(({ id: message }) =>
        events
          .map(({ name, data }) => (name === "delta" && data.message === message ? data.text : ""))
          .join(""),
      );
      expect(texts, `cut after ${cut}`).toEqual(["st 0 second", " 1 second"]);
    }
  });

  test("with an id of another run, or nonsense, begins with a snapshot", async () => {
    const { runs, model, id } = scene();
    const { run } = await runs.ask(id, model, { content: "Hi" });
    await settle();
    model.spoken[0]!.say("hello");
    model.spoken[0]!.end();
    await run.done;
    for (const wrong of ["6", "1.2", "-1", "x", "", "1e0", undefined]) {
      const events = await follow(run, wrong);
      expect(events[0]).toMatchObject({
        name: "snapshot",
        data: { messages: [{ content: "hello" }] },
      });
      expect(textOf(events)).toBe("hello");
    }
  });

  test("leaves, and the run goes on", async () => {
    const { store, runs, model, id } = scene();
    const { run, answers } = await runs.ask(id, model, { content: "Hi" });
    await follow(run, undefined, 1);
    const leave = new AbortController();
    const waiting = run.events(undefined, leave.signal);
    await waiting.next();
    const next = waiting.next();
    leave.abort();
    expect(await next).toMatchObject({ done: true });
    await settle();
    model.spoken[0]!.say("still here");
    model.spoken[0]!.end();
    await run.done;
    expect(store.message(id, answers[0]!.id)).toMatchObject({ content: "still here" });
    expect(textOf(await follow(runs.run(run.id)))).toBe("still here");
  });

  test("long after the end is told that the run is gone", async () => {
    const { runs, model, id, clock } = scene();
    const { run } = await runs.ask(id, model, { content: "Hi" });
    run.cancel();
    await run.done;
    expect(runs.run(run.id)).toBe(run);
    clock.ms += 600_000;
    expect(() => runs.run(run.id)).toThrow(/there is no run/);
  });
});

describe("branches", () => {
  async function answered(scene: Scene, request: Parameters<Runs["ask"]>[2], text: string) {
    const started = await scene.runs.ask(scene.id, scene.model, request);
    await settle();
    scene.model.spoken.at(-1)!.say(text);
    scene.model.spoken.at(-1)!.end();
    await started.run.done;
    return started;
  }

  test("an edit, another answer, and a way back share what is above them", async () => {
    const all = scene();
    const { store, model, runs, id } = all;
    store.changeSession(id, { settings: { systemPrompt: "S" } });
    const first = await answered(all, { content: "q1" }, "a1");
    const second = await answered(all, { content: "q2" }, "a2");
    expect(model.prompts.at(-1)).toBe("<system>S<user>q1<assistant>a1<user>q2");
    const again = await answered(all, { regenerate: true }, "a2 again");
    expect(model.prompts.at(-1)).toBe("<system>S<user>q1<assistant>a1<user>q2");
    expect(again.answers[0]!.parent).toBe(second.user!.id);
    const edited = await answered(
      all,
      { parent: second.user!.parent, content: "q2 better" },
      "a2 better",
    );
    expect(edited.user!.parent).toBe(first.answers[0]!.id);
    expect(model.prompts.at(-1)).toBe("<system>S<user>q1<assistant>a1<user>q2 better");
    store.changeSession(id, { leaf: first.answers[0]!.id });
    await answered(all, { content: "q3" }, "a3");
    expect(model.prompts.at(-1)).toBe("<system>S<user>q1<assistant>a1<user>q3");
    const root = await answered(all, { parent: null, content: "start over" }, "ok");
    expect(root.user!.parent).toBeNull();
    expect(store.messages(id)).toHaveLength(11);
    expect(runs.running(id)).toBeUndefined();
  });

  test("what makes no sense is refused", async () => {
    const all = scene();
    const { runs, model, id } = all;
    await expect(runs.ask(id, model, { regenerate: true })).rejects.toThrow(
      /there is no question to answer again/,
    );
    await expect(runs.ask(id, model, {})).rejects.toThrow(/content: missing/);
    const { user } = await answered(all, { content: "q1" }, "a1");
    const twice = runs.ask(id, model, { parent: user!.id, content: "q2" });
    await expect(twice).rejects.toThrow(/the two take turns/);
    const both = runs.ask(id, model, { regenerate: true, content: "q" });
    await expect(both).rejects.toThrow(/Leave one of them out/);
    await expect(runs.ask(id, model, { parent: "msg_x", content: "q" })).rejects.toThrow(
      /no message/,
    );
    const byHand = runs.ask(id, model, { role: "assistant", content: "q" });
    await expect(byHand).rejects.toThrow(/role/);
    expect(() => runs.keep(id, { parent: null, role: "assistant", content: "x" })).toThrow(
      /begins with the user/,
    );
  });

  test("an answer can be written by hand", async () => {
    const all = scene();
    const { user } = await answered(all, { content: "q1" }, "wrong");
    const kept = all.runs.keep(all.id, { parent: user!.id, role: "assistant", content: "right" });
    expect(kept).toMatchObject({ parent: user!.id, state: "complete", model: null });
    await answered(all, { content: "q2" }, "a2");
    expect(all.model.prompts.at(-1)).toBe("<user>q1<assistant>right<user>q2");
  });

  test("an answer with a schema has a limit, for a weak model may never end it", async () => {
    const { runs, model, id } = scene("chat");
    const limits: (number | undefined)[] = [];
    for (const more of [{}, { schema: { type: "object" } }, { schema: true, maxTokens: 9 }]) {
      await runs.ask(id, model, { content: "q", settings: more });
      await settle();
      const spoken = model.spoken.at(-1)!;
      limits.push(spoken.options.maxTokens);
      spoken.say("{}");
      spoken.end();
      await settle();
    }
    expect(limits).toEqual([undefined, 2048, 9]);
  });

  test("a story is its pieces, and has alternatives side by side with seeds of their own", async () => {
    const all = scene("story");
    const { store, runs, model, id } = all;
    runs.keep(id, { content: "Once upon" });
    const started = await runs.ask(id, model, { count: 3, settings: { seed: 7, maxTokens: 5 } });
    await settle();
    expect(model.prompts.at(-1)).toBe("Once upon");
    expect(model.spoken.map(({ options }) => options.seed)).toEqual([7, 8, 9]);
    expect(model.spoken[0]!.options).not.toHaveProperty("systemPrompt");
    const following = follow(started.run);
    for (const [at, spoken] of model.spoken.entries()) {
      spoken.say(` a time ${at}`);
      await settle();
      spoken.end();
    }
    const events = await following;
    expect(events.at(-1)!.id).toBe("9.9.9");
    expect(events.filter(({ name }) => name === "end")).toHaveLength(3);
    expect(started.answers.map(({ id: message }) => store.message(id, message).content)).toEqual([
      " a time 0",
      " a time 1",
      " a time 2",
    ]);
    expect(new Set(started.answers.map(({ parent }) => parent)).size).toBe(1);
    store.changeSession(id, { leaf: started.answers[1]!.id });
    const next = await runs.ask(id, model, { content: ", said" });
    await settle();
    expect(model.prompts.at(-1)).toBe("Once upon a time 1, said");
    next.run.cancel();
    await next.run.done;
    const again = await runs.ask(id, model, { regenerate: true });
    expect(again.answers[0]!.parent).toBe(next.user!.id);
    again.run.cancel();
    await again.run.done;
  });
});

describe("a disk that is full", () => {
  test("does not end the answer: there is a warning, and it is saved when there is room", async () => {
    const { store, database, runs, model, id, clock } = scene();
    const { run, answers } = await runs.ask(id, model, { content: "Hi" });
    await settle();
    const { page_count } = database.get("PRAGMA page_count")!;
    database.get(`PRAGMA max_page_count = ${page_count}`);
    const long = "x".repeat(50_000);
    clock.ms += 60_000;
    model.spoken[0]!.say(long);
    await settle();
    expect(run.warning).toMatch(/the answer is not saved: .*the disk is full/);
    model.spoken[0]!.say(" and on");
    model.spoken[0]!.end();
    const events = await follow(run);
    expect(textOf(events)).toBe(`${long} and on`);
    expect(events.map(({ name }) => name)).toContain("warning");
    expect(store.message(id, answers[0]!.id)).toMatchObject({ content: "", state: "streaming" });
    database.get("PRAGMA max_page_count = 1000000");
    await runs.close();
    expect(run.warning).toBeNull();
    expect(store.message(id, answers[0]!.id)).toMatchObject({
      content: `${long} and on`,
      state: "complete",
    });
  });

  test("refuses a new question, since it could not be kept", async () => {
    const { store, database, runs, model, id } = scene();
    const { page_count } = database.get("PRAGMA page_count")!;
    database.get(`PRAGMA max_page_count = ${page_count}`);
    model.contextSize = 1e6;
    const asked = runs.ask(id, model, { content: "y".repeat(50_000) });
    await expect(asked).rejects.toMatchObject({ problem: "full" });
    expect(store.messages(id)).toEqual([]);
    expect(model.spoken).toEqual([]);
  });
});
