// Conversations over HTTP, with a real model: their life from the first message to the last, answers that are followed,
// lost and found again, and what is refused.

import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import type { Message, Session } from "../../apps/sessions/session.ts";
import { type Model, open } from "../../src/index.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { scratchFile } from "../sessions/fakes.ts";
import { follow, request, type SseEvent } from "./lantern-client.ts";
import { modelId, serveModel } from "./test-server.ts";

interface Answered {
  user: Message | null;
  answers: Message[];
  run: { id: string; messages: string[]; state: string };
}

let model: Model;
/** In plain TypeScript: what must not end before it is stopped takes its time. */
let slow: Model;
const log: string[] = [];
beforeAll(async () => {
  model = await open(modelId, { threads: 1, contextSize: 256 });
  slow = await open(modelId, { level: 1, contextSize: 256 });
});
afterAll(async () => {
  await model.dispose();
  await slow.dispose();
  expect(log).toEqual([]);
});

const serveFile = (file: string, served: Model = model): Promise<RunningServer> =>
  serveModel(served, log, { sessions: () => openNodeDatabase(file), graceMs: 0 });

/** A server on an empty file, for one test. */
async function withServer(
  work: (base: string) => Promise<void>,
  served: Model = model,
): Promise<void> {
  const server = await serveFile(scratchFile(), served);
  try {
    await work(`${server.url}/lantern/v1`);
  } finally {
    await server.stop();
  }
}

const short = { temperature: 0, maxTokens: 12 };

async function newSession(base: string, fields: object = {}): Promise<Session> {
  const body = { settings: short, ...fields };
  return await request<Session>(`${base}/sessions`, "POST", body, 201);
}

async function ask(base: string, id: string, fields: object): Promise<Answered> {
  return await request<Answered>(`${base}/sessions/${id}/messages`, "POST", fields, 201);
}

const textOf = (events: readonly SseEvent[], message: string): string =>
  events
    .map(({ name, data }) => {
      if (name === "delta" && data.message === message) return data.text as string;
      if (name !== "snapshot") return "";
      const all = data.messages as { id: string; content: string }[];
      return all.find(({ id }) => id === message)!.content;
    })
    .join("");

/** Asks, and waits for the answer. */
async function answered(base: string, id: string, fields: object): Promise<Answered> {
  const started = await ask(base, id, fields);
  await follow(`${base}/runs/${started.run.id}/events`);
  return started;
}

const tree = async (base: string, id: string) =>
  await request<{ session: Session; messages: Message[] }>(`${base}/sessions/${id}/messages`);

test("a damaged entry is set aside: the list is served and says so, the log names it", async () => {
  const file = scratchFile();
  const before = await serveFile(file);
  const { id } = await newSession(`${before.url}/lantern/v1`, { title: "spoilt" });
  await before.stop();
  const database = openNodeDatabase(file);
  database.run("UPDATE sessions SET settings = '{'");
  database.close();
  const server = await serveFile(file);
  const base = `${server.url}/lantern/v1`;
  try {
    expect(await request(`${base}/sessions`)).toMatchObject({ sessions: [{ id }], setAside: 1 });
    expect(await request(`${base}/set-aside`)).toMatchObject({
      items: [{ session: id, what: 'session "spoilt"', why: "its settings cannot be read" }],
    });
    await request(`${base}/set-aside`, "DELETE");
    expect(await request(`${base}/sessions`)).toMatchObject({ setAside: 0 });
  } finally {
    await server.stop();
  }
  expect(log.splice(0)).toEqual([
    'conversations: session "spoilt" was damaged and is set aside: its settings cannot be read',
  ]);
});

test("answers hold to the JSON schema of their conversation, and a wrong one is refused", async () => {
  await withServer(async (base) => {
    const schema = {
      type: "object",
      properties: { name: { enum: ["Tim", "Lily"] }, age: { type: "integer", maximum: 9 } },
      required: ["name", "age"],
      additionalProperties: false,
    };
    const { id } = await newSession(base, { settings: { maxTokens: 60, schema } });
    const { answers } = await answered(base, id, { content: "Once" });
    const { messages } = await tree(base, id);
    const answer = messages.find((message) => message.id === answers[0]!.id)!;
    expect(JSON.parse(answer.content)).toEqual({
      name: expect.stringMatching(/^(Tim|Lily)$/),
      age: expect.any(Number),
    });
    // A complete one is not continued, and one that was cut off cannot be held to its schema.
    const complete = { message: answer.id };
    const told = await request(`${base}/sessions/${id}/continue`, "POST", complete, 400);
    expect(told).toMatchObject({ error: { message: expect.stringContaining("is complete") } });
    await request(`${base}/sessions/${id}`, "PATCH", { settings: { maxTokens: 2 } });
    const cut = await answered(base, id, { content: "Once" });
    const continued = { message: cut.answers[0]!.id };
    const refused = await request(`${base}/sessions/${id}/continue`, "POST", continued, 400);
    expect(refused).toMatchObject({ error: { message: expect.stringContaining("JSON schema") } });
    await request(`${base}/sessions/${id}`, "PATCH", { settings: { schema: { type: "strong" } } });
    const wrong = await request(`${base}/sessions/${id}/messages`, "POST", { content: "?" }, 400);
    expect(wrong).toMatchObject({ error: { param: "settings.schema" } });
  });
});

describe("a conversation", () => {
  test("is asked, answered, edited, answered again, gone back in, and kept over a restart", async () => {
    const file = scratchFile();
    const server = await serveFile(file);
    const base = `${server.url}/lantern/v1`;
    const { id } = await newSession(base);
    const first = await answered(base, id, { content: "Once upon a time" });
    const events = await follow(`${base}/runs/${first.run.id}/events`);
    const [answer] = first.answers;
    const second = await answered(base, id, { content: "Then what?" });
    const again = await answered(base, id, { regenerate: true, settings: { seed: 3 } });
    const edited = await answered(base, id, {
      parent: second.user!.parent,
      content: "And then?",
    });
    const { session, messages } = await tree(base, id);
    expect(messages.map(({ id, parent, role }) => [id, parent, role])).toEqual([
      [first.user!.id, null, "user"],
      [answer!.id, first.user!.id, "assistant"],
      [second.user!.id, answer!.id, "user"],
      [second.answers[0]!.id, second.user!.id, "assistant"],
      [again.answers[0]!.id, second.user!.id, "assistant"],
      [edited.user!.id, answer!.id, "user"],
      [edited.answers[0]!.id, edited.user!.id, "assistant"],
    ]);
    expect(messages[1]).toMatchObject({
      state: "complete",
      model: modelId,
      stopReason: "length",
      tokens: { generated: 12 },
    });
    expect(messages[1]!.content).toBe(textOf(events, answer!.id));
    expect(messages[1]!.content.length).toBeGreaterThan(20);
    expect(session).toMatchObject({ title: "Once upon a time", leaf: edited.answers[0]!.id });
    const address = `${base}/sessions/${id}`;
    const back = await request<Session>(address, "PATCH", { leaf: answer!.id });
    expect(back.leaf).toBe(answer!.id);
    const other = await request<Session>(address, "PATCH", { branch: second.user!.id });
    expect(other.leaf).toBe(again.answers[0]!.id);
    await request(address, "PATCH", { title: "Renamed", settings: { topK: 5, maxTokens: null } });
    await server.stop();

    const restarted = await serveFile(file);
    const after = await tree(`${restarted.url}/lantern/v1`, id);
    expect(after.messages).toEqual(messages);
    expect(after.session).toMatchObject({
      title: "Renamed",
      settings: { temperature: 0, topK: 5 },
      leaf: again.answers[0]!.id,
    });
    await restarted.stop();
  });

  test("is the same text as the model's own", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base, { mode: "story" });
      const url = `${base}/sessions/${id}/continue`;
      const { run, answers } = await request<Answered>(url, "POST", { content: "The sun" }, 201);
      await follow(`${base}/runs/${run.id}/events`);
      const { text } = await model.generate("The sun", short).result;
      const { messages } = await tree(base, id);
      expect(messages.at(-1)).toMatchObject({ id: answers[0]!.id, content: text });
    });
  });

  test("that goes on from an earlier turn finds its past in the cache", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base);
      const cachedBy = async (fields: object): Promise<number> => {
        const { answers } = await answered(base, id, fields);
        const { messages } = await tree(base, id);
        return messages.find((message) => message.id === answers[0]!.id)!.tokens!.cached!;
      };
      const past = "A quiet fox lived near the old stone bridge. ".repeat(6); // more than a block of the cache
      await cachedBy({ content: past });
      const { session } = await tree(base, id);
      const first = session.leaf;
      expect(await cachedBy({ content: "Then what?" })).toBeGreaterThanOrEqual(32);
      await request(`${base}/sessions/${id}`, "PATCH", { leaf: first });
      expect(await cachedBy({ content: "And its friends?" })).toBeGreaterThanOrEqual(32);
      expect(await cachedBy({ regenerate: true })).toBeGreaterThanOrEqual(32);
    });
  });

  test("goes on after a restart of server and model: its past is computed again, once", async () => {
    const file = scratchFile();
    const past = "A quiet fox lived near the old stone bridge. ".repeat(6); // more than a block of the cache
    const before = await serveFile(file);
    const { id } = await newSession(`${before.url}/lantern/v1`);
    await answered(`${before.url}/lantern/v1`, id, { content: past });
    const { session } = await tree(`${before.url}/lantern/v1`, id);
    const unbroken = await answered(`${before.url}/lantern/v1`, id, { content: "Then what?" });
    const expected = await tree(`${before.url}/lantern/v1`, id);
    await before.stop();

    const fresh = await open(modelId, { threads: 1, contextSize: 256 });
    const server = await serveFile(file, fresh);
    try {
      const base = `${server.url}/lantern/v1`;
      const answerTo = async (fields: object): Promise<Message> => {
        const { answers } = await answered(base, id, fields);
        const { messages } = await tree(base, id);
        return messages.find((message) => message.id === answers[0]!.id)!;
      };
      await request(`${base}/sessions/${id}`, "PATCH", { leaf: session.leaf });
      const first = await answerTo({ content: "Then what?" });
      expect(first.tokens!.cached).toBe(0);
      const same = expected.messages.find((message) => message.id === unbroken.answers[0]!.id)!;
      expect(first.content).toBe(same.content);
      const again = await answerTo({ regenerate: true });
      expect(again.tokens!.cached).toBeGreaterThanOrEqual(32);
      expect(again.content).toBe(first.content);
    } finally {
      await server.stop();
      await fresh.dispose();
    }
  });

  test("is found, exported, imported as a copy, and deleted for good", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base);
      await answered(base, id, { content: "A walrus in winter" });
      const { hits } = await request<{ hits: { session: string }[] }>(`${base}/search?q=walrus`);
      expect(hits.map(({ session }) => session)).toEqual([id, id]); // its title, and its message
      const file = await request(`${base}/sessions/${id}/export`);
      const copy = await request<Session>(`${base}/import`, "POST", file, 201);
      expect(copy.id).not.toBe(id);
      expect((await tree(base, copy.id)).messages).toHaveLength(2);
      const markdown = await fetch(`${base}/sessions/${id}/export?format=markdown`);
      expect(markdown.headers.get("content-disposition")).toContain("attachment");
      expect(await markdown.text()).toMatch(/^# A walrus in winter\n\n\*\*User\*\*\n\nA walrus/);
      await request(`${base}/sessions/${id}`, "DELETE");
      await request(`${base}/sessions/${id}`, "GET", undefined, 404);
      const { sessions } = await request<{ sessions: Session[] }>(`${base}/sessions`);
      expect(sessions.map((session) => session.id)).toEqual([copy.id]);
    });
  });
});

test("a conversation of 12,000 messages is imported: more values than other requests may have", async () => {
  await withServer(async (base) => {
    const { id } = await newSession(base);
    await answered(base, id, { content: "A walrus in winter" });
    const file = await request<{ messages: Message[] }>(`${base}/sessions/${id}/export`);
    const [first, second] = file.messages as [Message, Message];
    const more = Array.from({ length: 12_000 }, (_, at) => ({ ...second, id: `msg_more${at}` }));
    const all = { ...file, messages: [first, second, ...more] };
    const copy = await request<Session>(`${base}/import`, "POST", all, 201);
    expect(copy.messageCount).toBe(12_002);
  });
});

describe("an answer", () => {
  const long = { settings: { temperature: 0, maxTokens: 60 } };

  test("goes on when its reader leaves, and is picked up where it was left", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base, long);
      const { run, answers } = await ask(base, id, { content: "Once" });
      const url = `${base}/runs/${run.id}/events`;
      const seen: SseEvent[] = await follow(url, { stopAfter: 5 });
      for (let tries = 0; seen.at(-1)!.name !== "done" && tries < 100; tries++) {
        seen.push(...(await follow(url, { lastEventId: seen.at(-1)!.id!, stopAfter: 4 })));
      }
      const { messages } = await tree(base, id);
      expect(messages[1]).toMatchObject({ state: "complete", id: answers[0]!.id });
      expect(textOf(seen, answers[0]!.id)).toBe(messages[1]!.content);
      expect(seen.filter(({ name }) => name === "snapshot")).toHaveLength(1);
    });
  });

  test("is stopped, and what was written stays", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base, { settings: { temperature: 0 } });
      const { run } = await ask(base, id, { content: "Once" });
      await follow(`${base}/runs/${run.id}/events`, { stopAfter: 4 });
      await request(`${base}/sessions/${id}/messages`, "POST", { content: "x" }, 409);
      const ended = await request<Answered["run"]>(`${base}/runs/${run.id}/cancel`, "POST", {});
      expect(ended.state).toBe("ended");
      const { session, messages } = await tree(base, id);
      expect(messages[1]).toMatchObject({ state: "aborted", stopReason: "aborted" });
      expect(messages[1]!.content).not.toBe("");
      expect(messages[1]!.tokens!.generated).toBeGreaterThan(0);
      expect(session).toMatchObject({ run: null });
    }, slow);
  });

  test("ends properly when the server does", async () => {
    const file = scratchFile();
    const server = await serveFile(file, slow);
    const base = `${server.url}/lantern/v1`;
    const { id } = await newSession(base, { settings: { temperature: 0 } });
    const { run } = await ask(base, id, { content: "Once" });
    const { promise: begun, resolve } = Promise.withResolvers<void>();
    const following = follow(`${base}/runs/${run.id}/events`, { onEvent: () => resolve() });
    await begun;
    await server.stop();
    const events = await following;
    expect(events.at(-2)).toMatchObject({ name: "end", data: { state: "aborted" } });
    expect(events.at(-1)!.name).toBe("done");
    const restarted = await serveFile(file);
    const after = await tree(`${restarted.url}/lantern/v1`, id);
    expect(after.messages[1]).toMatchObject({ state: "aborted" });
    expect(textOf(events, after.messages[1]!.id)).toBe(after.messages[1]!.content);
    await request(`${restarted.url}/lantern/v1/runs/${run.id}/events`, "GET", undefined, 404);
    await restarted.stop();
  });

  test("is deleted with its session in mid-sentence", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base, { settings: { temperature: 0 } });
      const { run } = await ask(base, id, { content: "Once" });
      await follow(`${base}/runs/${run.id}/events`, { stopAfter: 3 });
      await request(`${base}/sessions/${id}`, "DELETE");
      await request(`${base}/sessions/${id}/messages`, "GET", undefined, 404);
    }, slow);
  });

  test("has alternatives beside it, in a story", async () => {
    await withServer(async (base) => {
      const settings = { temperature: 1, seed: 11, maxTokens: 8 };
      const { id } = await newSession(base, { mode: "story", settings });
      const kept = { content: "One day, a cat", generate: false };
      const { message } = await request<{ message: Message }>(
        `${base}/sessions/${id}/messages`,
        "POST",
        kept,
        201,
      );
      const url = `${base}/sessions/${id}/continue`;
      const { run, answers } = await request<Answered>(url, "POST", { n: 3 }, 201);
      const events = await follow(`${base}/runs/${run.id}/events`);
      const texts = answers.map((answer) => textOf(events, answer.id));
      expect(new Set(texts).size).toBe(3);
      const { messages } = await tree(base, id);
      expect(messages.slice(1).map(({ content }) => content)).toEqual(texts);
      expect(messages.slice(1).every(({ parent }) => parent === message.id)).toBe(true);
    });
  });
});

describe("what goes on", () => {
  test("a story longer than the context, with a real model", async () => {
    await withServer(async (base) => {
      const settings = { temperature: 0, maxTokens: 100 };
      const { id } = await newSession(base, { mode: "story", settings });
      const goOn = async (content?: string): Promise<Message> => {
        const body = content === undefined ? {} : { content };
        const { answers, run } = await request<Answered>(
          `${base}/sessions/${id}/continue`,
          "POST",
          body,
          201,
        );
        await follow(`${base}/runs/${run.id}/events`);
        const { messages } = await request<{ messages: Message[] }>(
          `${base}/sessions/${id}/messages`,
        );
        return messages.find((message) => message.id === answers[0]!.id)!;
      };
      const first = await goOn("Once upon a time, there was a little lighthouse.");
      expect(first.tokens).not.toHaveProperty("dropped");
      const later = [
        await goOn(" The sea was"),
        await goOn(" One day, a boat"),
        await goOn(" Then"),
      ];
      for (const { state, content } of later) {
        expect(state).toBe("complete");
        expect(content.trim()).not.toBe("");
      }
      expect(later.at(-1)!.tokens!.dropped).toBeGreaterThan(0);
      expect(later.at(-1)!.tokens!.prompt).toBeLessThan(256);
    });
  });

  test("an answer that was cut short, in place", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base, { mode: "story" });
      const path = `${base}/sessions/${id}/continue`;
      const started = await request<Answered>(path, "POST", { content: "Once upon a time" }, 201);
      await follow(`${base}/runs/${started.run.id}/events`);
      const message = started.answers[0]!.id;
      const resumed = await request<Answered>(path, "POST", { message }, 201);
      expect(resumed).toMatchObject({ user: null, answers: [{ id: message, state: "streaming" }] });
      const events = await follow(`${base}/runs/${resumed.run.id}/events`);
      expect(events.at(-1)!.name).toBe("done");
      const { messages } = await request<{ messages: Message[] }>(
        `${base}/sessions/${id}/messages`,
      );
      expect(messages).toHaveLength(2);
      // Twice twelve tokens are the twenty-four that one answer would have had.
      const whole = await model.generate("Once upon a time", { temperature: 0, maxTokens: 24 })
        .result;
      expect(messages[1]!.content).toBe(whole.text);
      await request(path, "POST", { message: "nobody" }, 404);
      await request(path, "POST", { message, content: "x" }, 400);
      await request(path, "POST", { message: messages[0]!.id }, 400);
    });
  });

  test("presets, from one session to the next", async () => {
    await withServer(async (base) => {
      const settings = { temperature: 0.2, systemPrompt: "Be brief." };
      const path = `${base}/presets/${encodeURIComponent("Brief/1 ä")}`;
      expect(await request(path, "PUT", { settings })).toEqual({ name: "Brief/1 ä", settings });
      expect(await request(`${base}/presets`)).toEqual({
        presets: [{ name: "Brief/1 ä", settings }],
      });
      await request(path, "PUT", { settings: { temperature: "hot" } }, 400);
      await request(`${base}/presets/${"x".repeat(101)}`, "PUT", { settings }, 400);
      await request(path, "DELETE");
      await request(path, "DELETE", undefined, 404);
    });
  });
});

describe("a request that is refused", () => {
  interface Problem {
    error: { message: string; code: string; param: string | null };
  }

  test("says what is wrong, and changes nothing", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base);
      const messages = `${base}/sessions/${id}/messages`;
      const cases: [url: string, method: string, body: unknown, status: number, says: RegExp][] = [
        [`${base}/sessions`, "POST", { mood: "chat" }, 400, /unknown field "mood"/],
        [`${base}/sessions`, "POST", { mode: "poem" }, 400, /"mode"/],
        [
          `${base}/sessions`,
          "POST",
          { settings: { temperature: -1 } },
          400,
          /"settings.temperature"/,
        ],
        [`${base}/sessions`, "POST", { settings: { topk: 1 } }, 400, /"settings.topk"/],
        [`${base}/sessions`, "POST", "[1", 400, /not JSON/],
        [`${base}/sessions`, "POST", [], 400, /the body/],
        [`${base}/sessions?limit=0`, "GET", undefined, 400, /"limit"/],
        [`${base}/sessions?cursor=x`, "GET", undefined, 400, /cursor/],
        [`${base}/sessions/ses_x`, "GET", undefined, 404, /no session "ses_x"/],
        [`${base}/sessions/${id}`, "PATCH", { leaf: "msg_x" }, 404, /no message "msg_x"/],
        [`${base}/sessions/${id}`, "PATCH", { title: "x".repeat(501) }, 400, /"title"/],
        [messages, "POST", {}, 400, /content: missing/],
        [messages, "POST", { content: "" }, 400, /"content"/],
        [messages, "POST", { content: 5 }, 400, /"content"/],
        [messages, "POST", { content: "x", parent: "msg_x" }, 404, /no message/],
        [messages, "POST", { regenerate: true }, 400, /there is no question to answer again/],
        [`${base}/sessions/${id}/continue`, "POST", { n: 99 }, 400, /"n"/],
        [`${base}/search`, "GET", undefined, 400, /"q"/],
        [`${base}/sessions/${id}/export?format=pdf`, "GET", undefined, 400, /"format"/],
        [`${base}/import`, "POST", { format: "x" }, 400, /import: format/],
        [`${base}/runs/run_x`, "GET", undefined, 404, /no run "run_x"/],
        [`${base}/runs/run_x/cancel`, "POST", {}, 404, /no run/],
      ];
      for (const [url, method, body, status, says] of cases) {
        const { error } = await request<Problem>(url, method, body, status);
        expect(error.message, `${method} ${url} ${JSON.stringify(body)}`).toMatch(says);
      }
      expect((await tree(base, id)).messages).toEqual([]);
    });
  });

  test("because it does not fit has both numbers, and was not saved", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base);
      const content = "a little dog ran ".repeat(100);
      const url = `${base}/sessions/${id}/messages`;
      const { error } = await request<Problem>(url, "POST", { content }, 400);
      expect(error.code).toBe("context_length_exceeded");
      expect(error.message).toMatch(/has \d{3,} tokens.* holds 256/);
      expect((await tree(base, id)).messages).toEqual([]);
    });
  });

  test("because its model is not served says which are", async () => {
    await withServer(async (base) => {
      const { id } = await newSession(base, { model: "gpt-9" });
      const url = `${base}/sessions/${id}/messages`;
      const { error } = await request<Problem>(url, "POST", { content: "x" }, 404);
      expect(error).toMatchObject({ code: "model_not_found" });
      expect(error.message).toContain(modelId);
    });
  });

  test("because the file is damaged says so without its folder; the rest works", async () => {
    const file = scratchFile();
    writeFileSync(file, "no database ".repeat(500));
    const said: string[] = [];
    const server = await serveModel(model, said, { sessions: () => openNodeDatabase(file) });
    const url = `${server.url}/lantern/v1/sessions`;
    const { error } = await request<Problem>(url, "GET", undefined, 503);
    expect(error.code).toBe("storage_corrupt");
    expect(error.message).toContain('"sessions.db"');
    expect(error.message).not.toContain(file);
    expect(said.join()).toContain(file);
    await request(`${server.url}/v1/models`);
    await server.stop();
  });
});
