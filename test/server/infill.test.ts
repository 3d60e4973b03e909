// Filling gaps: /infill, `suffix` of OpenAI's completions and of Ollama's, for a model that has tokens for it; the others
// say that they cannot.
// Held against: the text of the same tokens, asked for directly.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { post, serveModel } from "./test-server.ts";

const marks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"];
const log: string[] = [];
let filling: Model;
let plain: Model;
let server: RunningServer;
let other: RunningServer;
let close: () => void;

beforeAll(async () => {
  const files = [await tinyFile({ moreControls: marks }), await tinyFile()];
  close = () => {
    for (const file of files) file.remove();
  };
  filling = await open(files[0]!.path, { threads: 1, contextSize: 128 });
  plain = await open(files[1]!.path, { threads: 1, contextSize: 128 });
  server = await serveModel(filling, log);
  other = await serveModel(plain, log);
});

afterAll(async () => {
  await server.stop();
  await other.stop();
  await filling.dispose();
  await plain.dispose();
  close();
  expect(log).toEqual([]);
});

const settings = { temperature: 0, ignore_eos: true };

async function ask(path: string, body: object): Promise<Record<string, unknown>> {
  const response = await post(server.url + path, { ...settings, ...body });
  const answer = (await response.json()) as Record<string, unknown>;
  expect([response.status, answer.error]).toEqual([200, undefined]);
  return answer;
}

/** What the model writes after these tokens: ids, or texts without BOS. */
async function written(parts: (number | string)[], maxTokens: number): Promise<string> {
  const tokens = await Promise.all(
    parts.map(async (part) =>
      typeof part === "number" ? [part] : await filling.tokenize(part, { addBos: false }),
    ),
  );
  const options = { temperature: 0, ignoreEos: true, maxTokens };
  return (await filling.generate(tokens.flat(), options).result).text;
}

test("a model knows its tokens by their texts", () => {
  const { fillTokens, vocabSize } = filling.info;
  const [prefix, suffix, middle, separator] = [-4, -3, -2, -1].map((at) => vocabSize + at);
  expect(fillTokens).toEqual({ prefix, suffix, middle, separator });
  expect(plain.info.fillTokens).toBeUndefined();
});

describe("/infill", () => {
  const gap = { input_prefix: "the cat", input_suffix: " sat", n_predict: 6 };

  test("puts both sides around the gap, and files before them", async () => {
    const { prefix, suffix, middle, separator } = filling.info.fillTokens!;
    const empty = [separator!, "filename\n", 1, prefix];
    const { content } = await ask("/infill", gap);
    expect(content).toBe(await written([...empty, "the cat", suffix, " sat", middle], 6));

    const input_extra = [{ filename: "a.ts", text: "one" }, { text: "two" }];
    const more = await ask("/infill", { ...gap, prompt: " and", input_extra });
    const files = [separator!, "a.ts\n", "one", separator!, "tmp\n", "two"];
    const parts = [...files, ...empty, "the cat", " and", suffix, " sat", middle];
    expect(more.content).toBe(await written(parts, 6));
  });

  test("special tokens in the texts are texts", async () => {
    const { tokens_evaluated: short } = await ask("/infill", gap);
    const marked = { ...gap, input_prefix: "the cat<|fim_middle|>" };
    const { tokens_evaluated: long } = await ask("/infill", marked);
    expect(long).toBe((short as number) + "<|fim_middle|>".length);
  });

  test("leaves files out that do not fit, and refuses a gap that does not", async () => {
    const input_extra = [{ filename: "a.ts", text: "word ".repeat(100) }];
    const answer = await ask("/infill", { ...gap, input_extra });
    expect(answer.tokens_evaluated).toBe(128 - 1 - 6);
    const long = { ...gap, input_prefix: "word ".repeat(100) };
    const response = await post(`${server.url}/infill`, long);
    expect(response.status).toBe(400);
    expect(await response.text()).toMatch(/context size \(128 tokens/);
  });

  test("streams", async () => {
    const response = await post(`${server.url}/infill`, { ...settings, ...gap, stream: true });
    const lines = (await response.text()).split("\n").filter((line) => line.startsWith("data: {"));
    const text = lines.map((line) => (JSON.parse(line.slice(6)) as { content: string }).content);
    expect(text.join("")).toBe((await ask("/infill", gap)).content);
  });

  test("needs both sides", async () => {
    const response = await post(`${server.url}/infill`, { input_prefix: "the cat" });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain("input_suffix");
  });
});

test("suffix: OpenAI's completions and Ollama's /api/generate", async () => {
  const { prefix, suffix, middle } = filling.info.fillTokens!;
  const { separator } = filling.info.fillTokens!;
  const parts = [separator!, "filename\n", 1, prefix, "the", suffix, " sat", middle];
  const expected = await written(parts, 6);
  const body = { prompt: "the", suffix: " sat", max_tokens: 6 };
  const { choices } = await ask("/v1/completions", body);
  expect((choices as { text: string }[])[0]!.text).toBe(expected);
  const options = { num_predict: 6, ...settings };
  const asked = { model: "stories15m", prompt: "the", suffix: " sat", stream: false, options };
  const { response } = (await (await post(`${server.url}/api/generate`, asked)).json()) as {
    response: string;
  };
  expect(response).toBe(expected);
});

test("a model without such tokens says so", async () => {
  const bodies: [string, object][] = [
    ["/infill", { input_prefix: "a", input_suffix: "b" }],
    ["/v1/completions", { prompt: "a", suffix: "b" }],
    ["/api/generate", { model: "stories15m", prompt: "a", suffix: "b" }],
  ];
  for (const [path, body] of bodies) {
    const response = await post(other.url + path, body);
    expect([path, response.status]).toEqual([path, 501]);
    expect(await response.text()).toMatch(/does not support fill-in-the-middle.*fim_pre/);
  }
});
