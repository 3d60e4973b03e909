// MCP servers as processes: a good one made with the SDK, and ones that die, hang, flood and talk nonsense. Every call ends with a
// result or a clear error, and no process is left.

import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { readServers, type ServerSpec, serverOf } from "../../apps/mcp/config.ts";
import { McpServers } from "../../apps/mcp/servers.ts";
import { boundedFetch, startLineProgram } from "../../src/platform/node-lines.ts";
import { isRunning } from "../../src/platform/node-process.ts";
import { hasMcpSdk, noMcpSdk } from "../support/mcp-sdk.ts";

const platform = { startProgram: startLineProgram, boundedFetch };

function program(file: string, ...args: string[]): ServerSpec {
  const path = fileURLToPath(new URL(`../support/${file}`, import.meta.url));
  const name = args[0] ?? "test";
  return { name, kind: "stdio", command: process.execPath, args: [path, ...args], env: {} };
}

const good = (name = "test"): ServerSpec => ({ ...program("mcp-server.ts"), name });

async function open(...specs: ServerSpec[]): Promise<McpServers> {
  const servers = await McpServers.open(specs, platform);
  onTestFinished(() => servers.close());
  return servers;
}

async function goneSoon(pid: number): Promise<boolean> {
  for (let tries = 0; tries < 3000 && isRunning(pid); tries++) {
    await new Promise((later) => setTimeout(later, 20));
  }
  return !isRunning(pid);
}

describe.skipIf(!hasMcpSdk)(`servers${noMcpSdk}`, () => {
  test("tools of two servers have different names; calls, errors, pictures, environment", async () => {
    process.env.LANTERN_TEST_SECRET = "secret";
    const servers = await open(good("one"), {
      ...good("two"),
      env: { GIVEN: "1" },
    } as ServerSpec);
    expect(servers.notes).toEqual([]);
    const names = servers.tools.map(({ name }) => name);
    expect(names).toHaveLength(12);
    expect(names).toContain("one_add");
    expect(await servers.call("two_add", { a: 1, b: 2 })).toEqual({ text: "3", isError: false });
    // Arguments are checked before the server sees them.
    expect(await servers.call("two_add", { b: 2, a: "1" })).toEqual({
      text: "the arguments do not fit: a: got string, expected number",
      isError: true,
    });
    expect(await servers.call("one_fail", {})).toEqual({ text: "the disk is full", isError: true });
    expect((await servers.call("one_picture", {})).text).toBe(
      '["image", image/png, 3 bytes: only text can be read]',
    );
    const { text } = await servers.call("two_environment", {});
    const environment = JSON.parse(text) as { pid: number; names: string[] };
    expect(environment.names).toContain("GIVEN");
    expect(environment.names).not.toContain("LANTERN_TEST_SECRET");
    await expect(servers.call("none", {})).rejects.toThrow(
      'there is no tool "none". Tools: one_add',
    );
    const { echo } = (await open(good())).chatTools(60_000);
    const call = { id: "1", signal: new AbortController().signal };
    expect(await echo!.run({ text: "hi" }, call)).toBe("hi");
    await servers.close();
    expect(await goneSoon(environment.pid)).toBe(true);
    await expect(servers.call("one_add", { a: 1, b: 2 })).rejects.toThrow(
      "MCP server one: it was closed",
    );
  });

  test("a call is cancelled by an abort and ends by its time; the server stays", async () => {
    const servers = await open(good());
    const stop = new AbortController();
    const waiting = servers.call("wait", {}, { signal: stop.signal });
    stop.abort();
    await expect(waiting).rejects.toThrow("the call of wait was aborted");
    await expect(servers.call("wait", {}, { timeoutMs: 50 })).rejects.toThrow(
      "MCP server test: wait took more than 0.05 s",
    );
    expect((await servers.call("add", { a: 2, b: 2 })).text).toBe("4");
  });

  const hostile: [string, string][] = [
    ["dies", "MCP server dies: it ended with exit code 3, and said: out of cheese"],
    ["silent", "MCP server silent: go took more than 0.5 s"],
    ["babbles", "it sent 100 lines that are no messages"],
    ["long-line", "it sent a line of more than 8388608 bytes"],
    ["flood", "it sent more than anybody asked for"],
    ["wrong-result", "MCP server wrong-result: go: content: expected array, received string"],
    ["an-error", "MCP server an-error: go: MCP error -32603: no"],
  ];
  test("servers that misbehave: a clear error each, and the others are not harmed", async () => {
    const bad = hostile.map(([mode]) => program("hostile-mcp-server.ts", mode));
    const servers = await open(good(), ...bad);
    await Promise.all(
      hostile.map(async ([mode, message]) => {
        const timeoutMs = mode === "silent" ? 500 : 120_000;
        await expect(servers.call(`${mode}_go`, {}, { timeoutMs }), mode).rejects.toThrow(message);
      }),
    );
    expect((await servers.call("add", { a: 2, b: 2 })).text).toBe("4");
  });

  test("after every kind of end the next call starts the server again, and has its answer", async () => {
    const folder = mkdtempSync(join(tmpdir(), "lantern-mcp-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const modes = ["dies", "silent", "babbles", "long-line", "flood"];
    const servers = await open(
      ...modes.map((mode) => program("hostile-mcp-server.ts", mode, join(folder, mode))),
    );
    await Promise.all(
      modes.map(async (mode) => {
        const call = (timeoutMs: number) => servers.call(`${mode}_go`, {}, { timeoutMs });
        await expect(call(mode === "silent" ? 100 : 120_000), mode).rejects.toThrow("MCP server");
        // One that hangs is ended when it has not answered a ping.
        await expect
          .poll(() => servers.servers.find(({ name }) => name === mode)?.status)
          .toBe("failed");
        expect((await call(120_000)).text, mode).toBe("better");
        expect(servers.servers.find(({ name }) => name === mode)?.status).toBe("ready");
      }),
    );
  });

  test("a server that ends again and again is not started for every call", async () => {
    const servers = await open(program("hostile-mcp-server.ts", "dies"));
    const said = new Set<string>();
    for (let tries = 0; tries < 20; tries++) {
      const { message } = (await servers
        .call("go", {})
        .catch((error: Error) => error as Error)) as Error;
      said.add(message.replaceAll(/\d+ (s|times)\b/g, "N $1"));
    }
    expect([...said]).toEqual([
      "MCP server dies: it ended with exit code 3, and said: out of cheese",
      "MCP server dies: it ended with exit code 3, and said: out of cheese. It has ended N times without an answer: the first call after N s starts it again",
    ]);
  });

  test("nonsense between messages is left out; requests of a server are refused", async () => {
    const servers = await open(
      program("hostile-mcp-server.ts", "nonsense"),
      program("hostile-mcp-server.ts", "asks"),
    );
    expect((await servers.call("nonsense_go", {})).text).toBe("after nonsense");
    expect((await servers.call("asks_go", {})).text).toBe("refused with -32601");
  });

  test("no process is left, not even of a server that ignores everything, nor its children", async () => {
    const servers = await open(
      program("hostile-mcp-server.ts", "deaf"),
      program("hostile-mcp-server.ts", "child"),
    );
    const deaf = Number((await servers.call("deaf_go", {})).text);
    const child = Number((await servers.call("child_go", {})).text);
    expect([isRunning(deaf), isRunning(child)]).toEqual([true, true]);
    await servers.close();
    expect([await goneSoon(deaf), await goneSoon(child)]).toEqual([true, true]);
  });

  test("a server that cannot be reached, or has too much, is reported; the others are there", async () => {
    const absent = { ...good("absent"), command: "/nonexistent/program" } as ServerSpec;
    const refused = { name: "web", kind: "http", url: "http://127.0.0.1:9/", headers: {} } as const;
    const servers = await open(
      absent,
      refused,
      program("hostile-mcp-server.ts", "dies-at-once"),
      program("hostile-mcp-server.ts", "deep"),
      program("hostile-mcp-server.ts", "endless"),
    );
    const all = servers.notes.join("\n");
    expect(all).toContain("MCP server absent: /nonexistent/program cannot be started");
    expect(all).toContain("MCP server web: ");
    expect(all).toContain("MCP server dies-at-once: it ended with exit code 3");
    expect(all).toMatch(/deep: "deep" is left out: its schema has \d+ characters/);
    expect(all).toContain("endless: it has more tools than the first 128 tools");
    expect(servers.servers.map(({ name, status }) => `${name} ${status}`)).toEqual([
      "deep ready",
      "endless ready",
      "absent failed",
      "web failed",
      "dies-at-once failed",
    ]);
  });

  test("a tool that is none is left out with a sentence; the others are there", async () => {
    const servers = await open(
      program("hostile-mcp-server.ts", "no-schema"),
      program("hostile-mcp-server.ts", "no-list"),
    );
    const left = "MCP server no-schema: ";
    expect(servers.notes).toEqual([
      `${left}"bare" is left out: inputSchema: expected object, received undefined`,
      `${left}"listed" is left out: inputSchema.type: expected "object"`,
      `${left}tool 4 is left out: name: expected string, received number`,
      `${left}tool 5 is left out: expected object, received string`,
      "MCP server no-list: tools: expected array, received object; nextCursor: expected string, received number. Its tools are left out",
    ]);
    expect(servers.servers.map(({ name, status }) => `${name} ${status}`)).toEqual([
      "no-schema ready",
      "no-list failed",
    ]);
  });

  test("streamable HTTP, with the headers of the file; an answer without end is cut", async () => {
    const seen: unknown[] = [];
    const web = createServer((request, response) => {
      seen.push(request.headers.authorization);
      let body = "";
      request.on("data", (piece) => {
        body += piece;
      });
      request.on("end", () => {
        const { id, method, params } = JSON.parse(body || "{}") as {
          id?: number;
          method?: string;
          params?: { arguments?: unknown };
        };
        const results: Record<string, object> = {
          initialize: {
            protocolVersion: "2025-06-18",
            capabilities: { tools: {} },
            serverInfo: { name: "web", version: "1" },
          },
          "tools/list": { tools: [{ name: "go", inputSchema: { type: "object" } }] },
          "tools/call": { content: [{ type: "text", text: JSON.stringify(params?.arguments) }] },
        };
        const result = results[method ?? ""];
        if (result === undefined) response.writeHead(request.method === "GET" ? 405 : 202).end();
        else {
          const headers = { "content-type": "application/json" };
          response.writeHead(200, headers).end(JSON.stringify({ jsonrpc: "2.0", id, result }));
        }
      });
    });
    await new Promise<void>((ready) => web.listen(0, "127.0.0.1", ready));
    onTestFinished(() => void web.close());
    const url = `http://127.0.0.1:${(web.address() as AddressInfo).port}/mcp`;
    const headers = { authorization: "Bearer x" };
    const servers = await open({ name: "web", kind: "http", url, headers });
    expect(await servers.call("go", { a: 1 })).toEqual({ text: '{"a":1}', isError: false });
    expect(new Set(seen)).toEqual(new Set(["Bearer x"]));
    const short = await boundedFetch(10)(url, { method: "POST", body: '{"method":"tools/list"}' });
    await expect(short.text()).rejects.toThrow();
  });
});

describe("the configuration", () => {
  test("is read in its usual form", () => {
    const text = JSON.stringify({
      mcpServers: {
        files: { command: "npx", args: ["-y", "x"], env: { KEY: "1" } },
        web: { type: "http", url: "https://example.org/mcp", headers: { authorization: "k" } },
        off: { command: "x", disabled: true },
      },
    });
    expect(readServers(text, "t.json")).toEqual([
      { name: "files", kind: "stdio", command: "npx", args: ["-y", "x"], env: { KEY: "1" } },
      {
        name: "web",
        kind: "http",
        url: "https://example.org/mcp",
        headers: { authorization: "k" },
      },
    ]);
    expect(serverOf(`npx -y "a b" --x='c d'`, 1)).toMatchObject({
      name: "mcp1",
      command: "npx",
      args: ["-y", "a b", "--x=c d"],
    });
    expect(serverOf("https://example.org/mcp", 2)).toMatchObject({ kind: "http", name: "mcp2" });
  });

  const wrong: [string, string][] = [
    ["{", "t.json: it is no JSON"],
    ["7", '"mcpServers" is missing'],
    ['{"mcpServers":{"a":{}}}', "t.json: mcpServers.a.command"],
    ['{"mcpServers":{"a":{"command":"x","arg":[]}}}', "mcpServers.a"],
    ['{"mcpServers":{"a":{"url":"file:///etc/passwd"}}}', "mcpServers.a.url"],
    ['{"mcpServers":{"a\\nb":{"command":"x"}}}', "expected a name of 1 to 64"],
  ];
  test.each(wrong)("what is wrong is named: %s", (text, message) => {
    expect(() => readServers(text, "t.json")).toThrow(message);
  });
});
