// What does not come from a well-behaved client: wrong bodies, wrong headers, slow and half-closed sockets, strangers.
// Every one is told so in one clear answer, and the server goes on.

import { connect, type Socket } from "node:net";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import {
  modelId,
  post,
  prompt,
  serveModel,
  type TestServer,
  testServer,
  until,
} from "./test-server.ts";

let running: TestServer;
let url: string;
let chat: string;
const servers: RunningServer[] = [];
const messages = [{ role: "user", content: prompt }];

beforeAll(async () => {
  running = await testServer({ maxBodyBytes: 20_000, maxMessages: 10 });
  url = running.server.url;
  chat = `${url}/v1/chat/completions`;
});

afterAll(async () => {
  for (const server of servers) await server.stop();
  await running.close();
  expect(running.log).toEqual([]);
});

async function another(options: Parameters<typeof serveModel>[2]): Promise<RunningServer> {
  const server = await serveModel(running.model, running.log, options);
  servers.push(server);
  return server;
}

/** Opens a socket, writes, and gives everything that comes back until the server closes it. */
async function raw(
  text: string | Buffer,
  options: { end?: boolean; port?: number } = {},
): Promise<string> {
  const { port = running.server.port } = options;
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  socket.write(text);
  if (options.end) socket.end();
  return await received(socket);
}

async function received(socket: Socket): Promise<string> {
  let text = "";
  socket.on("data", (piece) => {
    text += piece;
  });
  await new Promise<void>((resolve) => {
    socket.on("end", resolve);
    socket.on("close", () => resolve());
    socket.on("error", () => resolve());
  });
  socket.destroy();
  return text;
}

function request(body: string, more: string = ""): string {
  return `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${more}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

interface ErrorBody {
  error: { message: string; type: string; param: string | null; code: string | null };
}

async function refusal(body: unknown, status: number): Promise<ErrorBody["error"]> {
  const response = await post(chat, body);
  const { error } = (await response.json()) as ErrorBody;
  expect([response.status, error.message]).toEqual([status, expect.any(String)]);
  return error;
}

describe("bodies", () => {
  test.each([
    ["", /empty/],
    ["{", /not JSON/],
    ["[]", /JSON object/],
    ["null", /JSON object/],
    ["42", /JSON object/],
    ['{"messages": NaN}', /not JSON/],
    ["[".repeat(10_000), /nested lists/],
    ["{}", /"messages"/],
  ])("%.20s is refused", async (body, why) => {
    expect((await refusal(body, 400)).message).toMatch(why);
  });

  test.each([
    ["messages", { messages: "hello" }],
    ["messages", { messages: [] }],
    ["messages[0]", { messages: [7] }],
    ["messages[0].role", { messages: [{ role: "king", content: "hi" }] }],
    ["messages[0].content", { messages: [{ role: "user" }] }],
    ["messages[0].content", { messages: [{ role: "user", content: { text: "hi" } }] }],
    ["messages[0].content[0]", { messages: [{ role: "user", content: [{ type: "image_url" }] }] }],
    ["messages[0].content[0]", { messages: [{ role: "user", content: [{ type: "text" }] }] }],
    ["messages[0].tool_call_id", { messages: [{ role: "tool", content: "7" }] }],
    ["messages[0].role", { messages: [{ role: "function", content: "7" }] }],
    ["messages[0].tool_calls", { messages: [{ role: "assistant", tool_calls: [7], content: "" }] }],
    ["tools[0]", { tools: [7] }],
    ["tools[0].function.name", { tools: [{ type: "function", function: { name: "a b" } }] }],
    ["tool_choice", { tool_choice: 7 }],
    ["reasoning_format", { reasoning_format: "loud" }],
    ["temperature", { temperature: -1 }],
    ["temperature", { temperature: "hot" }],
    ["top_p", { top_p: 1.5 }],
    ["top_k", { top_k: 1.5 }],
    ["max_tokens", { max_tokens: -5 }],
    ["n", { n: 0 }],
    ["n", { n: 1e9 }],
    ["seed", { seed: 1.5 }],
    ["stop[0]", { stop: [""] }],
    ["stop", { stop: { a: 1 } }],
    ["stop", { stop: "a".repeat(10_000) }],
    ["logit_bias", { logit_bias: { hello: "1" } }],
    ["logit_bias", { logit_bias: { "": 1 } }],
    ["logit_bias", { logit_bias: { "-1": 1 } }],
    ["top_logprobs", { top_logprobs: 3 }],
    ["top_logprobs", { logprobs: true, top_logprobs: 100 }],
    ["stream", { stream: "yes" }],
    ["model", { model: 7 }],
  ])("%s of the wrong kind is named", async (param, fields) => {
    expect((await refusal(JSON.stringify({ messages, ...fields }), 400)).param).toBe(param);
  });

  test("names of the language's own objects are fields like others", async () => {
    for (const own of ["__proto__", "constructor", "toString"]) {
      const body = JSON.stringify({ messages, max_tokens: 1, temperature: 0 });
      const answer = await post(
        `${url}/v1/chat/completions`,
        `{"${own}": {"stream": true, "n": 2}, ${body.slice(1)}`,
      );
      expect(answer.headers.get("content-type")).toContain("application/json");
      expect(((await answer.json()) as { choices: object[] }).choices).toHaveLength(1);
      expect(answer.headers.get("x-lantern-ignored-fields")).toBe(own);
    }
  });

  test("infinite numbers are no numbers", async () => {
    const text = JSON.stringify({ messages, temperature: 7 }).replace("7", "1e999");
    expect((await refusal(text, 400)).param).toBe("temperature");
  });

  test("a token that the vocabulary does not have", async () => {
    const response = await post(`${url}/v1/completions`, { prompt: [1, 99_999_999] });
    expect(response.status).toBe(400);
    expect(await response.text()).toMatch(/99999999 is not in the vocabulary/);
  });

  test("too large, said or streamed, and too many messages", async () => {
    const large = JSON.stringify({ messages: [{ role: "user", content: "a".repeat(30_000) }] });
    expect((await refusal(large, 413)).code).toBe("request_too_large");
    const chunk = `${(5000).toString(16)}\r\n${"a".repeat(5000)}\r\n`;
    const answer = await raw(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n${chunk.repeat(5)}`,
    );
    expect(answer).toMatch(/^HTTP\/1.1 413/);
    const many = Array.from({ length: 11 }, () => messages[0]);
    expect((await refusal({ messages: many }, 400)).code).toBe("too_many_messages");
  });

  test("bytes that are not UTF-8", async () => {
    const body = Buffer.concat([
      Buffer.from('{"prompt": "'),
      Buffer.from([0xff, 0xfe]),
      Buffer.from('"}'),
    ]);
    const head = `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n`;
    const answer = await raw(Buffer.concat([Buffer.from(head), body]));
    expect(answer).toMatch(/^HTTP\/1.1 400[\s\S]*not UTF-8/);
  });
});

describe("sockets", () => {
  test("rubbish instead of HTTP", async () => {
    const said = async (text: string, end: boolean = false): Promise<ErrorBody["error"]> => {
      const [head, body] = (await raw(text, { end })).split("\r\n\r\n");
      return { ...(JSON.parse(body!) as ErrorBody).error, type: head!.slice(9, 12) };
    };
    expect(await said("hello there\r\n\r\n")).toMatchObject({
      type: "400",
      code: "broken_request",
    });
    const long = `GET /health HTTP/1.1\r\nHost: localhost\r\nX: ${"a".repeat(20_000)}\r\n\r\n`;
    expect(await said(long)).toMatchObject({ type: "431", message: /too large/ });
    const cut = request(JSON.stringify({ messages })).slice(0, -5);
    expect(await said(cut, true)).toMatchObject({ type: "400", message: /before it was complete/ });
  });

  test("headers, or a body, that never end", async () => {
    // Not the server of the other tests: on a busy machine their own requests would be as late.
    const { port, context } = await another({ headersTimeoutMs: 400, requestTimeoutMs: 800 });
    const late = /^HTTP\/1.1 408[\s\S]*took too long/;
    expect(await raw("POST /v1/chat/completions HTTP/1.1\r\nHost: loc", { port })).toMatch(late);
    const half = request(JSON.stringify({ messages })).slice(0, -5);
    expect(await raw(half, { port })).toMatch(late);
    expect(context.queue.running).toBe(0);
  });

  test("a client that says all, closes its side, and waits for the answer", async () => {
    const body = JSON.stringify({ messages, max_tokens: 3 });
    const answer = await raw(request(body), { end: true });
    // Either is fine: an answer, or a connection that closes. What matters is that nothing stays behind.
    expect(answer).toMatch(/^(HTTP\/1.1 200|$)/);
    await until("nothing runs", () => running.server.context.queue.running === 0);
  });

  test("a client that goes in the middle of an answer", async () => {
    const socket = connect({ port: running.server.port, host: "127.0.0.1" });
    socket.write(request(JSON.stringify({ messages, max_tokens: 240, stream: true })));
    await new Promise((resolve) => socket.once("data", resolve));
    expect(running.server.context.queue.running).toBe(1);
    socket.destroy();
    await until("nothing runs", () => running.server.context.queue.running === 0);
    const text = await (await fetch(`${url}/metrics`)).text();
    expect(text).toMatch(/lantern_aborted_total [1-9]/);
  });

  test("a connection is kept for longer than clients keep it, and says for how long", async () => {
    const answer = await fetch(`${url}/health`);
    await answer.text();
    expect(answer.headers.get("keep-alive")).toMatch(/timeout=75\b/);
  });

  test("paths out of the tree", async () => {
    for (const path of [
      "/../../etc/passwd",
      "/%2e%2e/%2e%2e/etc/passwd",
      "/v1/models/../../../etc",
    ]) {
      const answer = await raw(
        `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
      );
      expect(answer).toMatch(/^HTTP\/1.1 (404|400)/);
    }
  });
});

describe("strangers", () => {
  test("a page of another site is not answered, nor one behind a changed name", async () => {
    const get = (headers: string) =>
      raw(`GET /v1/models HTTP/1.1\r\nConnection: close\r\n${headers}\r\n\r\n`);
    const host = `Host: localhost:${running.server.port}`;
    expect(await get(host)).toMatch(/^HTTP\/1.1 200/);
    expect(await get(`${host}\r\nOrigin: http://localhost:${running.server.port}`)).toMatch(
      / 200 /,
    );
    expect(await get(`${host}\r\nOrigin: https://evil.example`)).toMatch(/^HTTP\/1.1 403/);
    expect(await get(`${host}\r\nOrigin: null`)).toMatch(/^HTTP\/1.1 403/);
    expect(await get("Host: evil.example")).toMatch(/^HTTP\/1.1 403/);
    expect(await get("Host: localhost.evil.example")).toMatch(/^HTTP\/1.1 403/);
    expect(await get("Host: 127.0.0.1")).toMatch(/^HTTP\/1.1 200/);
  });

  test("CORS is off, and on for the origins that were named", async () => {
    const preflight = (base: string, origin: string) =>
      fetch(`${base}/v1/chat/completions`, {
        method: "OPTIONS",
        headers: { origin, "access-control-request-method": "POST" },
      });
    const allowed = async (base: string, origin: string): Promise<string | null> => {
      const response = await preflight(base, origin);
      expect(response.status).toBe(200); // what it lacks is the refusal
      return response.headers.get("access-control-allow-origin");
    };
    expect(await allowed(url, "https://app.example")).toBeNull();
    const server = await another({ corsOrigins: ["https://app.example"] });
    expect(await allowed(server.url, "https://app.example")).toBe("https://app.example");
    expect(await allowed(server.url, "https://other.example")).toBeNull();
    const get = (origin: string) => fetch(`${server.url}/v1/models`, { headers: { origin } });
    const models = await get("https://app.example");
    expect(models.headers.get("access-control-allow-origin")).toBe("https://app.example");
    expect((await get("https://other.example")).status).toBe(403);
  });

  test("CORS for all, and for pages of this machine, as llama.cpp does it", async () => {
    const preflight = async (base: string, origin: string, path: string = "/completions") => {
      const response = await fetch(base + path, {
        method: "OPTIONS",
        headers: {
          origin,
          "access-control-request-method": "POST",
          "access-control-request-headers": "authorization",
        },
      });
      expect(response.status).toBe(200);
      return response.headers;
    };
    const open = await another({ corsOrigins: ["*"], apiKeys: ["a secret"] }); // a preflight has no key
    const headers = await preflight(open.url, "web.mydomain.example");
    expect(headers.get("access-control-allow-origin")).toBe("web.mydomain.example");
    expect(headers.get("access-control-allow-credentials")).toBe("true");
    expect(headers.get("access-control-allow-methods")).toBe("GET, POST, DELETE, OPTIONS");
    expect(headers.get("access-control-allow-headers")).toBe("authorization");
    const own = await preflight(open.url, "https://a.example", "/lantern/v1/sessions");
    expect(own.get("access-control-allow-methods")).toContain("PATCH");
    const local = await another({ corsOrigins: ["localhost"] });
    const origin = async (of: string) =>
      (await preflight(local.url, of)).get("access-control-allow-origin");
    for (const page of ["http://localhost", "http://127.0.0.1:3000", "http://[::1]:3000"]) {
      expect(await origin(page)).toBe(page);
    }
    for (const page of ["http://notlocalhost", "http://localhost.evil.example", "null"]) {
      expect(await origin(page)).toBeNull();
    }
  });

  test("without the key only /health and the page's files are answered", async () => {
    const bytes = new TextEncoder().encode("<p>hi</p>");
    const gzip = new Uint8Array(gzipSync(bytes));
    const assets = new Map([["/", { bytes, gzip, type: "text/html; charset=utf-8" }]]);
    const server = await another({ apiKeys: ["a secret"], assets });
    const status = async (headers: Record<string, string>, path = "/v1/models") =>
      (await fetch(server.url + path, { headers })).status;
    expect(await status({})).toBe(401);
    expect(await status({ authorization: "Bearer another" })).toBe(401);
    expect(await status({ authorization: "a secret" })).toBe(401);
    expect(await status({ authorization: "Bearer a secret" })).toBe(200);
    expect(await status({ "x-api-key": "a secret" })).toBe(200);
    expect(await status({}, "/health")).toBe(200);
    expect(await status({}, "/metrics")).toBe(401);
    expect(await status({}, "/no/such/path")).toBe(401);
    const page = await fetch(server.url);
    expect(await page.text()).toBe("<p>hi</p>");
    expect(page.headers.get("content-encoding")).toBe("gzip");
    const plain = await fetch(server.url, { headers: { "accept-encoding": "identity" } });
    expect(await plain.text()).toBe("<p>hi</p>");
    expect(plain.headers.get("content-encoding")).toBeNull();
    expect(page.headers.get("content-security-policy")).toContain("script-src 'self'");
    expect(page.headers.get("x-content-type-options")).toBe("nosniff");
  });

  test("a full server says when to come again", async () => {
    const server = await another({ parallel: 1, queue: 1 });
    const gone = new AbortController();
    const ask = () =>
      fetch(`${server.url}/v1/chat/completions`, {
        method: "POST",
        body: JSON.stringify({ messages, max_tokens: 240, stream: true, ignore_eos: true }),
        signal: gone.signal,
      });
    const first = await ask();
    const second = ask().catch(() => undefined);
    await until("one waits", () => server.context.queue.waiting === 1);
    const third = await ask();
    expect(third.status).toBe(429);
    expect(Number(third.headers.get("retry-after"))).toBeGreaterThan(0);
    expect(await third.json()).toMatchObject({ error: { code: "queue_full" } });
    expect((await fetch(`${server.url}/health`)).status).toBe(200);
    gone.abort();
    await Promise.allSettled([first.text(), second]);
    await until(
      "all are gone",
      () => server.context.queue.running + server.context.queue.waiting === 0,
    );
  });

  test("another model's name, in every family's words, where names are strict", async () => {
    const server = await another({ strictModel: true });
    const ask = async (path: string, body: object) => {
      const response = await post(server.url + path, { model: "other", ...body });
      expect(response.status).toBe(404);
      return (await response.json()) as object;
    };
    expect(await ask("/v1/chat/completions", { messages })).toHaveProperty(
      "error.code",
      "model_not_found",
    );
    expect(await ask("/v1/messages", { messages, max_tokens: 1 })).toMatchObject({
      type: "error",
      error: { type: "not_found_error" },
    });
    expect(await ask("/api/chat", { messages })).toEqual({
      error: expect.stringContaining(modelId),
    });
  });
});
