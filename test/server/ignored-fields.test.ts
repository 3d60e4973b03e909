// Fields that no answer depends on are ignored and named, in a header, in GET /props and once in the log; fields that change what an
// answer means are refused by name; --strict-fields refuses both. Held against the request types that openai, @anthropic-ai/sdk and
// ollama publish: each of their fields is known to the server, one way or the other.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import { fieldsOf } from "../support/type-fields.ts";
import { type SpokenModel, spokenModel } from "./spoken-model.ts";
import { modelId, post, serveModel } from "./test-server.ts";

let spoken: SpokenModel;
let server: RunningServer;
let strict: RunningServer;
const said: string[] = [];
beforeAll(async () => {
  spoken = await spokenModel();
  spoken.words = ["Fine."];
  server = await serveModel(spoken.model, [], { logRequest: (line) => said.push(line) });
  strict = await serveModel(spoken.model, [], { strictFields: true });
});
afterAll(async () => {
  await server.stop();
  await strict.stop();
  await spoken.close();
});

const header = "x-lantern-ignored-fields";
const messages = [{ role: "user", content: "Hello" }];
const model = modelId;
const bodies = {
  "/v1/chat/completions": { model, messages, max_tokens: 4 },
  "/v1/completions": { model, prompt: "Hello", max_tokens: 1 },
  "/v1/responses": { model, input: "Hello", max_output_tokens: 4 },
  "/v1/messages": { model, messages, max_tokens: 4 },
  "/v1/messages/count_tokens": { model, messages },
  "/v1/embeddings": { model, input: "Hello" },
  "/api/chat": { model, messages, stream: false },
  "/api/generate": { model, prompt: "Hello", stream: false },
  "/api/embed": { model, input: "Hello" },
} as const;
type Path = keyof typeof bodies;

const tool = { name: "f", parameters: { type: "object" } };
const ignored: readonly [path: Path, fields: object, names: string][] = [
  ["/v1/chat/completions", { store: true, frobnicate: 1 }, "store, frobnicate"],
  ["/v1/chat/completions", { verbosity: "low", prediction: {} }, "verbosity, prediction"],
  ["/v1/chat/completions", { tools: [{ type: "web_search" }] }, "tools[].type=web_search"],
  [
    "/v1/chat/completions",
    { tools: [{ type: "function", function: { ...tool, vendor: 1 }, defer: true }] },
    "tools[].defer, tools[].function.vendor",
  ],
  ["/v1/chat/completions", { messages: [{ ...messages[0], mood: "good" }] }, "messages[].mood"],
  ["/v1/completions", { best_of: 4 }, "best_of"],
  [
    "/v1/responses",
    { client_metadata: {}, truncation: "auto", tools: [{ type: "namespace", tools: [] }] },
    "client_metadata, tools[].type=namespace, truncation",
  ],
  [
    "/v1/responses",
    {
      input: [
        { type: "web_search_call", id: "1" },
        { role: "user", content: "?" },
      ],
    },
    "input[].type=web_search_call",
  ],
  [
    "/v1/messages",
    {
      context_management: { edits: [] },
      safeguards: {},
      tools: [
        { name: "g", input_schema: { type: "object" }, defer_loading: true },
        { type: "web_search_20250305", name: "web_search" },
      ],
    },
    "context_management, safeguards, tools[].defer_loading, tools[].type=web_search_20250305",
  ],
  ["/v1/messages/count_tokens", { context_management: {} }, "context_management"],
  ["/api/chat", { options: { num_ctx: 1e6, f16_kv: true } }, "options.f16_kv, options.num_ctx"],
  ["/api/chat", { truncate: true, shift: true }, "shift"],
  ["/api/generate", { truncate: true, shift: true }, "shift, truncate"],
  ["/api/generate", { options: { use_mlock: true, penalize_newline: true } }, ""],
];

const sorted = (names: string | null): string[] =>
  (names ?? "")
    .split(", ")
    .filter((name) => name !== "")
    .sort();

describe("what no answer depends on", () => {
  test.each(ignored)(
    "%s with %j is answered, and says what it ignored",
    async (path, fields, names) => {
      const answer = await post(server.url + path, { ...bodies[path], ...fields });
      expect([answer.status, await answer.text()]).toMatchObject([200, expect.anything()]);
      if (names === "") expect(answer.headers.get(header)).toContain("options.");
      else expect(sorted(answer.headers.get(header))).toEqual(sorted(names));
    },
  );

  test("it is in GET /props, and in the log once", async () => {
    const path = "/v1/chat/completions";
    for (let time = 0; time < 2; time++) {
      await (await post(server.url + path, { ...bodies[path], fancy: time })).text();
    }
    const props = (await (await fetch(`${server.url}/props`)).json()) as {
      ignored_fields: string[];
    };
    expect(props.ignored_fields.filter((name) => name.endsWith(" fancy"))).toEqual([
      `${path} fancy`,
    ]);
    expect(said.filter((line) => line.includes('ignored "fancy"'))).toHaveLength(1);
  });

  test("any number of names of any length and any characters", async () => {
    const names = Array.from({ length: 500 }, (_, at) => [`é,\r\n${at}${"x".repeat(400)}`, 1]);
    const path = "/v1/completions";
    const answer = await post(server.url + path, { ...bodies[path], ...Object.fromEntries(names) });
    expect(answer.status).toBe(200);
    expect(answer.headers.get(header)!.length).toBeLessThan(16_384);
  });

  test("is refused by name with --strict-fields", async () => {
    for (const [path, fields] of ignored) {
      const first = { ...bodies[path], ...fields };
      if ("truncate" in fields) continue; // has no meaning here, and never had
      if (path === "/api/generate" || "num_ctx" in ((fields as { options?: object }).options ?? {}))
        continue;
      const answer = await post(strict.url + path, first);
      expect([path, JSON.stringify(fields), answer.status]).toEqual([
        path,
        JSON.stringify(fields),
        400,
      ]);
    }
  });
});

describe("what is honoured under another name", () => {
  const asked = async (path: Path, fields: object): Promise<void> => {
    const answer = await post(server.url + path, { ...bodies[path], ...fields });
    expect([answer.status, answer.headers.get(header)]).toEqual([200, null]);
  };

  test("repetition_penalty, max_output_tokens, OpenRouter's reasoning", async () => {
    await asked("/v1/chat/completions", { repetition_penalty: 1.5 });
    expect(spoken.options.repeatPenalty).toBe(1.5);
    await asked("/v1/chat/completions", { max_tokens: undefined, max_output_tokens: 7 });
    expect(spoken.options.maxTokens).toBe(7);
    await asked("/v1/chat/completions", { reasoning: { max_tokens: 99 } });
    expect(spoken.options.reasoningBudget?.tokens).toBe(99);
  });

  test("Anthropic's output_config: a schema", async () => {
    const format = { type: "json_schema", schema: { type: "object" } };
    await asked("/v1/messages", { output_config: { format, effort: "low" } });
    expect(spoken.options.grammar).toBeDefined();
  });

  test("Anthropic's documents, search results and found tools are text", async () => {
    const content = [
      {
        type: "document",
        title: "Plan",
        source: { type: "text", media_type: "text/plain", data: "Go." },
      },
      {
        type: "search_result",
        source: "a.md",
        title: "A",
        content: [{ type: "text", text: "Found." }],
      },
      { type: "text", text: "What now?" },
    ];
    await asked("/v1/messages", { messages: [{ role: "user", content }] });
    expect(spoken.prompt).toContain("Plan\nGo.\nA\na.md\nFound.\nWhat now?");
    const pdf = {
      type: "document",
      source: { type: "base64", media_type: "application/pdf", data: "" },
    };
    const answer = await post(`${server.url}/v1/messages`, {
      ...bodies["/v1/messages"],
      messages: [{ role: "user", content: [pdf] }],
    });
    expect([answer.status, await answer.text()]).toMatchObject([
      400,
      /document input other than text/,
    ]);
  });
});

test("Anthropic's clients get their list of models, and the words that make an agent shorten its conversation", async () => {
  const headers = { "anthropic-version": "2023-06-01" };
  const list = (await (await fetch(`${server.url}/v1/models`, { headers })).json()) as object;
  expect(list).toMatchObject({
    data: [{ id: modelId, type: "model", display_name: modelId, created_at: /^\d{4}-.*Z$/ }],
    ...{ has_more: false, first_id: modelId, last_id: modelId },
  });
  const long = [{ role: "user", content: "word ".repeat(4000) }];
  const answer = await post(`${server.url}/v1/messages`, {
    ...bodies["/v1/messages"],
    messages: long,
  });
  expect(await answer.text()).toMatch(/prompt is too long: \d+ tokens > 256 maximum/);
});

test("Ollama's clients find that something is running", async () => {
  const answer = await fetch(server.url);
  expect([answer.status, await answer.text()]).toEqual([200, "Ollama is running"]);
  expect((await fetch(server.url, { method: "HEAD" })).status).toBe(200);
});

/** A published type, in which file of which package, and where its fields are sent. */
const published: readonly [path: Path, name: string, file: string, types: readonly string[]][] = [
  [
    "/v1/chat/completions",
    "openai",
    "resources/chat/completions/completions.d.ts",
    ["ChatCompletionCreateParamsBase"],
  ],
  ["/v1/completions", "openai", "resources/completions.d.ts", ["CompletionCreateParamsBase"]],
  ["/v1/responses", "openai", "resources/responses/responses.d.ts", ["ResponseCreateParamsBase"]],
  ["/v1/embeddings", "openai", "resources/embeddings.d.ts", ["EmbeddingCreateParams"]],
  [
    "/v1/messages",
    "@anthropic-ai/sdk",
    "resources/messages/messages.d.ts",
    ["MessageCreateParamsBase"],
  ],
  [
    "/v1/messages",
    "@anthropic-ai/sdk",
    "resources/beta/messages/messages.d.ts",
    ["MessageCreateParamsBase"],
  ],
  [
    "/v1/messages/count_tokens",
    "@anthropic-ai/sdk",
    "resources/beta/messages/messages.d.ts",
    ["MessageCountTokensParams"],
  ],
  ["/api/chat", "ollama", "dist/browser.d.ts", ["ChatRequest"]],
  ["/api/generate", "ollama", "dist/browser.d.ts", ["GenerateRequest"]],
  ["/api/embed", "ollama", "dist/browser.d.ts", ["EmbedRequest"]],
];

const { resolve } = createRequire(import.meta.url);

/** The folder of an installed package. */
function folderOf(name: string): string {
  let folder = dirname(resolve(name));
  while (!folder.endsWith(join("node_modules", ...name.split("/")))) folder = dirname(folder);
  return folder;
}

describe("each field that clients' own types have is known", () => {
  test.each(published)("%s of %s (%s)", async (path, name, file, types) => {
    const text = readFileSync(join(folderOf(name), file), "utf8");
    const fields = types.flatMap((type) => fieldsOf(text, type));
    expect(fields.length).toBeGreaterThan(2);
    for (const field of fields) {
      const answer = await post(strict.url + path, { ...bodies[path], [field]: [] });
      const body = await answer.text();
      expect(`${field}: ${body}`).not.toMatch(/unknown field/);
    }
  });

  test("Ollama's options", async () => {
    const text = readFileSync(join(folderOf("ollama"), "dist/browser.d.ts"), "utf8");
    for (const field of fieldsOf(text, "Options")) {
      const answer = await post(`${strict.url}/api/chat`, {
        ...bodies["/api/chat"],
        options: { [field]: [] },
      });
      expect(`${field}: ${await answer.text()}`).not.toMatch(/unknown field/);
    }
  });
});
