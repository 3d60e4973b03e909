// The end of a server: in the same process, with requests under way, and `lantern serve` as a program that is told to go.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Model, open } from "../../src/index.ts";
import { modelId, post, prompt, serveModel, until } from "./test-server.ts";

const messages = [{ role: "user", content: prompt }];
const long = { messages, max_tokens: 240, ignore_eos: true };

describe("stop()", () => {
  let model: Model;
  const log: string[] = [];
  beforeAll(async () => {
    model = await open(modelId, { threads: 1, parallel: 4 });
  });
  afterAll(async () => {
    await model.dispose();
    expect(log).toEqual([]);
  });

  test("lets running requests finish, and takes no new ones", async () => {
    const server = await serveModel(model, log, { graceMs: 30_000, parallel: 1 });
    const running = await post(`${server.url}/v1/chat/completions`, {
      messages,
      max_tokens: 20,
      stream: true,
    });
    const waiting = post(`${server.url}/v1/chat/completions`, long);
    await until("one waits", () => server.context.queue.waiting === 1);
    const stopped = server.stop();
    const refused = await waiting;
    expect(refused.status).toBe(503);
    expect(await refused.json()).toMatchObject({ error: { code: "server_stopping" } });
    expect(await running.text()).toMatch(/"finish_reason":"length"[\s\S]*\[DONE\]\n\n$/);
    await stopped;
    await expect(fetch(`${server.url}/health`)).rejects.toThrow();
  });

  test("ends what takes longer with an event that says so", async () => {
    const server = await serveModel(model, log, { graceMs: 0 });
    const openai = await post(`${server.url}/v1/chat/completions`, { ...long, stream: true });
    const anthropic = await post(`${server.url}/v1/messages`, {
      model: modelId,
      messages,
      max_tokens: 240,
      stream: true,
    });
    const ollama = await post(`${server.url}/api/chat`, { model: modelId, messages });
    const whole = post(`${server.url}/v1/chat/completions`, long);
    await until("all run", () => server.context.queue.running === 4);
    await server.stop();
    expect(await openai.text()).toMatch(/data: \{"error":\{[^\n]*"server_stopping"\}\}\n\n$/);
    expect(await anthropic.text()).toMatch(
      /event: error\ndata: \{"type":"error","error":\{"type":"overloaded_error"[^\n]*\n\n$/,
    );
    expect(await ollama.text()).toMatch(/\{"error":"the server is stopping[^\n]*\n$/);
    expect((await whole).status).toBe(503);
    expect(server.context.queue.running).toBe(0);
  });
});

describe("lantern serve", () => {
  const launcher = fileURLToPath(new URL("../../bin/lantern.js", import.meta.url));
  const children: ChildProcess[] = [];
  const data = mkdtempSync(join(tmpdir(), "lantern-serve-")); // what it keeps is not the user's
  afterAll(() => {
    for (const child of children) child.kill("SIGKILL");
    rmSync(data, { recursive: true, force: true });
  });

  /** Starts it, and waits for the address that it prints. */
  async function serve(...args: string[]) {
    const child = spawn(
      process.execPath,
      [launcher, "serve", "--port", "0", "-t", "1", "--no-color", ...args],
      { env: { ...process.env, LANTERN_DATA: data } },
    );
    children.push(child);
    const output = { out: "", err: "" };
    child.stdout.on("data", (piece) => {
      output.out += piece;
    });
    child.stderr.on("data", (piece) => {
      output.err += piece;
    });
    const exited = once(child, "exit").then(([code]) => code as number | null);
    await until("it serves", () => output.out.includes("Ctrl-C") || child.exitCode !== null);
    const url = /http:\/\/\S+:\d+/.exec(output.out)?.[0];
    return { child, output, exited, url };
  }

  test("says where it is, answers, and leaves with 0 when it is told to", async () => {
    const { child, output, exited, url } = await serve("--grace", "0");
    expect(output.out).toMatch(/^stories15m is served at http:\/\/127\.0\.0\.1:\d+$/m);
    expect(output.err).not.toContain("Warning");
    const answer = await post(`${url}/v1/chat/completions`, { ...long, stream: true });
    child.kill("SIGTERM");
    expect(await answer.text()).toMatch(/"server_stopping"\}\}\n\n$/);
    expect(await exited).toBe(0);
  });

  test("warns when strangers can reach it, and cannot take a port that is taken", async () => {
    const { output, child, exited, url } = await serve("--host", "0.0.0.0", "-a", "mine");
    const { port } = new URL(url!);
    const list = await fetch(`http://127.0.0.1:${port}/v1/models`);
    expect(await list.json()).toMatchObject({ data: [{ id: "mine" }] });
    expect(output.err).toContain("Warning: --host 0.0.0.0");

    const second = await serve("--host", "0.0.0.0", "--port", port);
    expect(await second.exited).toBe(2);
    expect(second.output.err).toContain(`port ${port} is in use by another program`);
    child.kill("SIGINT");
    expect(await exited).toBe(0);
  });
});
