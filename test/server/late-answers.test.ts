// Answers that are long in coming, and streams whose client has lost its connection.
// Held against: undici with short time-outs, the texts of the same requests without waiting, and llama-server's routes for streams.

import type OpenAI from "openai";
import { Agent, fetch as undiciFetch } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { KeptStreams } from "../../apps/server/kept-streams.ts";
import type { Turn } from "../../apps/server/queue.ts";
import type { RunningServer, StartOptions } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { modelId, post, prompt, serveModel, until } from "./test-server.ts";

const maxTokens = 8;
const chat = {
  ...{ model: modelId, max_tokens: maxTokens, temperature: 0 },
  messages: [{ role: "user" as const, content: prompt }],
};
let model: Model;
let expected: string;
const log: string[] = [];
beforeAll(async () => {
  model = await open(modelId, { threads: 1, parallel: 2 });
  expected = (await model.generate(prompt, { temperature: 0, maxTokens }).result).text;
});
afterAll(async () => {
  await model.dispose();
  expect(log).toEqual([]);
});

async function served(
  work: (server: RunningServer) => Promise<void>,
  options: Partial<StartOptions> = {},
) {
  const server = await serveModel(model, log, {
    parallel: 1,
    heartbeatMs: 5,
    patienceMs: 10,
    ...options,
  });
  try {
    await work(server);
  } finally {
    await server.stop();
  }
}

/** A server whose only place is taken, until the work lets it go. */
const busy = (
  work: (server: RunningServer, turn: Turn) => Promise<void>,
  options: Partial<StartOptions> = {},
) =>
  served(async (server) => {
    const turn = await server.context.queue.enter("the test", new AbortController().signal);
    try {
      await work(server, turn);
    } finally {
      turn.release();
    }
  }, options);

/** The text of an answer, whose place is only given free when it has begun and some bytes of waiting have come. */
async function slowly(
  turn: Turn,
  response: { body: unknown },
): Promise<{ waited: string; text: string }> {
  const body = response.body as Response["body"] & object;
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waited = "";
  while (waited.length < 3) waited += (await reader.read()).value ?? "";
  turn.release();
  let text = "";
  for (let step = await reader.read(); !step.done; step = await reader.read()) text += step.value;
  return { waited, text };
}

describe("an answer that takes long has begun", () => {
  test("in JSON: white space, then the answer, of every protocol", async () => {
    const bodies: [string, object, RegExp][] = [
      ["/v1/chat/completions", chat, /"content":"((?:[^"\\]|\\.)*)"/],
      ["/v1/messages", chat, /"text":"((?:[^"\\]|\\.)*)"/],
      [
        "/api/generate",
        {
          model: modelId,
          prompt,
          stream: false,
          options: { temperature: 0, num_predict: maxTokens },
        },
        /"response":"((?:[^"\\]|\\.)*)"/,
      ],
      [
        "/completion",
        { prompt, temperature: 0, n_predict: maxTokens },
        /"content":"((?:[^"\\]|\\.)*)"/,
      ],
    ];
    for (const [path, body, inAnswer] of bodies) {
      await busy(async ({ url }, turn) => {
        const response = await post(url + path, body);
        expect(response.status).toBe(200);
        expect(response.headers.get("content-type")).toContain("application/json");
        const { waited, text } = await slowly(turn, response);
        expect(waited.trim(), path).toBe("");
        expect(() => JSON.parse(waited + text)).not.toThrow();
        expect(JSON.parse(`"${inAnswer.exec(text)![1]!}"`), path).toBe(expected);
      });
    }
  });

  test("in lines of JSON: white space before the first", async () => {
    await busy(async ({ url }, turn) => {
      const options = { temperature: 0, num_predict: maxTokens };
      const response = await post(`${url}/api/generate`, { model: modelId, prompt, options });
      expect(response.headers.get("content-type")).toBe("application/x-ndjson");
      const { waited, text } = await slowly(turn, response);
      const lines = (waited + text).trimEnd().split("\n");
      const words = lines.map((line) => (JSON.parse(line) as { response: string }).response);
      expect(words.join("")).toBe(expected);
    });
  });

  test("so undici's time-outs for headers and body, here short ones, do not end it", async () => {
    // Its timers tick twice a second: shorter ones are not kept.
    const impatient = () => new Agent({ headersTimeout: 1000, bodyTimeout: 1000 });
    const ask = (url: string, dispatcher: Agent) =>
      undiciFetch(`${url}/v1/chat/completions`, {
        ...{ method: "POST", body: JSON.stringify(chat), dispatcher },
        headers: { "content-type": "application/json" },
      });
    await busy(
      async (server) => {
        const { url } = server;
        await expect(ask(url, impatient())).rejects.toThrow(); // as it was
        await until("it has left", () => server.context.queue.waiting === 0);
      },
      { patienceMs: Number.POSITIVE_INFINITY },
    );
    await busy(async ({ url }, turn) => {
      const response = await ask(url, impatient());
      await new Promise((resolve) => setTimeout(resolve, 3000));
      turn.release();
      const answer = (await response.json()) as { choices: { message: { content: string } }[] };
      expect(answer.choices[0]!.message.content).toBe(expected);
    });
  });

  test("an error that comes then is in the body, in the protocol's shape", async () => {
    await busy(async (server) => {
      const response = await post(`${server.url}/v1/chat/completions`, chat);
      const text = response.text();
      await server.stop();
      expect(JSON.parse(await text)).toHaveProperty("error.code", "server_stopping");
    });
  });

  test("one that leaves is forgotten", async () => {
    await busy(async (server) => {
      const leaving = new AbortController();
      const response = await fetch(`${server.url}/v1/chat/completions`, {
        ...{ method: "POST", body: JSON.stringify(chat), signal: leaving.signal },
      });
      // The answer may begin before the request has reached the queue.
      await until("it waits", () => server.context.queue.waiting === 1);
      leaving.abort();
      await expect(response.text()).rejects.toThrow();
      await until("it has left the queue", () => server.context.queue.waiting === 0);
    });
  });

  test("without heartbeats nothing begins early", async () => {
    await busy(
      async ({ url }, turn) => {
        const response = post(`${url}/v1/chat/completions`, chat);
        await new Promise((resolve) => setTimeout(resolve, 50));
        turn.release();
        expect(await (await response).text()).toMatch(/^\{/);
      },
      { heartbeatMs: Number.POSITIVE_INFINITY },
    );
  });
});

describe("a stream that outlasts its connection", () => {
  const asked = (id: string, more: object = {}) => ({
    method: "POST",
    headers: { "content-type": "application/json", "x-conversation-id": id },
    body: JSON.stringify({ ...chat, stream: true, ...more }),
  });
  const textOf = (events: string): string =>
    [...events.matchAll(/^data: (\{.*\})$/gm)]
      .map(
        ([, data]) =>
          (JSON.parse(data!) as OpenAI.ChatCompletionChunk).choices[0]?.delta.content ?? "",
      )
      .join("");

  test("goes on from the byte after the last one that came", async () => {
    await busy(
      async (server, turn) => {
        const { url } = server;
        const leaving = new AbortController();
        const response = await fetch(`${url}/v1/chat/completions`, {
          ...asked("chat 1"),
          signal: leaving.signal,
        });
        const reader = response.body!.getReader();
        let before = "";
        while (before.length < 20) before += new TextDecoder().decode((await reader.read()).value);
        leaving.abort();
        await expect(reader.read()).rejects.toThrow();
        expect(server.context.queue.waiting).toBe(1); // it still waits for its turn
        turn.release();
        const rest = await fetch(`${url}/v1/stream?conv_id=chat%201&from=${before.length}`);
        expect(rest.headers.get("content-type")).toContain("text/event-stream");
        const all = before + (await rest.text());
        expect(textOf(all)).toBe(expected);
        expect(all).toMatch(/data: \[DONE\]\n\n$/);
        // Once more, from the start, when it has ended.
        expect(await (await fetch(`${url}/v1/stream?conv_id=chat%201`)).text()).toBe(all);
        const look = await post(`${url}/v1/streams/lookup`, {
          conversation_ids: ["chat 1", "other"],
        });
        expect(await look.json()).toEqual([
          {
            conversation_id: "chat 1",
            is_done: true,
            total_bytes: all.length,
            started_at: expect.any(Number) as number,
            completed_at: expect.any(Number) as number,
          },
        ]);
      },
      { patienceMs: 45_000 },
    );
  });

  test("is ended by DELETE, and its generation with it", async () => {
    await busy(
      async (server) => {
        const { url } = server;
        const response = await fetch(`${url}/v1/chat/completions`, asked("gone"));
        const end = await fetch(`${url}/v1/stream?conv_id=gone`, { method: "DELETE" });
        expect(end.status).toBe(204);
        await until("it has left the queue", () => server.context.queue.waiting === 0);
        await response.text(); // its reader is at the end
        expect((await fetch(`${url}/v1/stream?conv_id=gone`)).status).toBe(404);
        expect((await fetch(`${url}/v1/stream?conv_id=gone`, { method: "DELETE" })).status).toBe(
          204,
        );
      },
      { patienceMs: 45_000 },
    );
  });

  test("without the header, a client that leaves ends its request", async () => {
    await busy(
      async (server) => {
        const leaving = new AbortController();
        const { headers: _, ...plain } = asked("x");
        const { signal } = leaving;
        await fetch(`${server.url}/v1/chat/completions`, { ...plain, signal });
        leaving.abort();
        await until("it has left the queue", () => server.context.queue.waiting === 0);
      },
      { patienceMs: 45_000 },
    );
  });

  test("is read with the key that it was asked for with", async () => {
    await served(
      async ({ url }) => {
        const key = (name: string) => ({ authorization: `Bearer ${name}` });
        const { headers, ...ask } = asked("mine");
        const answer = await fetch(`${url}/v1/chat/completions`, {
          ...ask,
          headers: { ...headers, ...key("one") },
        });
        await answer.text();
        const read = (name: string) =>
          fetch(`${url}/v1/stream?conv_id=mine`, { headers: key(name) });
        expect((await read("two")).status).toBe(404);
        expect((await read("one")).status).toBe(200);
        const again = await fetch(`${url}/v1/chat/completions`, {
          ...ask,
          headers: { ...headers, ...key("two") },
        });
        expect(textOf(await again.text())).toBe(expected); // answered, but not in the place of the other's
        expect((await read("two")).status).toBe(404);
      },
      { apiKeys: ["one", "two"], patienceMs: 45_000 },
    );
  });

  test("wrong places are refused", async () => {
    await served(
      async ({ url }) => {
        await (await fetch(`${url}/v1/chat/completions`, asked("a"))).text();
        for (const from of ["-1", "x", "1e3", "99999999"]) {
          expect((await fetch(`${url}/v1/stream?conv_id=a&from=${from}`)).status, from).toBe(400);
        }
        expect((await fetch(`${url}/v1/stream`)).status).toBe(400);
      },
      { patienceMs: 45_000 },
    );
  });

  test("takes a bounded memory: old bytes and old streams go first", async () => {
    let ms = 0;
    const streams = new KeptStreams(() => ms, { mostStreams: 2, mostBytes: 10, keptMs: 100 });
    const body = (text: string) => new Response(text).body!;
    const one = streams.add("one", "", () => {})!;
    await one.fill(body("01234567"));
    const two = streams.add("two", "", () => {})!;
    const pieces = new TransformStream<Uint8Array, Uint8Array>();
    const filled = two.fill(pieces.readable);
    const writer = pieces.writable.getWriter();
    for (const piece of ["abcd", "efgh", "ijkl"])
      await writer.write(new TextEncoder().encode(piece));
    await writer.close();
    await filled;
    expect(two.dropped).toBe(4);
    expect(await new Response(two.read(6)).text()).toBe("ghijkl");
    await expect(new Response(two.read(0)).text()).rejects.toThrow();
    expect(streams.add("three", "", () => {})).toBeDefined(); // in the place of one that has ended
    expect(streams.get("one", "")).toBeUndefined();
    streams.add("four", "", () => {});
    expect(streams.add("five", "", () => {})).toBeUndefined(); // the others are under way
    expect(streams.get("four", "x")).toBeUndefined();
    streams.remove("three", "");
    const four = streams.get("four", "")!;
    await four.fill(body("x"));
    ms = 101;
    expect(streams.get("four", "")).toBeUndefined();
  });
});
