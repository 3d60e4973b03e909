// Connections after an answer: whatever it was, the connection takes the next request, or the answer has said that it ends.

import { mkdtempSync, rmSync } from "node:fs";
import { Agent, type IncomingMessage, request } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type RunningServer, type StartOptions, startServer } from "../../apps/server/serve.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { nodeFileFolder } from "../../src/platform/node-file-folder.ts";
import { scriptedModel } from "../web/scripted-model.ts";

let server: RunningServer;
const data = mkdtempSync(join(tmpdir(), "lantern-connections-"));
const start = (more: Partial<StartOptions> = {}, before?: () => Promise<void>) =>
  startServer({
    models: { scripted: scriptedModel({ answer: () => "x", ...(before && { before }) }) },
    version: "test",
    port: 0,
    graceMs: 0,
    token: "t0ken",
    maxBodyBytes: 400_000,
    ...more,
  });
beforeAll(async () => {
  const batches = {
    open: () => openNodeDatabase(join(data, "batches.db")),
    folder: nodeFileFolder(join(data, "files")),
  };
  server = await start({ batches });
});
afterAll(async () => {
  await server.stop();
  rmSync(data, { recursive: true, force: true });
});

const headers = { authorization: "Bearer t0ken", "content-type": "application/json" };

interface Answer {
  status: number;
  text: string;
}

/** A request on the agent's only connection. */
async function ask(agent: Agent, path: string, options: object, body?: string | Buffer) {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const { port } = server;
  const asked = request({ port, host: "127.0.0.1", path, agent, headers, ...options });
  asked.on("error", reject);
  asked.on("response", (answer: IncomingMessage) => {
    let text = "";
    answer.on("data", (piece) => {
      text += piece;
    });
    answer.on("error", reject);
    answer.on("end", () => {
      resolve({ status: answer.statusCode!, text });
    });
  });
  asked.end(body);
  return await promise;
}

const nested = (size: number): string => `{"prompt": ${"[".repeat(300)}${" ".repeat(size)}`;
const prompt = (size: number): string => JSON.stringify({ prompt: "a".repeat(size) });
const form = { "content-type": "multipart/form-data; boundary=x", authorization: "Bearer t0ken" };
const cases: Readonly<
  Record<string, readonly [status: number, path: string, body: string | Buffer, more?: object]>
> = {
  "lists in lists": [400, "/v1/completions", nested(0)],
  "lists in lists, and more behind them": [400, "/v1/completions", nested(300_000)],
  "no JSON": [400, "/v1/completions", "{"],
  "no UTF-8": [400, "/v1/completions", Buffer.from([0x7b, 0xff, 0xfe])],
  "a refused field": [400, "/v1/completions", '{"prompt": "a", "audio": {}}'],
  "no body": [400, "/v1/completions", ""],
  "too many values": [400, "/v1/completions", `{"prompt": [${"[],".repeat(120_000)}`],
  "too large": [413, "/v1/completions", prompt(500_000)],
  "much too large": [413, "/v1/completions", prompt(5_000_000)],
  "too large, in chunks": [
    413,
    "/v1/completions",
    prompt(500_000),
    { headers: { ...headers, "transfer-encoding": "chunked" } },
  ],
  "no such address": [404, "/no/such/address", prompt(10)],
  "no such address, and a long body": [404, "/no/such/address", prompt(300_000)],
  "no right": [403, "/v1/completions", prompt(10), { headers: { origin: "https://evil.example" } }],
  "another name": [403, "/v1/completions", prompt(300_000), { headers: { host: "evil.example" } }],
  "a form without a file": [400, "/v1/files", "--x\r\n", { headers: form }],
  "a form that is none": [400, "/v1/files", prompt(300_000)],
  "a body that nobody reads": [200, "/v1/models", prompt(300_000), { method: "GET" }],
  "an expectation": [417, "/v1/completions", prompt(10), { headers: { expect: "a miracle" } }],
};

test.each(Object.entries(cases))("after %s", async (_, [status, path, body, more = {}]) => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  try {
    const answer = await ask(agent, path, { method: "POST", ...more }, body);
    expect(answer.status, answer.text).toBe(status);
    // The agent opens another connection where this one ends; one that ends without a word is an ECONNRESET.
    for (let again = 0; again < 3; again++) {
      expect((await ask(agent, "/health", {})).status).toBe(200);
    }
  } finally {
    agent.destroy();
  }
});

test("a client that sends on and on is told, and then cut off", async () => {
  const socket = connect(server.port, "127.0.0.1");
  const lines = ["POST /v1/completions HTTP/1.1", "host: localhost", "content-length: 900000000"];
  let got = "";
  socket.on("data", (data) => {
    got += data;
  });
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
  socket.on("error", () => {});
  socket.write(`${lines.join("\r\n")}\r\nauthorization: Bearer t0ken\r\n\r\n`);
  const more = setInterval(() => socket.writable && socket.write("a".repeat(1000)), 5);
  await closed;
  clearInterval(more);
  expect(got).toMatch(/^HTTP\/1.1 413[\s\S]*connection: close/i);
});

test("the last answer of a server that stops", async () => {
  const asked = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  const before = () => {
    asked.resolve();
    return held.promise;
  };
  const stopped = await start({ graceMs: 60_000 }, before);
  const headers = { "content-type": "application/json" };
  const said = fetch(`${stopped.url}/v1/completions`, {
    method: "POST",
    headers,
    body: prompt(10),
  });
  await asked.promise;
  const stopping = stopped.stop();
  held.resolve();
  const answer = await said;
  expect(answer.status).toBe(200);
  expect(answer.headers.get("connection")).toBe("close");
  await answer.text();
  await stopping;
});
