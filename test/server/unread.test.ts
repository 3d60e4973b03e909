// Clients that read nothing, send slowly, or send everything at once: the answers of others come meanwhile, and what is held for
// them is given back when they go.

import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { listen } from "../../apps/server/listen.ts";
import { type RunningServer, startServer } from "../../apps/server/serve.ts";
import { scriptedModel } from "../web/scripted-model.ts";
import { post, until } from "./test-server.ts";

const greedy = { authorization: "Bearer greedy" };
const other = { authorization: "Bearer other" };

let server: RunningServer;
beforeAll(async () => {
  const model = scriptedModel({
    answer: (prompt) => (prompt.includes("for ever") ? "it goes on and on and on" : "The end."),
    // Until somebody stops it.
    before: (said) => (said.includes("on and") ? new Promise(() => {}) : undefined),
  });
  server = await startServer({
    ...{ models: { scripted: model }, version: "test", port: 0, token: false, graceMs: 1 },
    ...{ apiKeys: ["greedy", "other"], parallel: 4, queue: 64 },
  });
});
afterAll(async () => {
  await server?.stop();
});

const messages = (content: string) => [{ role: "user", content }];
/** A streamed request of every protocol, and what its last piece says. */
const protocols: readonly (readonly [string, (text: string) => object, string])[] = [
  ["/v1/chat/completions", (text) => ({ messages: messages(text) }), "[DONE]"],
  ["/v1/completions", (text) => ({ prompt: text, max_tokens: 50 }), "[DONE]"],
  ["/v1/responses", (text) => ({ input: text }), "response.completed"],
  [
    "/v1/messages",
    (text) => ({ model: "scripted", messages: messages(text), max_tokens: 50 }),
    "message_stop",
  ],
  ["/api/chat", (text) => ({ model: "scripted", messages: messages(text) }), '"done":true'],
  ["/api/generate", (text) => ({ model: "scripted", prompt: text }), '"done":true'],
  ["/completion", (text) => ({ prompt: text }), '"stop":true'],
];

function raw(path: string, body: string, headers: object, length = body.length): string {
  const all = { host: "localhost", "content-type": "application/json", ...headers };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST ${path} HTTP/1.1\r\n${lines.join("")}content-length: ${length}\r\n\r\n${body}`;
}

/** A client that sends this and reads nothing. */
function mute(bytes: string, port: number = server.port): Socket {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.pause();
  socket.write(bytes);
  onTestFinished(() => void socket.destroy());
  return socket;
}

const counts = () => {
  const { running, waiting } = server.context.queue;
  return running + waiting;
};
const idle = () => counts() === 0 && server.context.slots.all.every(({ isBusy }) => !isBusy);

test("sixty streams that nobody reads keep no other client waiting, in any protocol", async () => {
  const sockets = Array.from({ length: 60 }, (_, at) => {
    const [path, fields] = protocols[at % protocols.length]!;
    return mute(raw(path, JSON.stringify({ ...fields("for ever"), stream: true }), greedy));
  });
  await until("all are there", () => counts() === 60);
  for (const [path, fields, last] of protocols) {
    const response = await post(
      `${server.url}${path}`,
      { ...fields("a story"), stream: true },
      other,
    );
    expect(response.status).toBe(200);
    expect(await response.text()).toContain(last);
    await until("the turn is taken again", () => server.context.queue.running === 4);
    expect(counts()).toBe(60);
  }
  for (const socket of sockets) socket.destroy();
  await until("nothing is held for them", idle);
});

test("requests in one go on a connection are answered in turn, and end with it", async () => {
  const one = (text: string) =>
    raw("/completion", JSON.stringify({ prompt: text, stream: true }), greedy);
  const socket = mute(one("a story") + one("for ever") + one("for ever"));
  await until("two go on", () => counts() === 2);
  let got = "";
  socket.setEncoding("utf8").on("data", (piece: string) => {
    got += piece;
  });
  socket.resume();
  await until("the first is answered", () => got.includes('"stop":true'));
  socket.destroy();
  await until("nothing is held for them", idle);
});

test("large requests that are sent slowly leave room for those of others", async () => {
  const part = `{"prompt":"${"a".repeat(100_000)}`;
  const sockets = Array.from({ length: 8 }, () =>
    mute(raw("/completion", part, greedy, 2 * part.length)),
  );
  const { large } = server.context;
  await until("its share is taken", () => large.running + large.waiting === 8);
  const response = await post(
    `${server.url}/completion`,
    { prompt: "a story ".repeat(10_000) },
    other,
  );
  expect(await response.json()).toMatchObject({ content: "The end." });
  for (const socket of sockets) socket.destroy();
  await until("nothing is held for them", () => large.running + large.waiting === 0);
});

test("a client that takes nothing is disconnected; one that waits for an answer is not", async () => {
  let isCancelled = false;
  const endless = () =>
    new ReadableStream({
      pull: (controller) => controller.enqueue(new Uint8Array(65536)),
      cancel: () => {
        isCancelled = true;
      },
    });
  const late = Promise.withResolvers<void>();
  const listener = await listen(
    async ({ url }) => {
      if (url.endsWith("/endless")) return new Response(endless());
      await late.promise;
      return new Response("late");
    },
    {
      ...{ host: "127.0.0.1", port: 0, headersTimeoutMs: 60_000, requestTimeoutMs: 60_000 },
      unreadTimeoutMs: 50,
    },
  );
  onTestFinished(async () => {
    listener.stopAccepting();
    listener.destroy();
    await listener.closed;
  });
  const waiting = fetch(`${listener.url}/late`);
  mute("GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n", listener.port);
  await until("it is disconnected", () => isCancelled);
  late.resolve();
  expect(await (await waiting).text()).toBe("late");
});
