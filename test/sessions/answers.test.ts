// Answers of more than text: reasoning and tool calls that stand apart, are streamed, resumed, saved and continued, the
// results of calls, and what the template gets of all that. Conversations of older versions still open.
// Held against: messages written here.

import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import type { Run, RunEvent } from "../../apps/sessions/run.ts";
import { Runs } from "../../apps/sessions/runs.ts";
import { migrations } from "../../apps/sessions/schema.ts";
import { SessionStore } from "../../apps/sessions/store.ts";
import { AnswerReader } from "../../src/index.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { marked } from "../chat/json-format.ts";
import { FakeModel, scratchFile, scratchStore, settle } from "./fakes.ts";

const tools = [{ name: "weather" }, { name: "clock" }];
const weather = '<call>{"name": "weather", "arguments": {"city": "Ulm"}}</call>';
const clock = '<call>{"name": "clock", "arguments": {}}</call>';
const answerText = `<think>Hm, the sky.</think>I ask.${weather}${clock}`;

function scene() {
  const opened = scratchStore();
  const clockMs = { ms: 1000 };
  const runs = new Runs(opened.store, { now: () => clockMs.ms, saveEveryMs: 60_000 });
  const { id } = opened.store.createSession({ title: "t", settings: { tools } });
  const model = new FakeModel();
  model.reader = () => new AnswerReader({ format: marked, tools });
  /** Says a text in small pieces. */
  const say = async (text: string): Promise<void> => {
    for (const piece of text.match(/.{1,5}/gsu) ?? []) {
      clockMs.ms += 10;
      model.spoken.at(-1)!.say(piece);
      await settle();
    }
  };
  const answer = async (text: string, asked: { content?: string } = { content: "Weather?" }) => {
    const { run, answers } = await runs.ask(id, model, asked);
    await settle();
    await say(text);
    model.spoken.at(-1)!.end();
    await run.done;
    return opened.store.message(id, answers[0]!.id);
  };
  return { ...opened, runs, id, model, say, answer };
}

async function follow(run: Run, from?: string): Promise<(RunEvent & { id: string })[]> {
  const seen: (RunEvent & { id: string })[] = [];
  for await (const event of run.events(from, new AbortController().signal)) seen.push(event);
  return seen;
}

/** What a client has after some events. */
function gathered(events: readonly RunEvent[]) {
  let [content, reasoning] = ["", ""];
  const calls: { name: string; arguments: string }[] = [];
  for (const { name, data } of events) {
    if (name === "snapshot") {
      const [first] = data.messages;
      content = first!.content;
      reasoning = first!.reasoning ?? "";
      calls.push(...first!.calls.map((call) => ({ ...call })));
    } else if (name === "delta") content += data.text;
    else if (name === "reasoning") reasoning += data.text;
    else if (name === "call") calls.push({ name: data.name, arguments: "" });
    else if (name === "arguments") calls[data.index]!.arguments += data.text;
  }
  return { content, reasoning, calls: calls.map((call) => [call.name, call.arguments]) };
}

const whole = {
  content: "I ask.",
  reasoning: "Hm, the sky.",
  calls: [
    ["weather", '{"city": "Ulm"}'],
    ["clock", "{}"],
  ],
};

describe("reasoning and calls", () => {
  test("stand apart from the text, on disk and in the numbers", async () => {
    const { answer, model } = scene();
    const message = await answer(answerText);
    expect(message).toMatchObject({
      content: "I ask.",
      reasoning: "Hm, the sky.",
      state: "complete",
      calls: [
        { name: "weather", arguments: '{"city": "Ulm"}', state: "waiting", result: null },
        { name: "clock", arguments: "{}", state: "waiting" },
      ],
    });
    expect(new Set(message.calls.map(({ id }) => id)).size).toBe(2);
    expect(message.tokens!.reasoning).toBeGreaterThan(1);
    expect(message.tokens!.reasoning).toBeLessThan(message.tokens!.generated);
    expect(message.timings!.reasoningMs).toBeGreaterThan(10);
    expect(model.spoken[0]!.options).not.toHaveProperty("tools");
  });

  test("are resumed after any event, without a letter twice", async () => {
    const { runs, model, id, say } = scene();
    const { run } = await runs.ask(id, model, { content: "Weather?" });
    const seen = follow(run);
    await settle();
    await say(answerText);
    model.spoken[0]!.end();
    await run.done;
    const events = await seen;
    expect(gathered(events)).toEqual(whole);
    for (const [at, { id: last }] of events.entries()) {
      const rest = (await follow(run, last)).filter(({ name }) => name !== "snapshot");
      expect(gathered([...events.slice(0, at + 1), ...rest]), `after event ${at}`).toEqual(whole);
    }
    expect(gathered((await follow(run)).slice(0, 1))).toEqual(whole);
  });

  test("of an answer that was stopped are continued where it ended", async () => {
    const { store, runs, model, id, say } = scene();
    const { run, answers } = await runs.ask(id, model, { content: "Weather?" });
    await settle();
    await say("<think>Hm, the");
    run.cancel();
    await run.done;
    const [answer] = answers;
    expect(store.message(id, answer!.id)).toMatchObject({ content: "", reasoning: "Hm, the" });
    const again = await runs.ask(id, model, { message: answer!.id });
    expect(model.asked.at(-1)!.at(-1)).toEqual({ role: "assistant", content: "<think>Hm, the" });
    await settle();
    await say(answerText.slice("<think>Hm, the".length));
    model.spoken.at(-1)!.end();
    await again.run.done;
    expect(gathered(await follow(again.run))).toEqual(whole);
    expect(store.message(id, answer!.id)).toMatchObject({ content: "I ask.", state: "complete" });
  });
});

describe("an answer that is continued", () => {
  test("has the token counts of all of it, also where nothing is added; a complete one is refused", async () => {
    const { store, runs, model, id, say } = scene();
    const counts = (): unknown => store.message(id, message).tokens;
    const { run, answers } = await runs.ask(id, model, { content: "Weather?" });
    const message = answers[0]!.id;
    await settle();
    await say("<think>Hm</think>I");
    run.cancel();
    await run.done;
    const first = counts() as { generated: number; reasoning: number };
    expect(first.generated).toBeGreaterThan(0);
    const { timings } = store.message(id, message);
    const none = await runs.ask(id, model, { message });
    await settle();
    none.run.cancel();
    await none.run.done;
    expect(store.message(id, message)).toMatchObject({ tokens: first, timings });
    const again = await runs.ask(id, model, { message });
    await settle();
    await say(" ask.");
    model.spoken.at(-1)!.end();
    await again.run.done;
    const whole = counts() as { generated: number };
    expect(whole.generated).toBeGreaterThan(first.generated);
    await expect(runs.ask(id, model, { message })).rejects.toMatchObject({
      message: expect.stringMatching(/is complete: the model has ended it/),
    });
    expect(counts()).toEqual(whole);
  });
});

describe("the result of a call", () => {
  const done = (result: string) => ({ state: "done", result, by: "hand" }) as const;

  test("is given once, and goes to the template with the call and the reasoning", async () => {
    const { store, id, runs, model, answer } = scene();
    const first = await answer(answerText);
    const [one, two] = first.calls;
    const noAnswer = { message: expect.stringMatching(/weather .* wait for a result/) };
    await expect(runs.ask(id, model, { content: "And?" })).rejects.toMatchObject(noAnswer);
    await expect(runs.ask(id, model, {})).rejects.toMatchObject(noAnswer);
    store.endCall(id, first.id, one!.id, done("sunny"));
    expect(() => store.endCall(id, first.id, one!.id, done("rain"))).toThrow(/has its result/);
    expect(() => store.endCall(id, first.id, "call_x", done("rain"))).toThrow(/no call "call_x"/);
    const refused = { state: "refused", result: null, by: "hand" } as const;
    expect(store.endCall(id, first.id, two!.id, refused).calls).toMatchObject([
      { state: "done", result: "sunny" },
      { state: "refused", result: null },
    ]);
    const second = await answer("Sunny.", {});
    expect(second).toMatchObject({ parent: first.id, role: "assistant", content: "Sunny." });
    const call = (id: string, name: string, values: object) => ({
      id,
      type: "function",
      function: { name, arguments: values },
    });
    const expected = [
      { role: "user", content: "Weather?" },
      {
        role: "assistant",
        content: "I ask.",
        reasoning_content: "Hm, the sky.",
        tool_calls: [call(one!.id, "weather", { city: "Ulm" }), call(two!.id, "clock", {})],
      },
      { role: "tool", content: "sunny", tool_call_id: one!.id, name: "weather" },
      {
        role: "tool",
        content: "The user refused this call.",
        tool_call_id: two!.id,
        name: "clock",
      },
    ];
    expect(model.asked.at(-1)).toEqual(expected);
    // Answering again makes another answer to the same results, and answering the call again another call.
    const again = await runs.ask(id, model, { regenerate: true });
    expect(again.answers[0]).toMatchObject({ parent: first.id });
    expect(model.asked.at(-1)).toEqual(expected);
    again.run.cancel();
    await again.run.done;
    const other = await runs.ask(id, model, { regenerate: true, parent: first.id });
    expect(other.answers[0]).toMatchObject({ parent: first.parent });
    expect(model.asked.at(-1)).toEqual(expected.slice(0, 1));
    other.run.cancel();
    await other.run.done;
  });

  test("of an answer that was cut off cannot be given, and the call is left out of the prompt", async () => {
    const { store, id, runs, model, say } = scene();
    const { run, answers } = await runs.ask(id, model, { content: "Weather?" });
    await settle();
    await say(answerText.slice(0, -25));
    run.cancel();
    await run.done;
    const message = store.message(id, answers[0]!.id);
    expect(() => store.endCall(id, message.id, message.calls[0]!.id, done("x"))).toThrow(/cut off/);
    const next = await runs.ask(id, model, { content: "Never mind" });
    expect(model.asked.at(-1)![1]).toEqual({
      role: "assistant",
      content: "I ask.",
      reasoning_content: "Hm, the sky.",
    });
    next.run.cancel();
    await next.run.done;
  });
});

test("a conversation of an older version opens, with its reasoning in the text", () => {
  const file = scratchFile();
  const old = new DatabaseSync(file);
  for (const step of migrations.slice(0, 6)) old.exec(step);
  old.exec(`PRAGMA user_version = 6;
    INSERT INTO sessions (id, title, mode, settings, created_at, changed_at) VALUES ('ses_1', 't', 'chat', '{}', 1, 1);
    INSERT INTO messages (id, session, role, content, state, created_at, changed_at)
      VALUES ('msg_1', 1, 'assistant', '<think>a</think>b', 'complete', 1, 1);`);
  old.close();
  const store = new SessionStore(openNodeDatabase(file));
  expect(store.messages("ses_1")).toMatchObject([
    { id: "msg_1", content: "<think>a</think>b", reasoning: null, calls: [] },
  ]);
  expect(store.setAside()).toEqual([]);
  store.close();
});
