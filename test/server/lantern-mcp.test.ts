// /lantern/v1/tools: what the web app may call, for whom, and what it gets. The tools are made up; test/mcp has real servers.

import { afterEach, expect, test } from "vitest";
import type { ToolHost } from "../../apps/server/protocols/lantern/tools.ts";
import { type RunningServer, startServer } from "../../apps/server/serve.ts";
import { SourceError } from "../../src/index.ts";
import { scriptedModel } from "../web/scripted-model.ts";

const servers: RunningServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
});

const schema = { type: "object" };
const tool = (name: string) => ({ name, server: "files", description: "d", schema });

const calls: unknown[] = [];
const host: ToolHost = {
  servers: [{ name: "files", status: "ready" }],
  tools: ["read", "long", "gone", "wait"].map(tool),
  call: async (name, args, { signal, timeoutMs }) => {
    calls.push([name, args, timeoutMs]);
    if (name === "gone") throw new SourceError("MCP server files: it ended with exit code 3");
    if (name === "wait") await new Promise((stop) => signal.addEventListener("abort", stop));
    return { text: name === "long" ? "x".repeat(70_000) : "hello", isError: false };
  },
};

async function serve(tools?: ToolHost): Promise<RunningServer> {
  const server = await startServer({
    models: { scripted: scriptedModel({ answer: () => "x" }) },
    version: "test",
    port: 0,
    graceMs: 0,
    ...(tools && { tools }),
  });
  servers.push(server);
  return server;
}

async function call(
  { url, token }: RunningServer,
  body: unknown,
  headers = {},
  signal?: AbortSignal,
) {
  const response = await fetch(`${url}/lantern/v1/tools/call`, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { authorization: `Bearer ${token}`, ...headers },
    ...(signal && { signal }),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

test("tools are listed and called with the token only, and never by another page", async () => {
  const server = await serve(host);
  const at = `${server.url}/lantern/v1/tools`;
  expect((await fetch(at)).status).toBe(401);
  const bearer = { authorization: `Bearer ${server.token}` };
  const listed = await (await fetch(at, { headers: bearer })).json();
  expect(listed).toMatchObject({
    enabled: true,
    servers: [{ name: "files", status: "ready" }],
    tools: [{ name: "read", server: "files", parameters: schema }, {}, {}, {}],
  });
  calls.length = 0;
  expect((await call(server, { name: "read" }, { authorization: "Bearer x" })).status).toBe(401);
  expect((await call(server, { name: "read" }, { origin: "https://evil.example" })).status).toBe(
    403,
  );
  expect(calls).toEqual([]);
  const args = { path: "a" };
  expect(await call(server, { name: "read", arguments: args, timeout_ms: 5 })).toEqual({
    status: 200,
    body: { text: "hello", is_error: false },
  });
  expect(calls).toEqual([["read", args, 5]]);
});

test("what is wrong has a status and a code; a long result shows its length", async () => {
  const server = await serve(host);
  const wrong: [unknown, number, string | null][] = [
    [{ name: "none" }, 404, "tool_not_found"],
    [{ name: "read", arguments: [] }, 400, null],
    [{ name: "read", command: "rm" }, 400, null],
    [{ name: "gone" }, 502, "tool_failed"],
  ];
  for (const [body, status, code] of wrong) {
    const { body: answer, ...rest } = await call(server, body);
    expect(rest.status).toBe(status);
    if (code !== null) expect(answer).toMatchObject({ error: { code } });
  }
  const { body } = await call(server, { name: "long" });
  expect(body).toMatchObject({ full_length: 70_000 });
  expect(body.text).toHaveLength(65_536);
});

test("calls end when their client goes, and at most eight run at a time", async () => {
  const server = await serve(host);
  const stop = new AbortController();
  const waiting = Array.from({ length: 8 }, () =>
    call(server, { name: "wait" }, {}, stop.signal).catch(() => undefined),
  );
  calls.length = 0;
  while (calls.length < 8) await new Promise((later) => setTimeout(later, 5));
  expect(await call(server, { name: "read" })).toMatchObject({
    status: 429,
    body: { error: { code: "too_many_calls" } },
  });
  stop.abort();
  await Promise.all(waiting);
  while ((await call(server, { name: "read" })).status === 429) {
    await new Promise((later) => setTimeout(later, 5));
  }
});

test("a server without tools says so", async () => {
  const server = await serve();
  const bearer = { authorization: `Bearer ${server.token}` };
  const listed = await fetch(`${server.url}/lantern/v1/tools`, { headers: bearer });
  expect(await listed.json()).toEqual({ enabled: false, servers: [], tools: [] });
  expect(await call(server, { name: "read" })).toMatchObject({
    status: 404,
    body: { error: { message: expect.stringContaining("--mcp-config") } },
  });
});
