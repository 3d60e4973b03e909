// A generation that gives its turn back in between: its text, tokens and numbers are those of one that runs in one turn; what nobody
// reads waits in memory up to a limit, and meanwhile it has no turn.
// Held against: a generation in one turn.

import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { generateInTurns, type InTurns } from "../../apps/server/turns.ts";
import { type GenerateOptions, type Model, open, type TokenEvent } from "../../src/index.ts";
import { tinyModel } from "../support/tiny-engine.ts";
import { tinyFile, tinyFileVocab } from "../support/tiny-file.ts";
import { scriptedModel } from "../web/scripted-model.ts";
import { until } from "./test-server.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
let prompt: number[];
beforeAll(async () => {
  file = await tinyFile({ model: tinyModel({ vocab: tinyFileVocab }) });
  model = await open(file.path, { threads: 1, tuned: false });
  prompt = await model.tokenize("the cat sat");
});
afterAll(async () => {
  await model?.dispose();
  file?.remove();
});

/** Turns that are asked back after so many events each; the last is not. */
function inTurns(options: GenerateOptions, cuts: readonly number[], more: Partial<InTurns> = {}) {
  let turns = 0;
  let events = 0;
  let isRunning = true;
  let ask = new AbortController();
  const place = () => {
    turns++;
    events = 0;
    isRunning = true;
    ask = new AbortController();
    if (cuts[turns - 1] === 0) ask.abort();
    return {
      preempted: ask.signal,
      leave: () => {
        isRunning = false;
      },
    };
  };
  const gone = new AbortController();
  const generation = generateInTurns({
    ...{ model, tokens: prompt, options, signal: gone.signal, first: place() },
    again: async () => place(),
    onEvent: () => {
      if (++events === cuts[turns - 1]) ask.abort();
    },
    ...more,
  });
  return { generation, gone, turns: () => turns, isRunning: () => isRunning };
}

async function eventsOf(tokens: AsyncIterable<TokenEvent>): Promise<TokenEvent[]> {
  const events: TokenEvent[] = [];
  for await (const event of tokens) if (!event.progress) events.push(event);
  return events;
}

const plain: GenerateOptions = { maxTokens: 24, ignoreEos: true, temperature: 0.9, seed: 7 };

test.each<[string, GenerateOptions]>([
  ["drawn tokens", plain],
  ["penalties", { ...plain, repeatPenalty: 1.3, repeatLastN: 8 }],
  ["mirostat", { ...plain, mirostat: 2 }],
  ["log-probabilities", { ...plain, logprobs: 3 }],
  ["a regular expression", { ...plain, regex: "[a-z ]{30,60}" }],
  ["a stop string that does not come", { ...plain, stop: ["never in this text"] }],
  ["prompt progress", { ...plain, progress: true }],
])("the same with %s", async (_, options) => {
  const alone = model.generate(prompt, options);
  const expected = await eventsOf(alone.tokens());
  const result = await alone.result;
  const { generation, turns } = inTurns(options, [0, 3, 0, 1, 5]);
  const events = await eventsOf(generation.tokens());
  expect(turns()).toBeGreaterThan(1); // the engine may be ahead of who asks its turn back
  expect(events).toEqual(expected);
  const { timings, ...whole } = await generation.result;
  const { timings: own, ...rest } = result;
  expect(whole).toEqual(rest);
  expect(timings).toMatchObject({
    promptTokens: own.promptTokens,
    generatedTokens: own.generatedTokens,
  });
});

/** A model that says no more than this in its first turn before that is over. */
function heldModel(turns: () => number): Model {
  const answer = () => "on and on ".repeat(40);
  const before = (said: string) =>
    said.length > 200 && turns() === 1 ? new Promise<void>(() => {}) : undefined;
  return scriptedModel({ answer, before, msPerPiece: 0 });
}

test("what nobody reads waits up to a limit, and then has no turn until somebody reads", async () => {
  const held = heldModel(() => some.turns());
  const some = inTurns({}, [], { model: held, mostUnread: 500 });
  await until("it has given its turn back", () => !some.isRunning());
  expect(some.turns()).toBe(1);
  const events = await eventsOf(some.generation.tokens());
  expect(events).toHaveLength(100);
  expect(some.turns()).toBeGreaterThan(1);
  const { text, stopReason } = await some.generation.result;
  expect(text).toBe(events.map((event) => event.text).join(""));
  expect(stopReason).toBe("end");
});

test("nothing is made for an event that nobody waits for", async () => {
  const said = inTurns({}, [], {
    model: scriptedModel({ answer: () => "on and on ".repeat(40), msPerPiece: 0 }),
  });
  const made = vi.spyOn(Promise, "withResolvers");
  onTestFinished(() => made.mockRestore());
  await said.generation.result;
  expect(await eventsOf(said.generation.tokens())).toHaveLength(100);
  expect(made.mock.calls.length).toBeLessThan(10);
});

test("who leaves while it has no turn has an aborted generation", async () => {
  const held = heldModel(() => some.turns());
  const some = inTurns({}, [], { model: held, mostUnread: 500 });
  await until("it has given its turn back", () => !some.isRunning());
  some.gone.abort();
  const { stopReason, tokenIds } = await some.generation.result;
  expect(stopReason).toBe("aborted");
  expect(tokenIds.length).toBeGreaterThan(0);
  expect(some.turns()).toBe(1);
});

test("what cannot be started gives its turn back", () => {
  let isRunning = true;
  const first = {
    preempted: new AbortController().signal,
    leave: () => {
      isRunning = false;
    },
  };
  const failing = new Proxy(model, {
    get: (target, name) =>
      name === "generate"
        ? () => {
            throw new Error("not this one");
          }
        : Reflect.get(target, name),
  });
  onTestFinished(() => expect(isRunning).toBe(false));
  expect(() => inTurns(plain, [], { model: failing, first })).toThrow("not this one");
});
