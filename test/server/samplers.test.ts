// The samplers over HTTP: every field reaches the engine, and asks for nothing at its default.

import { afterAll, beforeAll, expect, test } from "vitest";
import { modelId, post, prompt, type TestServer, testServer } from "./test-server.ts";

let running: TestServer;
let url: string;

beforeAll(async () => {
  running = await testServer();
  url = running.server.url;
});

afterAll(async () => {
  await running.close();
  expect(running.log).toEqual([]);
});

async function text(fields: object, path = "/completion"): Promise<string> {
  const body = { prompt, n_predict: 24, seed: 4, ignore_eos: true, ...fields };
  const response = await post(url + path, body);
  const answer = (await response.json()) as { content: string; error?: { message: string } };
  expect(answer.error).toBeUndefined();
  return answer.content;
}

const open = { temperature: 1.5, top_k: 0, top_p: 1, min_p: 0 };

test.each([
  { top_n_sigma: 1 },
  { xtc_probability: 1, xtc_threshold: 0.05 },
  { mirostat: 1, mirostat_tau: 2 },
  { mirostat: 2, mirostat_tau: 2, mirostat_eta: 0.2 },
  { dynatemp_range: 1.4, dynatemp_exponent: 2 },
  { dry_multiplier: 4, dry_base: 2, dry_allowed_length: 0, dry_sequence_breakers: ["zz"] },
  { typical_p: 0.3 },
  { top_p: 0.2, samplers: ["temperature", "top_p"] },
  { top_k: 1, samplers: "k" },
])("%j: the same text with the same seed, another than without it", async (fields) => {
  const first = await text({ ...open, ...fields });
  expect(await text({ ...open, ...fields })).toBe(first);
  expect(first).not.toBe(await text(open));
});

test("at their defaults they change nothing", async () => {
  const defaults = {
    top_n_sigma: -1,
    xtc_probability: 0,
    xtc_threshold: 0.1,
    mirostat: 0,
    mirostat_tau: 5,
    mirostat_eta: 0.1,
    dynatemp_range: 0,
    dynatemp_exponent: 1,
    dry_multiplier: 0,
    dry_base: 1.75,
    dry_allowed_length: 2,
    dry_penalty_last_n: 64,
    dry_sequence_breakers: ["\n", ":", '"', "*"],
    samplers: "edskypmxt",
    min_keep: 0,
  };
  expect(await text(defaults)).toBe(await text({}));
});

test("what they are not is refused", async () => {
  for (const [field, value] of Object.entries({
    mirostat: 3,
    xtc_probability: 2,
    dry_multiplier: -1,
    dry_sequence_breakers: [""],
    samplers: ["top_q"],
  })) {
    const response = await post(`${url}/completion`, { prompt, [field]: value });
    expect(response.status).toBe(400);
    expect(await response.text()).toContain(field);
  }
});

test("Ollama's options have them, too", async () => {
  const ask = async (options: object): Promise<string> => {
    const body = { model: modelId, prompt, raw: true, stream: false };
    const all = { num_predict: 20, seed: 3, ...open, ...options };
    const response = await post(`${url}/api/generate`, { ...body, options: all });
    return ((await response.json()) as { response: string }).response;
  };
  expect(await ask({ mirostat: 2, mirostat_tau: 1 })).not.toBe(await ask({}));
});
