// lantern serve with several models: names, choice by request, memory of all together, the pages' models, and a
// conversation whose model is loaded again after a restart.
// Held against: the answers of each model alone.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { request } from "../server/lantern-client.ts";
import { post, until } from "../server/test-server.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const patience = { timeout: 60_000 };
let story: Awaited<ReturnType<typeof tinyFile>>;
let chat: Awaited<ReturnType<typeof tinyFile>>;
const folder = mkdtempSync(join(tmpdir(), "lantern-serve-models-"));
const downloads = nodeDownloadPlatform({ LANTERN_CACHE: join(folder, "cache") });
const closing: (() => Promise<void>)[] = [];

beforeAll(async () => {
  story = await tinyFile({ name: "tale", noTemplate: true, seed: 1 });
  chat = await tinyFile({ name: "talk", seed: 2 });
});
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});
afterAll(() => {
  story.remove();
  chat.remove();
  rmSync(folder, { recursive: true, force: true });
});

async function serve(flags: string[]) {
  const terminal = new FakeTerminal();
  terminal.environment = { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" };
  const common = ["--port", "0", "--threads", "1", "--no-token"];
  const ended = main(["serve", ...common, ...flags], terminal, downloads);
  let isOver = false;
  void ended.then(() => {
    isOver = true;
  });
  await until("the server is there", () => isOver || terminal.stdout.includes("Ctrl-C stops it"));
  if (isOver) throw new Error(terminal.stderr);
  const stop = async (): Promise<void> => {
    terminal.pressCtrlC();
    expect(await ended).toBe(0);
  };
  closing.push(stop);
  return {
    url: /served at (\S+)/.exec(terminal.stdout)![1]!,
    terminal,
    stop: async () => {
      closing.splice(closing.indexOf(stop), 1);
      await stop();
    },
  };
}

/** What a command line that is refused says. */
async function refusal(args: string[], platform = downloads): Promise<string> {
  const terminal = new FakeTerminal();
  expect(await main(args, terminal, platform)).not.toBe(0);
  return terminal.stderr.replaceAll(/\s+/g, " ");
}

test("-m twice serves both; a request chooses by name or alias, the first answers one without a name", async () => {
  const { url, terminal } = await serve([
    ...["-m", story.path, "-m", chat.path, "-a", "writer", "--no-sessions"],
  ]);
  expect(terminal.stdout).toContain("writer, talk are served at");
  const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const ids = [];
  for await (const model of openai.models.list()) ids.push(model.id);
  expect(ids).toEqual(["writer", "talk"]);
  const answerOf = async (model: string): Promise<OpenAI.ChatCompletion> =>
    await openai.chat.completions.create({
      model,
      messages: [{ role: "user", content: "the cat" }],
      max_tokens: 2,
    });
  expect((await answerOf("talk")).model).toBe("talk");
  expect((await answerOf("tale")).model).toBe("writer"); // its file's name
  expect((await answerOf("talk.gguf")).model).toBe("talk");
  await expect(answerOf("gpt-4o")).rejects.toMatchObject({
    status: 404,
    code: "model_not_found",
    message: expect.stringContaining("Served: writer, talk"),
  });
  const unnamed = await post(`${url}/v1/completions`, { prompt: "the", max_tokens: 1 });
  expect(await unnamed.json()).toMatchObject({ model: "writer" });
  const ollama = new Ollama({ host: url });
  expect((await ollama.list()).models.map(({ name }) => name).slice(0, 2)).toEqual(ids);
  expect((await ollama.show({ model: "talk:latest" })).template).toContain("message");
  expect(
    (await ollama.generate({ model: "talk", prompt: "the", options: { num_predict: 1 } })).model,
  ).toBe("talk");
  expect(await request(`${url}/props`)).toMatchObject({
    model_alias: "writer",
    models: [{ id: "writer", aliases: ["tale", "tale.gguf"] }, { id: "talk" }],
  });
  expect(await request(`${url}/props?model=talk`)).toMatchObject({ model_path: "talk.gguf" });
  const metrics = await (await fetch(`${url}/metrics`)).text();
  expect(metrics).toContain('lantern_queue_seconds_count{model="writer"} 2\n');
  expect(metrics).toMatch(/lantern_prompt_tokens_total\{model="writer"\} [1-9]/);
  expect(metrics).toMatch(/lantern_queue_seconds_bucket\{model="talk",le="\+Inf"\} 3\n/);
  expect(metrics).toContain('lantern_engine_up{model="talk"} 1\n');
});

test("the counters of a single model have no label, as before", async () => {
  const { url } = await serve(["-m", chat.path, "--no-sessions", "--no-web"]);
  await request(`${url}/v1/completions`, "POST", {
    prompt: "the",
    max_tokens: 2,
    ignore_eos: true,
  });
  const metrics = await (await fetch(`${url}/metrics`)).text();
  expect(metrics).toContain("lantern_generated_tokens_total 2\n");
  expect(metrics).toContain("lantern_time_to_first_token_seconds_count 1\n");
});

describe("a conversation", () => {
  const sessions = join(folder, "sessions.db");
  const state = ["--sessions", sessions];
  const v1 = (url: string): string => `${url}/lantern/v1`;

  test("has its page's model, which is loaded again after a restart; without its file nothing is lost", async () => {
    const first = await serve([
      ...["--story-model", story.path, "--chat-model", chat.path, "-a", "writer", "-a", "talker"],
      ...state,
    ]);
    expect(await request(`${v1(first.url)}/models`)).toMatchObject({
      pages: { story: "writer", chat: "talker" },
    });
    const { id } = await request(`${v1(first.url)}/sessions`, "POST", { mode: "chat" }, 201);
    const ask = async (url: string, status = 201): Promise<Record<string, unknown>> =>
      await request(
        `${v1(url)}/sessions/${id}/messages`,
        "POST",
        { content: "the cat", settings: { maxTokens: 2 } },
        status,
      );
    const ended = async (url: string): Promise<void> => {
      for (;;) {
        const { run } = await request(`${v1(url)}/sessions/${id}`);
        if (run === null) return;
      }
    };
    expect(await ask(first.url)).toMatchObject({ run: { model: "talker" } });
    await ended(first.url);
    await first.stop();

    // Under another name, it is known by its file.
    const second = await serve(["-m", story.path, "-m", chat.path, ...state]);
    expect(await request(`${v1(second.url)}/sessions/${id}`)).toMatchObject({ model: "talker" });
    expect(await ask(second.url)).toMatchObject({ run: { model: "talk" } });
    await ended(second.url);
    const exported = await fetch(`${v1(second.url)}/sessions/${id}/export`);
    expect(await exported.text()).not.toContain(".gguf"); // a path is this machine's own
    await second.stop();

    // It is not served any more, and loaded again from its file.
    const last = await serve(["-m", story.path, ...state]);
    expect(await ask(last.url)).toMatchObject({ run: { model: "talk" } });
    await ended(last.url);
    const { data } = await request<{ data: { id: string }[] }>(`${last.url}/v1/models`);
    expect(data.map((model) => model.id)).toEqual(["tale", "talk"]);

    await request(`${v1(last.url)}/models/unload`, "POST", { name: "talk" });
    chat.remove();
    const { error } = (await ask(last.url, 409)) as { error: { message: string } };
    expect(error.message).toMatch(
      /^this conversation is held with talk \(talk\.gguf\), which is not loaded: .*no file.*Load it on the Models page, or choose another model/i,
    );
    expect(error.message).not.toContain(folder);
    const { messages } = await request<{ messages: unknown[] }>(
      `${v1(last.url)}/sessions/${id}/messages`,
    );
    expect(messages).toHaveLength(6);
    await request(`${v1(last.url)}/sessions/${id}`, "PATCH", { model: "tale" });
    expect(await ask(last.url)).toMatchObject({ run: { model: "tale" } });
    await ended(last.url);
  });
});

test("options chosen for a model are there after a restart, and a flag of the command line counts more", async () => {
  const data = mkdtempSync(join(folder, "options-"));
  const talk = await tinyFile({ name: "talk" });
  const flags = ["-m", story.path, "-m", talk.path, "--sessions", join(data, "sessions.db")];
  interface View {
    models: { name: string; options?: Record<string, unknown>; task: unknown }[];
    served: { id: string; info: { contextSize: number; kvType: string } }[];
  }
  const view = async (url: string): Promise<View> => await request(`${url}/lantern/v1/models`);
  const listed = async (url: string, name: string) =>
    (await view(url)).models.find((model) => model.name === name)!;
  const held = async (url: string, name: string) => {
    const { contextSize, kvType } = (await view(url)).served.find(({ id }) => id === name)!.info;
    return { contextSize, kvType };
  };
  const load = async (url: string, name: string, options: object) => {
    await request(`${url}/lantern/v1/models/load`, "POST", { name, ...options }, 202);
    await expect.poll(async () => (await listed(url, name)).task, patience).toBeNull();
  };

  const first = await serve(flags);
  const before = await held(first.url, "tale");
  expect(before).not.toEqual({ contextSize: 96, kvType: "f32" });
  await load(first.url, "tale", { contextSize: 96, kvType: "f32" });
  expect(await held(first.url, "tale")).toEqual({ contextSize: 96, kvType: "f32" });
  expect((await listed(first.url, "talk")).options).toEqual({});
  await first.stop();

  const second = await serve(flags);
  expect((await listed(second.url, "tale")).options).toEqual({ contextSize: 96, kvType: "f32" });
  expect(await held(second.url, "tale")).toEqual({ contextSize: 96, kvType: "f32" });
  expect(await held(second.url, "talk")).toEqual(before); // of the other model nothing was chosen
  await second.stop();

  const third = await serve([...flags, "-c", "64"]);
  expect(await held(third.url, "tale")).toEqual({ contextSize: 64, kvType: "f32" });
  await load(third.url, "tale", { contextSize: null, kvType: null });
  await third.stop();

  const last = await serve(flags);
  expect((await listed(last.url, "tale")).options).toEqual({});
  expect(await held(last.url, "tale")).toEqual(before);
  talk.remove();
});

describe("refused before anything is loaded", () => {
  test.each([
    ["a model twice", ["-m", "A", "-m", "A"], "-m A and -m A are the same model"],
    [
      "more names than models",
      ["-m", "A", "-a", "x", "-a", "y"],
      "got --alias 2 times for 1 model",
    ],
    ["a name twice", ["-m", "A", "-m", "B", "-a", "x", "-a", "x"], "--alias x was given twice"],
    ["one name for two", ["-m", "A", "-m", "B"], 'both be served as "tale"'],
    [
      "a template for nobody",
      ["-m", "A", "-m", "B", "-a", "x", "--chat-template", "chatml"],
      "got --chat-template with several models",
    ],
  ])("%s", async (_, flags, says) => {
    const other = await tinyFile({ name: "tale" });
    const paths: Record<string, string> = { A: story.path, B: other.path };
    const said = await refusal(["serve", ...flags.map((flag) => paths[flag] ?? flag)]);
    other.remove();
    expect(said).toContain(says.replaceAll(/\bA\b/g, story.path));
  });

  test("models that fit alone, but not together", async () => {
    const other = await tinyFile({ name: "other" });
    const little = { ...downloads, freeMemoryBytes: () => 1000 };
    const said = await refusal(["serve", "-m", story.path, "-m", other.path], little);
    other.remove();
    expect(said).toContain("the 2 models do not fit in memory together: they need");
    expect(said).toMatch(/\(tale [\d.]+ \w+, other [\d.]+ \w+;/);
    expect(said).toContain("Serve fewer");
  });

  test.each(["run", "chat", "bench", "tune", "verify", "tokenize", "perplexity"])(
    "%s takes one model",
    async (command) => {
      const said = await refusal([command, "-m", "one", "-m", "two"]);
      expect(said).toContain("given twice, first as 'one'");
    },
  );
});
