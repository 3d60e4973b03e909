// lantern mcp as other programs use it: a real process, and the SDK's own client over stdio and over HTTP.
// Held against: the MCP SDK's own client.

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { loadSdk, type McpClient, type Transport } from "../../apps/mcp/sdk.ts";
import { hasMcpSdk, noMcpSdk } from "../support/mcp-sdk.ts";
import { tinyFile } from "../support/tiny-file.ts";

const sdk = "@modelcontextprotocol/sdk";
const command = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));

interface StdioTransport extends Transport {
  readonly stderr: { on(event: "data", read: (piece: Buffer) => void): void };
}

type StdioFile = { StdioClientTransport: new (program: object) => StdioTransport };

interface Result {
  content: { text: string }[];
  structuredContent?: Record<string, unknown>;
  isError?: boolean;
}

type Client = McpClient & {
  callTool(
    params: object,
    schema?: undefined,
    options?: { signal?: AbortSignal; onprogress?: (progress: { progress: number }) => void },
  ): Promise<Result>;
  listTools(): Promise<{ tools: { name: string; inputSchema: { type: string } }[] }>;
};

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

const env = { ...process.env, LANTERN_NO_LIMIT: "1" } as Record<string, string>;

async function connect(transport: Transport): Promise<Client> {
  const { Client } = await loadSdk("client/index.js");
  const client = new Client({ name: "test", version: "1" }, {}) as Client;
  await client.connect(transport);
  onTestFinished(() => client.close());
  return client;
}

async function overStdio(...flags: string[]): Promise<{ client: Client; err: () => string }> {
  const { StdioClientTransport } = (await import(`${sdk}/client/stdio.js`)) as StdioFile;
  const args = [command, "mcp", "-m", file.path, "-t", "1", ...flags];
  const program = { command: process.execPath, args, env, stderr: "pipe" };
  const transport = new StdioClientTransport(program);
  let said = "";
  transport.stderr.on("data", (piece) => {
    said += piece.toString();
  });
  const client = await connect(transport);
  const errors: Error[] = [];
  client.onerror = (error) => errors.push(error);
  onTestFinished(() => expect(errors).toEqual([])); // nothing but protocol on stdout
  return { client, err: () => said };
}

describe.skipIf(!hasMcpSdk)(`lantern mcp${noMcpSdk}`, () => {
  test("lists its tools, loads the model at the first call, generates, embeds, tokenizes, computes limits", async () => {
    const { client, err } = await overStdio();
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(["generate", "embed", "tokenize", "limits"]);
    for (const { inputSchema } of tools) expect(inputSchema.type).toBe("object");
    expect(err()).not.toContain("Loading");

    const call = async (name: string, args: object) =>
      await client.callTool({ name, arguments: args });
    const limits = await call("limits", { model: "llama-3-8b", device: "rtx4090" });
    expect(limits.content[0]!.text).toContain("generation: shortest time");
    expect(limits.structuredContent).toMatchObject({ model: expect.stringMatching(/llama/i) });
    expect((await call("limits", { model: "/etc/passwd" })).content[0]!.text).toContain(
      'there is no model "/etc/passwd"',
    );
    expect(err()).not.toContain("Loading");

    const greedy = { max_tokens: 5, temperature: 0 };
    const generated = await call("generate", { prompt: "the cat", ...greedy });
    expect(generated.structuredContent).toMatchObject({
      generated_tokens: 5,
      stop_reason: "length",
    });
    expect(err()).toContain("Loading");
    const messages = [{ role: "user", content: "Hello" }];
    const answered = await call("generate", { messages, ...greedy });
    expect(answered.structuredContent).toMatchObject({ generated_tokens: 5 });
    const schema = { type: "object", properties: { a: { enum: [1, 2] } }, required: ["a"] };
    const typed = await call("generate", { messages, schema, max_tokens: 60 });
    expect([1, 2]).toContain(JSON.parse(typed.content[0]!.text).a);
    const { structuredContent } = await call("embed", { texts: ["the cat", "a dog"] });
    expect(structuredContent).toMatchObject({ dimensions: 32, embeddings: [{ length: 32 }, {}] });
    expect((await call("tokenize", { text: "the cat" })).structuredContent).toMatchObject({
      count: 9,
    });
  });

  test("wrong requests are errors of the protocol, failures are results, a cancelled call ends", async () => {
    const { client } = await overStdio();
    const call = (name: string, args: object) => client.callTool({ name, arguments: args });
    await expect(call("destroy", {})).rejects.toThrow(/-32602.*there is no tool "destroy"/);
    await expect(call("generate", { promt: "x" })).rejects.toThrow(/-32602.*generate: /);
    await expect(call("tokenize", { text: 7 })).rejects.toThrow(/-32602.*text: /);
    const both = await call("generate", { prompt: "a", messages: [{ role: "user", content: "" }] });
    expect(both).toMatchObject({ isError: true });
    const long = await call("generate", { prompt: "the cat ".repeat(2000) });
    expect(long.content[0]!.text).toContain("the context holds 512");

    const stop = new AbortController();
    const seen: number[] = [];
    const running = client.callTool(
      { name: "generate", arguments: { prompt: "the", max_tokens: 400, temperature: 0 } },
      undefined,
      {
        signal: stop.signal,
        onprogress: ({ progress }) => {
          seen.push(progress);
          stop.abort();
        },
      },
    );
    await expect(running).rejects.toThrow();
    expect(seen.length).toBeGreaterThan(0);
    expect((await call("tokenize", { text: "a" })).isError).toBeUndefined();
  });

  test("over HTTP on this machine, for its own programs and for no page", async () => {
    const args = [command, "mcp", "-m", file.path, "-t", "1", "--http", "0", "--json"];
    const child = spawn(process.execPath, args, { env });
    onTestFinished(() => void child.kill("SIGKILL"));
    const ended = new Promise((resolve) => child.on("exit", resolve));
    const first = await new Promise<string>((resolve) => child.stdout.once("data", resolve));
    const { url } = JSON.parse(String(first)) as { url: string };
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/mcp$/);
    const { StreamableHTTPClientTransport } = await loadSdk("client/streamableHttp.js");
    const client = await connect(new StreamableHTTPClientTransport(new URL(url), {}));
    const { structuredContent } = await client.callTool({
      name: "tokenize",
      arguments: { text: "the cat" },
    });
    expect(structuredContent).toMatchObject({ count: 9 });
    const post = (headers: Record<string, string>) =>
      fetch(url, { method: "POST", body: "{}", headers }).then(({ status }) => status);
    expect(await post({ origin: "https://evil.example" })).toBe(403);
    expect(await post({ "mcp-session-id": "made-up" })).toBe(404);
    expect((await fetch(url.replace("/mcp", "/"))).status).toBe(404);
    await client.close();
    child.kill("SIGINT");
    expect(await ended).toBe(0);
  });
});
