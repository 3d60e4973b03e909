// Every address answers with the headers that keep it out of frames and its text from running, whatever it answers: errors, redirects,
// preflights, files, what is not a request at all. Real sockets, since some answers are written by nobody's route.

import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ModelLibrary, RunningServer } from "../../apps/server/serve.ts";
import { startServer } from "../../apps/server/serve.ts";
import { scriptedModel } from "../web/scripted-model.ts";

const bytes = new TextEncoder().encode("<p>the app</p>");
const html = { bytes, type: "text/html; charset=utf-8" };
const script = { bytes, type: "text/javascript; charset=utf-8", immutable: true };
const assets = new Map([
  ["/", html],
  ["/worker", html],
  ["/assets/app-1.js", script],
  ["/threads/thread-1.js", script],
]);
const library = { list: async () => [], locate: async () => undefined } as Partial<ModelLibrary>;

let server: RunningServer;
beforeAll(async () => {
  server = await startServer({
    models: { scripted: scriptedModel({ answer: () => "x" }) },
    version: "test",
    port: 0,
    graceMs: 0,
    token: "t0ken",
    corsOrigins: ["https://example.org"],
    library: library as ModelLibrary,
    assets,
  });
});
afterAll(() => server.stop());

/** The status and the headers of what a socket gets, whatever was sent. */
async function raw(text: string): Promise<{ status: number; headers: Headers }> {
  const socket = connect(server.port, "127.0.0.1");
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let got = "";
  socket.on("data", (data) => {
    got += data.toString("latin1");
    if (got.includes("\r\n\r\n")) resolve(got);
  });
  socket.on("end", () => resolve(got));
  socket.on("error", reject);
  socket.write(text);
  const answer = await promise;
  socket.destroy();
  const [first = "", ...lines] = answer.split("\r\n\r\n", 1)[0]!.split("\r\n");
  const headers = new Headers(
    lines.map((line): [string, string] => [
      line.slice(0, line.indexOf(":")),
      line.slice(line.indexOf(":") + 1).trim(),
    ]),
  );
  return { status: Number(first.split(" ")[1]), headers };
}

function check(name: string, headers: Headers): void {
  const policy = headers.get("content-security-policy") ?? "none";
  expect(policy, name).toContain("frame-ancestors 'none'");
  expect(policy, name).toContain("default-src 'none'");
  expect(policy, name).not.toMatch(/unsafe-inline|'unsafe-eval'|\*/);
  expect(headers.get("x-frame-options"), name).toBe("DENY");
  expect(headers.get("x-content-type-options"), name).toBe("nosniff");
  expect(headers.get("referrer-policy"), name).toBe("no-referrer");
  expect(headers.get("cross-origin-resource-policy"), name).toBe("same-origin");
}

const bearer = { authorization: "Bearer t0ken" };

test("every route, with the token and without", async () => {
  const routes = server.families.flatMap((family) => family.routes);
  expect(routes.length).toBeGreaterThan(80);
  for (const { method, path } of routes) {
    // Streams are asked for what is not there: they answer with an error.
    const url = server.url + path.replaceAll(/:[a-z]+(\{[^}]*\})?/gi, "none");
    for (const headers of [bearer, {}]) {
      const gone = new AbortController();
      const body = method === "GET" ? {} : { body: "not json" };
      const response = await fetch(url, { method, headers, signal: gone.signal, ...body });
      check(`${method} ${path} ${response.status}`, response.headers);
      gone.abort();
    }
  }
});

describe("what is no route", () => {
  test.each([
    ["files", "GET", "/", {}],
    ["the head of a file", "HEAD", "/", {}],
    ["the page of a tab that computes", "GET", "/worker", {}],
    ["a script", "GET", "/assets/app-1.js", {}],
    ["a thread's script", "GET", "/threads/thread-1.js", {}],
    ["the link", "GET", "/?token=t0ken", {}],
    ["a wrong link", "GET", "/?token=wrong", {}],
    ["no such address", "GET", "/no/such/address", {}],
    ["no such method", "DELETE", "/health", {}],
    ["another page's request", "GET", "/health", { origin: "https://evil.example" }],
    ["another name", "GET", "/health", { host: "evil.example" }],
    ["a preflight", "OPTIONS", "/v1/models", { origin: "https://example.org" }],
    ["a preflight that is refused", "OPTIONS", "/v1/models", { origin: "https://evil.example" }],
    ["an upgrade", "GET", "/health", { connection: "Upgrade", upgrade: "websocket" }],
    ["no host", "GET", "/health", { host: "" }],
    ["no address as a host", "GET", "/health", { host: "[" }],
    ["an expectation", "GET", "/health", { expect: "a miracle" }],
    ["a method that no server has", "BREW", "/", {}],
  ])("%s", async (name, method, path, headers: Record<string, string>) => {
    const all = { host: `127.0.0.1:${server.port}`, connection: "close", ...headers };
    const lines = Object.entries(all).map(([key, value]) => `${key}: ${value}\r\n`);
    const answer = await raw(`${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n`);
    check(`${name} ${answer.status}`, answer.headers);
  });

  test.each([
    ["garbage", "GARBAGE\r\n\r\n"],
    ["no Host header", "GET / HTTP/1.1\r\n\r\n"],
    ["headers that are too large", `GET / HTTP/1.1\r\nhost: x\r\na: ${"a".repeat(20_000)}\r\n\r\n`],
    ["two lengths", "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"],
    ["a tunnel", "CONNECT example.org:443 HTTP/1.1\r\nhost: example.org\r\n\r\n"],
    ["a whole URL that is none", "GET http://[ HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"],
  ])("%s", async (name, text) => {
    const { status, headers } = await raw(text);
    if (Number.isNaN(status)) return; // closed without an answer
    check(`${name} ${status}`, headers);
  });
});

test("the page's policy allows no more than the page needs", async () => {
  const policyOf = async (path: string): Promise<string> =>
    (await fetch(server.url + path)).headers.get("content-security-policy")!;
  const page = await policyOf("/");
  expect(page).not.toMatch(/wasm|unsafe|worker|blob:|https?:/);
  expect(page).toContain("require-trusted-types-for 'script'");
  expect(await policyOf("/worker")).not.toMatch(/unsafe|https?:/);
  const thread = await policyOf("/threads/thread-1.js");
  expect(thread).toContain("script-src 'self' 'wasm-unsafe-eval'");
});
