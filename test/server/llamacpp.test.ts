// llama.cpp's endpoints, and /metrics.
// Held against: the calls of the model itself, in the fields of llama.cpp.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { modelId, post, prompt, type TestServer, testServer, until } from "./test-server.ts";

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

async function ask(path: string, body: object): Promise<Record<string, unknown>> {
  const response = await post(url + path, body);
  expect(response.status).toBe(200);
  return (await response.json()) as Record<string, unknown>;
}

describe("llama.cpp's", () => {
  test("/tokenize and /detokenize are each other's inverse", async () => {
    const { tokens } = await ask("/tokenize", { content: prompt });
    expect(tokens).toEqual(await running.model.tokenize(prompt, { addBos: false }));
    expect(await ask("/detokenize", { tokens })).toEqual({ content: prompt });
    const special = await ask("/tokenize", { content: prompt, add_special: true });
    expect(special.tokens).toEqual(await running.model.tokenize(prompt));
    const withPieces = await ask("/tokenize", { content: prompt, with_pieces: true });
    const pieces = (withPieces.tokens as { piece: string }[]).map(({ piece }) => piece);
    expect(pieces.join("").trimStart()).toBe(prompt); // spaces included
  });

  test("/apply-template", async () => {
    const body = await ask("/apply-template", { messages: [{ role: "user", content: prompt }] });
    expect(body).toEqual({ prompt, template: [] });
  });

  test("/completion, whole and streamed", async () => {
    const fields = { prompt, n_predict: 8, temperature: 0 };
    const { result } = running.model.generate(prompt, { temperature: 0, maxTokens: 8 });
    const { text, tokenIds } = await result;
    const whole = await ask("/completion", { ...fields, return_tokens: true });
    expect(whole).toMatchObject({
      content: text,
      tokens: tokenIds,
      stop: true,
      stop_type: "limit",
      tokens_predicted: 8,
      tokens_evaluated: 5,
      truncated: false,
      timings: { predicted_n: 8 },
    });
    const { prompt_n, cache_n } = whole.timings as { prompt_n: number; cache_n: number };
    expect(prompt_n + cache_n).toBe(5);
    const stream = await post(`${url}/completion`, { ...fields, stream: true });
    const events = (await stream.text())
      .trim()
      .split("\n\n")
      .map(
        (event) => JSON.parse(event.replace("data: ", "")) as { content: string; stop: boolean },
      );
    expect(events.map(({ content }) => content).join("")).toBe(text);
    expect(events.at(-1)).toMatchObject({ stop: true, tokens_predicted: 8 });
  });

  test("/health, /props and /slots", async () => {
    expect(await (await fetch(`${url}/health`)).json()).toEqual({ status: "ok" });
    expect(await (await fetch(`${url}/props`)).json()).toMatchObject({
      total_slots: 8,
      model_alias: modelId,
      default_generation_settings: { n_ctx: running.model.info.contextSize },
    });
    expect(await (await fetch(`${url}/props`)).text()).not.toMatch(/\/(home|root|tmp|Users)\//);
    const stream = await post(`${url}/completion`, { prompt, stream: true, ignore_eos: true });
    const slots = (await (await fetch(`${url}/slots`)).json()) as { is_processing: boolean }[];
    expect(slots).toHaveLength(8);
    expect(slots.filter((slot) => slot.is_processing)).toMatchObject([
      { model: modelId, route: "/completion", n_prompt_tokens: 5 },
    ]);
    await stream.body!.cancel();
  });
});

describe("/metrics", () => {
  const numbers = async (): Promise<Map<string, number>> => {
    const response = await fetch(`${url}/metrics`);
    expect(response.headers.get("content-type")).toContain("text/plain");
    const lines = (await response.text()).trim().split("\n");
    // Prometheus' text: comments, or a name with labels and a number.
    for (const line of lines) {
      expect(line).toMatch(
        /^(# (HELP|TYPE) (lantern_|llamacpp:|vllm:)\w+ .+|(lantern_|llamacpp:|vllm:)\w+(\{[^{}]*(\{[^{}]*\})?[^{}]*\})? [\d.e+-]+)$/,
      );
    }
    const values = lines.filter((line) => !line.startsWith("#"));
    return new Map(
      values.map((line) => {
        const at = line.lastIndexOf(" ");
        return [line.slice(0, at), Number(line.slice(at + 1))];
      }),
    );
  };

  test("vLLM's names for what runs, waits and is reserved", async () => {
    await until("nothing runs", () => running.server.context.queue.running === 0);
    const of = (all: Map<string, number>, name: string): number | undefined =>
      all.get(`vllm:${name}{model_name="${modelId}"}`);
    expect(of(await numbers(), "num_requests_running")).toBe(0);
    expect(of(await numbers(), "kv_cache_usage_perc")).toBe(0); // kept prefixes do not count
    // One generation after the other, until one is seen.
    let isSeen = false;
    const working = (async () => {
      const body = JSON.stringify({ prompt, n_predict: 100, ignore_eos: true });
      while (!isSeen) await (await fetch(`${url}/completion`, { method: "POST", body })).json();
    })();
    let during = await numbers();
    while (of(during, "num_requests_running") !== 1) during = await numbers();
    isSeen = true;
    expect(of(during, "num_requests_waiting")).toBe(0);
    expect(of(during, "kv_cache_usage_perc")).toBeGreaterThan(0);
    expect(of(during, "kv_cache_usage_perc")).toBeLessThanOrEqual(1);
    const info = [...during.keys()].find((key) => key.startsWith("vllm:cache_config_info"));
    expect(info).toContain('block_size="32"');
    await working;
  });

  test("drafted tokens: the same text, counted as the timings say", async () => {
    await until("nothing runs", () => running.server.context.queue.running === 0);
    const before = await numbers();
    const fields = { prompt, n_predict: 60, temperature: 0, ignore_eos: true };
    const timingsOf = ({ timings }: Record<string, unknown>) => timings as Record<string, number>;
    const alone = await ask("/completion", { ...fields, "speculative.n_max": 0 });
    expect(timingsOf(alone).draft_n).toBeUndefined();
    expect(alone.generation_settings).toMatchObject({ "speculative.types": "none" });
    const drafted = await ask("/completion", { ...fields, "speculative.n_max": 99 });
    expect(drafted.content).toBe(alone.content);
    expect(drafted.generation_settings).toMatchObject({ "speculative.types": "ngram-simple" });
    // Whether drafts pay depends on this machine.
    const { draft_n = 0, draft_n_accepted = 0 } = timingsOf(drafted);
    expect(draft_n_accepted).toBeLessThanOrEqual(draft_n);
    const never = { ...fields, "speculative.p_min": 1, "speculative.n_min": 31 };
    expect(timingsOf(await ask("/completion", never)).draft_n).toBeUndefined();
    const after = await numbers();
    const grown = (name: string): number => after.get(name)! - before.get(name)!;
    expect(grown("lantern_drafted_tokens_total")).toBe(draft_n);
    expect(grown("lantern_accepted_tokens_total")).toBe(draft_n_accepted);
    expect(grown("llamacpp:spec_decode_num_draft_tokens_total")).toBe(draft_n);
    const wrong = await post(`${url}/completion`, { ...fields, "speculative.p_min": 2 });
    expect(wrong.status).toBe(400);
  });

  test("counts requests, tokens and times", async () => {
    await until("nothing runs", () => running.server.context.queue.running === 0);
    const before = await numbers();
    await ask("/v1/completions", { prompt, max_tokens: 7, ignore_eos: true });
    await post(`${url}/v1/completions`, {});
    const after = await numbers();
    const grown = (name: string): number => (after.get(name) ?? 0) - (before.get(name) ?? 0);
    const requests = (status: number): string =>
      `lantern_requests_total{route="/v1/completions",method="POST",status="${status}"}`;
    expect(grown(requests(200))).toBe(1);
    expect(grown(requests(400))).toBe(1);
    expect(grown("lantern_prompt_tokens_total")).toBe(5);
    expect(grown("lantern_generated_tokens_total")).toBe(7);
    expect(grown("lantern_time_to_first_token_seconds_count")).toBe(1);
    expect(grown('lantern_time_per_token_seconds_bucket{le="+Inf"}')).toBe(1);
    expect(grown("lantern_time_to_first_token_seconds_sum")).toBeGreaterThan(0);
    expect(after.get("lantern_running")).toBe(0);
    expect(after.get("lantern_parallel")).toBe(8);
    const blocks = after.get(`lantern_kv_blocks{model="${modelId}"}`)!;
    expect(blocks * 32).toBe(running.model.info.cacheTokens);
    const used = after.get(`lantern_kv_blocks_used{model="${modelId}"}`)!;
    expect(used).toBeGreaterThan(0);
    expect(used).toBeLessThanOrEqual(blocks);
  });
});
