// An engine that hangs: /health says so, its requests get an error, it is started again and counted, and the server answers
// all the while. Clients that go take the work on their texts along.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import { AbortedError, type Model } from "../../src/index.ts";
import { magicWords, openHanging } from "../support/hanging-platform.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { post, serveModel } from "./test-server.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
let model: Model;
let server: RunningServer;
/** An engine that is started again waits for this. */
let mayStart = Promise.resolve();
const log: string[] = [];

beforeAll(async () => {
  file = await tinyFile();
  const options = { hangSeconds: 3, restart: true };
  model = await openHanging(file.path, ["engine"], options, {}, () => mayStart);
  server = await serveModel(model, log);
});

afterAll(async () => {
  await server.stop();
  await model.dispose();
  file.remove();
});

async function health(): Promise<{ status: number; body: { status: string } }> {
  const response = await fetch(`${server.url}/health`);
  return { status: response.status, body: (await response.json()) as { status: string } };
}

async function metric(name: string): Promise<string | undefined> {
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return new RegExp(`^${name}{model="stories15m"} (\\d+)$`, "m").exec(text)?.[1];
}

const ask = (prompt: string, more: object = {}): Promise<Response> =>
  post(`${server.url}/v1/completions`, { prompt, max_tokens: 3, temperature: 0, ...more });

describe("an engine that hangs", () => {
  test("answers before", async () => {
    expect(await health()).toEqual({ status: 200, body: { status: "ok" } });
    expect((await ask("the cat")).status).toBe(200);
    expect(await metric("lantern_engine_restarts_total")).toBe("0");
    expect(await metric("lantern_engine_up")).toBe("1");
  });

  test("is seen, its requests get an error, and it is started again", async () => {
    const seen = Promise.withResolvers<void>();
    mayStart = seen.promise;
    const endless = { max_tokens: 100_000, stream: true, ignore_eos: true };
    const stream = await ask("the cat sat", endless);
    const hung = ask(magicWords);
    const streamed = stream.text();
    const states: string[] = [];
    while (states.at(-1) !== "ok again") {
      const { status, body } = await health();
      expect(status).toBe(body.status === "ok" ? 200 : 503);
      const state = body.status === "ok" && states.length > 0 ? "ok again" : body.status;
      if (state !== "ok" && states.at(-1) !== state) states.push(state);
      if (state === "loading") seen.resolve();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(states).toEqual(["error", "loading", "ok again"]);
    const response = await hung;
    expect(response.status).toBe(500);
    expect(await response.json()).toEqual({
      error: {
        message: expect.stringContaining("stopped responding and was restarted"),
        type: "server_error",
        param: null,
        code: "engine_hung",
      },
    });
    expect(await streamed).toContain('"code":"engine_hung"');
    expect(await metric("lantern_engine_restarts_total")).toBe("1");
    expect((await ask("the cat")).status).toBe(200);
    expect(log.join("\n")).toContain("did not respond for 3 s");
  });

  test("whoever asks meanwhile is told to come back", async () => {
    const told = Promise.withResolvers<void>();
    mayStart = told.promise;
    const hung = ask(magicWords);
    while ((await health()).body.status !== "loading");
    const response = await ask("the cat");
    expect(response.status).toBe(503);
    expect(response.headers.get("retry-after")).toBe("5");
    expect(await response.json()).toMatchObject({ error: { code: "engine_restarting" } });
    expect((await hung).status).toBe(500);
    told.resolve();
    while ((await health()).body.status !== "ok");
  });
});

test("a client that goes takes its text along", async () => {
  const content = "the cat sat, é 😀. ".repeat(300_000);
  const gone = new AbortController();
  const { tokenize } = model;
  const outcome = new Promise((resolve) => {
    model.tokenize = async (text, options) => {
      gone.abort(); // the work begins
      const result = tokenize.call(model, text, options);
      result.then(resolve, resolve);
      return await result;
    };
  });
  const { signal } = gone;
  const body = JSON.stringify({ content });
  const asked = fetch(`${server.url}/tokenize`, { method: "POST", body, signal });
  await expect(asked).rejects.toThrow();
  expect(await outcome).toBeInstanceOf(AbortedError);
  model.tokenize = tokenize;
});
