// ignore_eos: a model that would end at once writes on, in every protocol that has the field, in batches, and for "lantern bench serve".
// The server's own bias makes the end certain otherwise.

import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { post, prompt, type TestServer, testServer } from "./test-server.ts";

let running: TestServer;

beforeAll(async () => {
  running = await testServer({ sampling: { logitBias: { 1: 1000, 2: 1000 }, temperature: 0 } });
});

afterAll(async () => {
  await running.close();
  expect(running.log).toEqual([]);
});

type Json = Record<string, unknown>;

async function ask(path: string, body: object): Promise<Json> {
  const response = await post(running.server.url + path, { model: "stories15m", ...body });
  expect(response.status).toBe(200);
  return (await response.json()) as Json;
}

const at = (body: unknown, path: string): unknown =>
  path.split(".").reduce((inner: unknown, key) => (inner as Json)[key], body);

const messages = [{ role: "user", content: prompt }];
const asked: readonly (readonly [path: string, body: object, text: string, count: string])[] = [
  ["/completion", { prompt, n_predict: 12 }, "content", "tokens_predicted"],
  ["/v1/completions", { prompt, max_tokens: 12 }, "choices.0.text", "usage.completion_tokens"],
  [
    "/v1/chat/completions",
    { messages, max_tokens: 12 },
    "choices.0.message.content",
    "usage.completion_tokens",
  ],
  [
    "/v1/responses",
    { input: prompt, max_output_tokens: 12 },
    "output.0.content.0.text",
    "usage.output_tokens",
  ],
  [
    "/api/generate",
    { prompt, stream: false, options: { num_predict: 12, ignore_eos: true } },
    "response",
    "eval_count",
  ],
  [
    "/api/chat",
    { messages, stream: false, options: { num_predict: 12, ignore_eos: true } },
    "message.content",
    "eval_count",
  ],
];

test.each(asked)("%s", async (path, body, text, count) => {
  if (!path.startsWith("/api/")) expect(at(await ask(path, body), count)).toBe(0);
  const whole = await ask(path, { ...body, ignore_eos: true });
  expect(at(whole, text)).toMatch(/\w{3}/);
  expect(at(whole, count)).toBe(12);
});

test("with a bias of the request's own, drawn, with log-probabilities, and with Mirostat", async () => {
  const fields = { prompt, n_predict: 12, ignore_eos: true, seed: 3, return_tokens: true };
  for (const more of [
    { logit_bias: [[2, 1000]], temperature: 1.5 },
    { n_probs: 2 },
    { mirostat: 2, temperature: 1 },
    { samplers: ["temperature"], temperature: 5 },
  ]) {
    const { tokens } = await ask("/completion", { ...fields, ...more });
    expect(tokens).toHaveLength(12);
    expect(tokens).not.toContain(2);
    expect(tokens).not.toContain(1);
  }
});

test("with a grammar, which ends where nothing else may follow", async () => {
  const fields = { prompt, n_predict: 12, ignore_eos: true };
  const open = await ask("/completion", { ...fields, grammar: 'root ::= "ab" [a-z]*' });
  expect(open.tokens_predicted).toBe(12);
  const closed = await ask("/completion", { ...fields, grammar: 'root ::= "ab"' });
  expect(closed).toMatchObject({ content: "ab", stop_type: "eos" });
  // An end token that the grammar itself names has no other in its place.
  const body = { ...fields, grammar: 'root ::= "ab" <[2]> "c"' };
  const refused = await post(`${running.server.url}/completion`, body);
  expect(refused.status).toBe(400);
  expect(await refused.text()).toContain("ignore_eos");
});

test("lantern bench serve measures whole answers", async () => {
  const terminal = new FakeTerminal();
  const flags = ["--users", "1,2", "-p", "20", "-n", "6", "-r", "1", "--json"];
  const args = ["bench", "serve", "--url", running.server.url, ...flags];
  expect(await main(args, terminal, nodeDownloadPlatform({})), terminal.stderr).toBe(0);
  const { results } = JSON.parse(terminal.stdout) as { results: { counted: object }[] };
  expect(results.map(({ counted }) => counted)).toMatchObject([
    { answer_tokens: 6 },
    { answer_tokens: 6 },
  ]);
});
