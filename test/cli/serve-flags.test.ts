// lantern serve's flags for llama.cpp's clients reach the server.
// Held against: the settings that the server reports.

import { expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { post, until } from "../server/test-server.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const messages = [{ role: "user", content: "the cat" }];

async function serve(flags: string[], files: Record<string, string> = {}) {
  const file = await tinyFile();
  const terminal = new FakeTerminal();
  terminal.environment = { LANTERN_NO_LIMIT: "1", LANTERN_NO_TUNE: "1" };
  for (const [path, text] of Object.entries(files)) terminal.files.set(path, text);
  const common = ["-m", file.path, "-a", "tiny", "--port", "0", "--no-sessions", "--no-web"];
  const ended = main(["serve", ...common, "--threads", "1", ...flags], terminal);
  await until("the server is there", () => terminal.stdout.includes("Ctrl-C stops it"));
  const url = /served at (\S+)/.exec(terminal.stdout)![1]!;
  const stop = async (): Promise<void> => {
    terminal.pressCtrlC();
    expect(await ended).toBe(0);
    file.remove();
  };
  return { url, stop };
}

test("names, slots, metrics, thinking, a template's file, origins", async () => {
  const source = "{{ messages[0].content }} {{ enable_thinking }}";
  const { url, stop } = await serve(
    [
      ...["--strict-model", "--no-slots", "--no-metrics", "--verbose", "--cors", "localhost"],
      ...["--reasoning", "off", "--chat-template-file", "mine.jinja"],
    ],
    { "mine.jinja": source },
  );
  const status = async (path: string, headers: Record<string, string> = {}): Promise<number> =>
    (await fetch(url + path, { headers })).status;
  expect(await status("/slots")).toBe(501);
  expect(await status("/metrics")).toBe(501);
  expect(await status("/props", { origin: "http://localhost:5173" })).toBe(200);
  expect(await status("/props", { origin: "https://example.org" })).toBe(403);
  const props = (await (await fetch(`${url}/props`)).json()) as Record<string, unknown>;
  expect(props).toMatchObject({ chat_template: source, endpoint_slots: false });
  expect(props.model_path).toMatch(/^[^/\\]+\.gguf$/); // a file, not a folder
  const prompt = await (await post(`${url}/apply-template`, { messages })).json();
  expect(prompt).toEqual({ prompt: "the cat False", template: [7, 8] }); // the message's words are not the template's
  const chat = { messages, max_tokens: 1 };
  const answer = await (await post(`${url}/chat/completions`, { ...chat, model: "tiny" })).json();
  expect(answer).toHaveProperty("__verbose.prompt");
  expect((await post(`${url}/chat/completions`, { ...chat, model: "other" })).status).toBe(404);
  await stop();
});

test("without them, everything is told, and any name is answered", async () => {
  const { url, stop } = await serve([]);
  expect((await fetch(`${url}/slots`)).status).toBe(200);
  expect((await fetch(`${url}/metrics`)).status).toBe(200);
  const response = await post(`${url}/completion`, { model: "x", prompt: "the", n_predict: 1 });
  expect(await response.json()).toMatchObject({ model: "tiny" });
  await stop();
});

test("a template and a file of one are one too many", async () => {
  const terminal = new FakeTerminal();
  const flags = ["--chat-template", "chatml", "--chat-template-file", "mine.jinja"];
  expect(await main(["serve", ...flags], terminal)).not.toBe(0);
  expect(terminal.stderr).toContain("got both --chat-template and --chat-template-file");
});

test("--embedding: nothing is generated; --rerank needs a model that can", async () => {
  const { url, stop } = await serve(["--embedding", "--pooling", "last"]);
  expect((await post(`${url}/completion`, { prompt: "the", n_predict: 1 })).status).toBe(501);
  const vectors = async (body: object): Promise<unknown> =>
    await (await post(`${url}/embedding`, { input: "the cat", ...body })).json();
  expect(await vectors({})).toEqual(await vectors({ pooling: "last" }));
  expect(await vectors({})).not.toEqual(await vectors({ pooling: "mean" }));
  await stop();
  const file = await tinyFile();
  const terminal = new FakeTerminal();
  const common = ["-m", file.path, "--port", "0", "--no-sessions", "--no-web", "--threads", "1"];
  expect(await main(["serve", ...common, "--rerank"], terminal)).toBe(2);
  expect(terminal.stderr).toContain("serve: --reranking: tiny has no classifier");
  const both = ["--reranking", "--pooling", "cls"];
  expect(await main(["serve", ...common, ...both], terminal)).toBe(2);
  expect(terminal.stderr).toContain("got both --reranking and --pooling cls");
  file.remove();
});
