// What llama.cpp's clients expect beyond the text: its server's own tests, as ours. Fields, shapes, progress, errors, and
// what a request may leave out.

import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { modelId, post, prompt, serveModel } from "./test-server.ts";

type Json = Record<string, unknown>;
let model: Model;
let server: RunningServer;
let url: string;
const log: string[] = [];
const messages = [{ role: "user", content: prompt }];
const greedy = { temperature: 0, n_predict: 4 };

beforeAll(async () => {
  model = await open(modelId, { threads: 1, parallel: 4, chatTemplate: "chatml" });
  server = await serveModel(model, log, { parallel: 2, files: { [modelId]: "tiny.gguf" } });
  url = server.url;
});

afterAll(async () => {
  await server.stop();
  await model.dispose();
  expect(log).toEqual([]);
});

async function ask<T = Json>(path: string, body: object, status: number = 200): Promise<T> {
  const response = await post(url + path, body);
  const text = await response.text();
  expect(response.status, text.slice(0, 500)).toBe(status);
  return JSON.parse(text) as T;
}

async function stream(path: string, body: object): Promise<Json[]> {
  const response = await post(url + path, { ...body, stream: true });
  const text = await response.text();
  expect(response.status, text.slice(0, 500)).toBe(200);
  return text
    .split("\n")
    .filter((line) => line.startsWith("data: {"))
    .map((line) => JSON.parse(line.slice(6)) as Json);
}

describe("/completion", () => {
  test("says what it was asked to do", async () => {
    const answer = await ask("/completion", {
      prompt,
      ...greedy,
      seed: 7,
      stop: ["zebra"],
      ignore_eos: true,
    });
    expect(answer.generation_settings).toMatchObject({
      seed: 7,
      temperature: 0,
      top_k: 40,
      n_predict: 4,
      max_tokens: 4,
      stop: ["zebra"],
      logit_bias: model.info.endTokens.map((token) => ({ bias: null, token })),
    });
    expect(answer).toMatchObject({ prompt: `<s> ${prompt}`, id_slot: 0, truncated: false });
    const plain = await ask("/completion", { prompt, ...greedy });
    expect(plain.generation_settings).toMatchObject({ logit_bias: [], seed: 4294967295 });
  });

  test("only the fields that were asked for", async () => {
    const response_fields = ["content", "generation_settings/n_predict", "prompt", "nothing/here"];
    const answer = await ask("/completion", { prompt, ...greedy, response_fields });
    expect(answer).toEqual({
      content: expect.any(String),
      "generation_settings/n_predict": 4,
      prompt: `<s> ${prompt}`,
    });
    const all = await ask("/completion", { prompt, ...greedy, response_fields: [] });
    expect(all).toHaveProperty("generation_settings");
  });

  test("prompts of tokens, of both, in an object, and several of them", async () => {
    const tokens = await model.tokenize(prompt);
    const { content } = await ask("/completion", { prompt, ...greedy });
    const list = [tokens, prompt, { prompt_string: prompt }, [tokens[0], ...tokens.slice(1)]];
    const answers = await ask<Json[]>("/completion", { prompt: list, ...greedy });
    expect(answers.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    for (const answer of answers) expect(answer.content).toBe(content);
    expect(await ask<Json[]>("/completion", { prompt: [prompt], ...greedy })).toHaveLength(1);
    const mixed = await ask("/completion", { prompt: [1, 2, prompt, 3, prompt], ...greedy });
    const rest = await model.tokenize(prompt, { addBos: false });
    expect(mixed.tokens_evaluated).toBe(3 + 2 * rest.length); // no BOS in the middle
    const events = await stream("/completion", { prompt: [prompt, tokens], ...greedy });
    expect(events.filter(({ stop }) => stop).map(({ index }) => index)).toEqual([0, 1]);
    const image = { prompt_string: prompt, multimodal_data: ["aGk="] };
    await ask("/completion", { prompt: image }, 400);
    await ask("/completion", { prompt: [] }, 400);
  });

  test("log-probabilities have ids and bytes", async () => {
    const { completion_probabilities } = await ask("/completion", {
      prompt,
      ...greedy,
      n_probs: 3,
    });
    const list = completion_probabilities as (Json & { top_logprobs: Json[] })[];
    expect(list).toHaveLength(4);
    for (const one of list) {
      expect(one.top_logprobs).toHaveLength(3);
      for (const { id, token, bytes, logprob } of [one, ...one.top_logprobs]) {
        expect(id).toBeGreaterThan(0);
        expect(logprob).toBeLessThanOrEqual(0);
        expect(bytes).toEqual([...new TextEncoder().encode(token as string)]);
      }
    }
    const events = await stream("/completion", { prompt, ...greedy, n_probs: 3 });
    for (const event of events.filter(({ stop }) => !stop)) {
      expect(event.completion_probabilities).toHaveLength(1);
      expect(event).toMatchObject({ tokens_evaluated: 5, id_slot: 0 });
    }
  });

  test("probabilities that were drawn from, after all samplers", async () => {
    const body = { prompt, n_predict: 3, n_probs: 5, post_sampling_probs: true, top_k: 3, seed: 1 };
    const { completion_probabilities } = await ask("/completion", { ...body, temperature: 2 });
    const list = completion_probabilities as { id: number; prob: number; top_probs: Json[] }[];
    expect(list).toHaveLength(3);
    for (const { id, prob, top_probs } of list) {
      expect(top_probs.length).toBeLessThanOrEqual(3); // no others could have been drawn
      expect(top_probs.find((one) => one.id === id)!.prob).toBe(prob);
      const sum = top_probs.reduce((total, one) => total + (one.prob as number), 0);
      expect(sum).toBeCloseTo(1, 5);
    }
    const sure = await ask("/completion", { ...body, temperature: 0 });
    expect((sure.completion_probabilities as Json[])[0]).toMatchObject({
      prob: 1,
      top_probs: [{ prob: 1 }],
    });
  });

  test("biases by text, in both forms", async () => {
    const { content } = await ask<{ content: string }>("/completion", { prompt, ...greedy });
    const word = /^[ ,]*(\S+)/.exec(content)![1]!;
    for (const logit_bias of [{ [word]: false }, [[word, -100]], [[` ${word}`, false]]]) {
      const other = await ask<{ content: string }>("/completion", {
        prompt,
        ...greedy,
        logit_bias,
      });
      expect(other.content).not.toContain(word);
    }
  });

  test("-1 tokens are as many as fit; the text is cut, and says so", async () => {
    const size = model.info.contextSize;
    const long = await model.tokenize(`${prompt} `.repeat(size));
    const body = { prompt: long.slice(0, size - 3), n_predict: -1, ignore_eos: true };
    expect(await ask("/completion", body)).toMatchObject({ truncated: true, stop_type: "limit" });
    const chat = { messages, max_tokens: -1, stop: ["a"] };
    expect(await ask("/v1/chat/completions", chat)).toHaveProperty("usage");
  });
});

describe("streams", () => {
  test("progress of the prompt, and timings of every token", async () => {
    const long = `${Math.random()} ${prompt} `.repeat(8); // not in the cache
    const fields = { prompt: long, ...greedy, return_progress: true, timings_per_token: true };
    const events = await stream("/completion", fields);
    const progress = events.flatMap(({ prompt_progress: one }) => (one ? [one as Json] : []));
    expect(progress.length).toBeGreaterThan(1);
    expect(progress[0]!.processed).toBe(progress[0]!.cache); // BOS maybe
    expect(progress.at(-1)!.processed).toBe(progress[0]!.total);
    expect(events[0]!.timings).toMatchObject({ prompt_n: 0, prompt_ms: 0, predicted_n: 0 });
    const written = events.filter(({ stop, prompt_progress: p }) => !stop && !p);
    expect(written.map(({ timings }) => (timings as Json).predicted_n)).toEqual([1, 2, 3, 4]);
    const silent = await stream("/completion", { ...fields, return_progress: false });
    expect(silent.every(({ prompt_progress: p }) => p === undefined)).toBe(true);
    expect(silent[0]).toHaveProperty("timings.predicted_n", 1);
  });

  test("of a chat: the role comes first, with no content", async () => {
    const [first, ...rest] = await stream("/chat/completions", {
      messages,
      max_tokens: 3,
      return_progress: true,
      timings_per_token: true,
      stream_options: { include_usage: true },
    });
    expect(first).toMatchObject({
      choices: [{ delta: { role: "assistant", content: null } }],
      system_fingerprint: expect.stringMatching(/^b0-lantern/),
    });
    expect(first).not.toHaveProperty("timings");
    expect(rest[0]).toHaveProperty("prompt_progress.total");
    for (const { choices } of rest) {
      for (const { delta } of choices as { delta: Json }[])
        expect(delta).not.toHaveProperty("role");
    }
    expect(rest.at(-1)).toMatchObject({ choices: [], timings: { predicted_n: 3 } });
  });

  test("of /v1/completions and /responses, the same", async () => {
    const fields = { return_progress: true, timings_per_token: true, max_output_tokens: 3 };
    const events = await stream("/responses", { input: prompt, ...fields });
    const inProgress = events.find((event) => "prompt_progress" in event)!;
    expect(inProgress.type).toBe("response.in_progress");
    const delta = events.find(({ type }) => type === "response.output_text.delta")!;
    expect(delta).toHaveProperty("timings.predicted_per_second");
    expect(events.at(-1)).toHaveProperty("timings.predicted_n", 3);
    const more = { prompt, max_tokens: 3, return_progress: true, timings_per_token: true };
    const chunks = await stream("/v1/completions", more);
    expect(chunks[0]).toHaveProperty("prompt_progress.total", 5);
    expect(chunks.at(-2)).toHaveProperty("timings.predicted_n", 3);
  });
});

describe("chats", () => {
  const system = { role: "system", content: "Book" };
  const promptFor = async (body: object): Promise<string> => {
    const answer = await ask("/chat/completions", { max_tokens: 1, verbose: true, ...body });
    return (answer.__verbose as { prompt: string }).prompt;
  };

  test("text parts are lines, null is no text", async () => {
    const parts = [
      { type: "text", text: "What is" },
      { type: "text", text: "the best" },
    ];
    const asked = [system, { role: "user", content: parts }];
    expect(await promptFor({ messages: asked })).toContain("user\nWhat is\nthe best<|im_end|>");
    const begun = [...asked, { role: "assistant", content: parts }];
    expect(await promptFor({ messages: begun })).toMatch(/assistant\nWhat is\n\nthe best$/);
    const silent = [{ role: "assistant", content: null }, ...messages];
    expect(await promptFor({ messages: silent })).toContain("assistant\n<|im_end|>");
    await ask("/chat/completions", { messages: [{ role: "user" }] }, 400);
  });

  test("an answer that was begun goes on, said or not", async () => {
    const begun = [...messages, { role: "assistant", content: "Whill" }];
    const usual = await promptFor({ messages: begun });
    expect(usual).toMatch(/assistant\nWhill$/);
    const said = { continue_final_message: true, add_generation_prompt: false };
    expect(await promptFor({ messages: begun, ...said })).toBe(usual);
    const ended = await promptFor({ messages: begun, continue_final_message: false });
    expect(ended).toMatch(/Whill<\|im_end\|>\n<\|im_start\|>assistant\n$/);
    const both = { continue_final_message: true, add_generation_prompt: true };
    await ask("/chat/completions", { messages: begun, ...both }, 400);
    await ask("/chat/completions", { messages, continue_final_message: true }, 400);
    const twice = [...begun, { role: "assistant", content: "x" }];
    await ask("/chat/completions", { messages: twice }, 400);
  });

  test("__verbose on request only, and everywhere where the server was started so", async () => {
    const body = { messages, max_tokens: 1 };
    expect(await ask("/chat/completions", body)).not.toHaveProperty("__verbose");
    const completion = { prompt, max_tokens: 1, verbose: true };
    expect(await ask("/v1/completions", completion)).toHaveProperty(
      "__verbose.prompt",
      `<s> ${prompt}`,
    );
    const talkative = await serveModel(model, log, { verbose: true });
    const response = await post(`${talkative.url}/chat/completions`, body);
    expect(await response.json()).toHaveProperty("__verbose.generation_settings");
    await talkative.stop();
  });

  test("tools may be there, also for a template that knows none, and if none may be called", async () => {
    const tools = [{ type: "function", function: { name: "f", parameters: {} } }];
    await ask("/chat/completions", { messages, max_tokens: 1, tools });
    await ask("/chat/completions", { messages, max_tokens: 1, tools: [], store: false });
    await ask("/chat/completions", { messages, max_tokens: 1, tools, tool_choice: "none" });
  });

  test("the length of a prompt, without an answer", async () => {
    for (const [path, body] of [
      ["/chat/completions/input_tokens", { messages }],
      ["/v1/responses/input_tokens", { input: prompt }],
    ] as const) {
      const { input_tokens } = await ask(path, body);
      expect(input_tokens).toBeGreaterThan(5);
    }
  });
});

describe("templates", () => {
  const source =
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ m.reasoning_content }}{% for c in m.tool_calls %}{{ c.function.arguments.a }}{% endfor %}]{% endfor %}" +
    "{% for t in tools %}{{ t.name }}{% endfor %}{% if add_generation_prompt %}>{% endif %}{{ enable_thinking }}{{ mood }}{{ reasoning_effort }}";
  let own: Model;
  let template: RunningServer;
  let render: (body: object, base?: string) => Promise<string>;

  beforeAll(async () => {
    own = await open(modelId, { threads: 1, chatTemplate: source });
    template = await serveModel(own, log);
    render = async (body, base = template.url) => {
      const response = await post(`${base}/apply-template`, { messages, ...body });
      const text = await response.text();
      expect(response.status, text).toBe(200);
      return (JSON.parse(text) as { prompt: string }).prompt.replace(prompt, "");
    };
  });

  afterAll(async () => {
    await template.stop();
    await own.dispose();
  });

  test("get what the request says", async () => {
    expect(await render({})).toBe("[user:]>True");
    expect(await render({ add_generation_prompt: false })).toBe("[user:]True");
    expect(await render({ enable_thinking: false })).toBe("[user:]>False");
    expect(await render({ reasoning_effort: "none" })).toBe("[user:]>False");
    expect(await render({ reasoning_effort: "high" })).toBe("[user:]>Truehigh");
    const chat_template_kwargs = { enable_thinking: false, mood: "!" };
    expect(await render({ chat_template_kwargs })).toBe("[user:]>False!");
    expect(await render({ tools: [{ name: "sum" }] })).toBe("[user:]sum>True");
    const silent = await serveModel(own, log, { thinking: false });
    expect(await render({}, silent.url)).toBe("[user:]>False");
    expect(await render({ enable_thinking: true }, silent.url)).toBe("[user:]>True");
    await silent.stop();
    const eager = await serveModel(own, log, { reasoning: { effort: "high" } });
    expect(await render({}, eager.url)).toBe("[user:]>Truehigh");
    expect(await render({ reasoning_effort: "low" }, eager.url)).toBe("[user:]>Truelow");
    await eager.stop();
  });

  test("show calls of tools that were made", async () => {
    const tool_calls = [
      { id: "1", type: "function", function: { name: "f", arguments: '{"a":7}' } },
    ];
    const said = [
      ...messages,
      { role: "assistant", content: null, reasoning_content: "hm", tool_calls },
      { role: "tool", tool_call_id: "1", content: "42" },
    ];
    expect(await render({ messages: said })).toBe("[user:][assistant:hm7][tool:42]>True");
  });
});

describe("the server", () => {
  test("describes itself", async () => {
    const props = (await (await fetch(`${url}/props`)).json()) as Json;
    expect(props).toMatchObject({
      total_slots: 2,
      model_alias: modelId,
      model_path: "tiny.gguf",
      default_generation_settings: { params: { temperature: 0.8, top_p: 0.95 } },
      chat_template: expect.stringContaining("im_start"),
      bos_token: "<s>",
      eos_token: "</s>",
      is_sleeping: false,
      endpoint_slots: true,
    });
    expect(await (await fetch(`${url}/models`)).json()).toMatchObject({ data: [{ id: modelId }] });
    await ask("/props", {}, 501);
    await ask("/slots/0?action=save", { filename: "x" }, 501);
  });

  test("lists its slots", async () => {
    const running = await post(`${url}/completion`, { prompt, stream: true, n_predict: 200 });
    const slots = (await (await fetch(`${url}/slots`)).json()) as Json[];
    expect(slots[0]).toMatchObject({
      id: 0,
      is_processing: true,
      n_ctx: model.info.contextSize,
      params: { n_predict: 200 },
      next_token: [{ has_next_token: true, n_remain: expect.any(Number) }],
    });
    const idle = { id: 1, n_ctx: model.info.contextSize, speculative: true };
    expect(slots[1]).toMatchObject({ ...idle, is_processing: false });
    await running.body!.cancel();
  });

  test("tells nobody of slots and metrics where it was told not to", async () => {
    const secretive = await serveModel(model, log, { slots: false, metrics: false });
    for (const path of ["/slots", "/metrics"]) {
      const response = await fetch(secretive.url + path);
      expect(response.status).toBe(501);
      expect(await response.json()).toHaveProperty("error.type", "not_supported_error");
    }
    await secretive.stop();
  });

  test("has llama.cpp's metrics beside its own", async () => {
    const read = async (): Promise<(name: string) => number> => {
      const response = await fetch(`${url}/metrics`);
      expect(response.headers.get("process-start-time-unix")).toMatch(/^\d+$/);
      const text = await response.text();
      return (name) => Number(new RegExp(`^llamacpp:${name} (.*)$`, "m").exec(text)?.[1]);
    };
    const earlier = await read();
    const { timings } = await ask<{ timings: Record<string, number> }>("/completion", {
      prompt,
      ...greedy,
    });
    const later = await read();
    const grown = (name: string): number => later(name) - earlier(name);
    expect(grown("prompt_tokens_total")).toBe(timings.prompt_n);
    expect(grown("prompt_tokens_cached_total")).toBe(timings.cache_n);
    expect(grown("tokens_predicted_total")).toBe(4);
    expect(grown("n_decode_total")).toBeGreaterThanOrEqual(3);
    expect(later("predicted_tokens_seconds")).toBeGreaterThan(0);
    expect(later("requests_processing")).toBe(0);
    expect((await read())("predicted_tokens_seconds")).toBe(0); // since the last reading
  });

  test("a prompt that does not fit is an error with llama.cpp's type and numbers", async () => {
    const n_ctx = model.info.contextSize;
    const long = prompt.repeat(n_ctx);
    for (const [path, body] of [
      ["/chat/completions", { messages: [{ role: "user", content: long }], stream: true }],
      ["/completion", { prompt: long }],
    ] as const) {
      const { error } = await ask<{ error: Json }>(path, body, 400);
      expect(error).toMatchObject({ type: "exceed_context_size_error", n_ctx });
      expect(error.n_prompt_tokens).toBeGreaterThan(n_ctx);
      expect(error.message).toContain("exceeds the available context size");
    }
    const { error } = await ask<{ error: Json }>("/v1/embeddings", { input: long }, 400);
    expect(error.message).toContain("too large");
  });

  test("embeddings: mixed input, and llama.cpp's own list", async () => {
    const inputs: [unknown, number][] = [
      ["", 1],
      [[12, 34, prompt, 56], 1],
      [[prompt, [12, 34], [12, prompt]], 3],
    ];
    for (const [input, count] of inputs) {
      const { data } = await ask<{ data: Json[] }>("/v1/embeddings", { input });
      expect(data).toHaveLength(count);
      const list = await ask<{ embedding: number[][] }[]>("/embeddings", { input });
      expect(list.map(({ embedding }) => embedding[0])).toEqual(data.map((one) => one.embedding));
    }
  });

  test("garbage behind a good request does not cost its answer", async () => {
    const body = JSON.stringify({ prompt, n_predict: 20, temperature: 0 });
    const head = `POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n`;
    const socket = connect({ port: server.port, host: "127.0.0.1" });
    socket.write(`${head}${body}GARBAGE / / /\r\n\r\nmore of it\r\n\r\n`);
    let text = "";
    for await (const piece of socket) text += String(piece);
    expect(text).toMatch(/^HTTP\/1\.1 200 OK/);
    expect(text).toContain('"tokens_predicted":20');
    expect(text.match(/HTTP\/1\.1 400/g)).toHaveLength(1);
    expect(text).toContain("broken_request");
  });
});
