// Tool calls and reasoning in OpenAI's chats, read by its own client. The model's words are given (spoken-model.ts).
// Held against: OpenAI's own client.

import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ChatAnswer } from "../../apps/server/chat-answer.ts";
import type { RunningServer } from "../../apps/server/serve.ts";
import { open } from "../../src/index.ts";
import { qwenTemplate, type SpokenModel, spokenModel } from "./spoken-model.ts";
import { modelId, post, serveModel } from "./test-server.ts";

let spoken: SpokenModel;
let server: RunningServer;
let client: OpenAI;

beforeAll(async () => {
  spoken = await spokenModel();
  server = await serveModel(spoken.model, []);
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(async () => {
  await server.stop();
  await spoken.close();
});

/** What the model says next. */
const say = (words: string): void => {
  spoken.words = [words];
};

const tools: OpenAI.ChatCompletionTool[] = [
  {
    type: "function",
    function: {
      name: "get_time",
      parameters: { type: "object", properties: { city: { type: "string" } } },
    },
  },
];
const messages: OpenAI.ChatCompletionMessageParam[] = [
  { role: "user", content: "What time is it?" },
];
const call = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Paris"}}\n</tool_call>';
const ask = { model: modelId, messages, tools };

describe("a call", () => {
  test("is a call", async () => {
    say(call);
    const { choices } = await client.chat.completions.create(ask);
    expect(choices[0]!.finish_reason).toBe("tool_calls");
    expect(choices[0]!.message).toMatchObject({
      content: null,
      tool_calls: [
        { type: "function", function: { name: "get_time", arguments: '{"city": "Paris"}' } },
      ],
    });
    expect(choices[0]!.message.tool_calls![0]!.id).toMatch(/^call_/);
  });

  test("comes after text and reasoning, streamed as well", async () => {
    say(`<think>\nWhere?\n</think>\n\nLet me see.\n${call}\n${call.replace("Paris", "Rome")}`);
    const stream = client.chat.completions.stream(ask);
    const deltas: Record<string, unknown>[] = [];
    for await (const chunk of stream) {
      const delta = chunk.choices[0]?.delta;
      if (delta) deltas.push(delta as unknown as Record<string, unknown>);
    }
    const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0]!;
    expect(finish_reason).toBe("tool_calls");
    expect(message.content).toBe("Let me see.");
    expect(
      message.tool_calls!.map(
        (one) => (one as { function: { arguments: string } }).function.arguments,
      ),
    ).toEqual(['{"city": "Paris"}', '{"city": "Rome"}']);
    expect(deltas.map(({ reasoning_content }) => reasoning_content ?? "").join("")).toBe("Where?");
  });

  test("is text without tools, and if none may be called", async () => {
    say(call);
    const plain = await client.chat.completions.create({ model: modelId, messages });
    expect(plain.choices[0]!.message.content).toBe(call);
    const none = await client.chat.completions.create({ ...ask, tool_choice: "none" });
    expect(none.choices[0]!.message.content).toBe(call);
    expect(none.choices[0]!.finish_reason).toBe("stop");
  });

  test("and its answer go back to the template", async () => {
    say("It is noon.");
    const first = {
      role: "assistant" as const,
      content: null,
      tool_calls: [
        {
          id: "call_1",
          type: "function" as const,
          function: { name: "get_time", arguments: '{"city":"Paris"}' },
        },
      ],
    };
    const all = [
      ...messages,
      first,
      { role: "tool" as const, tool_call_id: "call_1", content: "12:00" },
    ];
    const { choices } = await client.chat.completions.create({ ...ask, messages: all });
    expect(choices[0]!.message.content).toBe("It is noon.");
    const shown = await post(`${server.url}/apply-template`, { messages: all, tools });
    expect(((await shown.json()) as { prompt: string }).prompt).toContain(
      'Tools: get_time<|im_end|>\n<|im_start|>user\nWhat time is it?<|im_end|>\n<|im_start|>assistant\n\n<tool_call>\n{"name": "get_time", "arguments": {"city": "Paris"}}\n</tool_call><|im_end|>\n<|im_start|>tool\n12:00<|im_end|>',
    );
  });
});

describe("reasoning", () => {
  test("is apart, or in the text on request", async () => {
    say("<think>\nHm.\n</think>\n\nYes.");
    const apart = await client.chat.completions.create({ model: modelId, messages });
    expect(apart.choices[0]!.message).toMatchObject({ content: "Yes.", reasoning_content: "Hm." });
    const asked = { model: modelId, messages, reasoning_format: "none" };
    const inline = await client.chat.completions.create(asked);
    expect(inline.choices[0]!.message.content).toBe(spoken.words[0]);
  });

  test("is in both, with deepseek-legacy", async () => {
    const reasoning_format = "deepseek-legacy";
    const words = "<think>\nHm.\n</think>\n\nYes.";
    say(words);
    const asked = { model: modelId, messages, reasoning_format };
    const whole = { content: words, reasoning_content: "Hm." };
    const { choices } = await client.chat.completions.create(asked);
    expect(choices[0]!.message).toMatchObject(whole);
    const streamed = { content: "", reasoning_content: "" };
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
      const delta = chunk.choices[0]!.delta as Partial<typeof streamed>;
      streamed.content += delta.content ?? "";
      streamed.reasoning_content += delta.reasoning_content ?? "";
    }
    expect(streamed).toEqual(whole);
    // Items have either.
    const input = { model: modelId, input: "?", reasoning_format };
    const response = await post(`${server.url}/v1/responses`, input);
    const { output } = (await response.json()) as { output: { type: string }[] };
    expect(output.map(({ type }) => type)).toEqual(["reasoning", "message"]);
    const spokenOpening = { start: "Thinking:", end: "[end]", isSpoken: true };
    const format = { reasoning: spokenOpening, turnEnds: [] };
    const tokens = ["Thinking: a", "[end]", "b"].map((text, id) => ({ id, text }));
    const both = ChatAnswer.of({ format, reasoning: "both" }, tokens);
    expect(both.text("content")).toBe("Thinking: a[end]b");
    expect(both.text("reasoning")).toBe("Thinking: a");
  });
});

describe("a choice", () => {
  const named = { type: "function" as const, function: { name: "get_time" } };

  test("of the client is a grammar: the model must call", async () => {
    say(call);
    for (const tool_choice of ["required", named] as const) {
      const { choices } = await client.chat.completions.create({ ...ask, tool_choice });
      expect(choices[0]!.finish_reason).toBe("tool_calls");
      expect(spoken.options.grammar).toBeDefined();
    }
    await client.chat.completions.create({ ...ask, tool_choice: "none" });
    expect(spoken.options.grammar).toBeUndefined();
  });

  test("of what is not there is refused by name", async () => {
    const refused = async (fields: object): Promise<string> => {
      const error = await client.chat.completions
        .create({ ...ask, ...fields })
        .catch((cause) => cause);
      expect((error as { status: number }).status).toBe(400);
      return (error as Error).message;
    };
    const other = { type: "function", function: { name: "get_date" } };
    expect(await refused({ tool_choice: other })).toContain('no tool "get_date"');
    expect(await refused({ tools: [], tool_choice: "required" })).toContain("no tools");
    expect(await refused({ tools: [...tools, ...tools] })).toContain("two with the name");
  });

  test("of strict arguments needs a schema that can be enforced", async () => {
    say(call);
    const odd = { type: "object", properties: { city: { $ref: "https://example.org/city.json" } } };
    const own = (strict: boolean): OpenAI.ChatCompletionTool => ({
      type: "function",
      function: { name: "get_time", parameters: odd, strict },
    });
    await expect(client.chat.completions.create({ ...ask, tools: [own(true)] })).rejects.toThrow(
      /get_time cannot be enforced.*city.json/,
    );
    const { choices } = await client.chat.completions.create({ ...ask, tools: [own(false)] });
    expect(choices[0]!.finish_reason).toBe("tool_calls");
  });
});

test("a real model that must call does, with arguments that follow the schema", async () => {
  await using real = await open(modelId, {
    threads: 1,
    chatTemplate: qwenTemplate.replace(/{% if m.reasoning[\s\S]*?{% endif %}/, ""),
    contextSize: 512,
  });
  const other = await serveModel(real, []);
  const own = new OpenAI({ baseURL: `${other.url}/v1`, apiKey: "none", maxRetries: 0 });
  const city = { type: "string", enum: ["Paris", "Rome"] };
  const parameters = {
    type: "object",
    properties: { city },
    required: ["city"],
    additionalProperties: false,
  };
  const { choices } = await own.chat.completions.create({
    model: modelId,
    messages,
    tools: [{ type: "function", function: { name: "get_time", parameters, strict: true } }],
    tool_choice: "required",
    parallel_tool_calls: false,
    max_tokens: 300,
    seed: 1,
  });
  expect(choices[0]!.finish_reason).toBe("tool_calls");
  const [made] = choices[0]!.message.tool_calls as OpenAI.ChatCompletionMessageFunctionToolCall[];
  const values = JSON.parse(made!.function.arguments) as { city: string };
  expect(made!.function.name).toBe("get_time");
  expect(["Paris", "Rome"]).toContain(values.city);
  await other.stop();
});

describe("a model whose template knows no tools", () => {
  let plain: SpokenModel;
  let other: RunningServer;

  beforeAll(async () => {
    plain = await spokenModel("chatml");
    other = await serveModel(plain.model, []);
  });

  afterAll(async () => {
    await other.stop();
    await plain.close();
  });

  const asked = async (body: object): Promise<Response> => {
    const response = await post(`${other.url}/v1/chat/completions`, { messages, tools, ...body });
    expect(response.status).toBe(200);
    return response;
  };

  test("is told how to call them, and the response says so", async () => {
    plain.words = ['{"tool_calls": [{"name": "get_time", "arguments": {"city": "Rome"}}]}'];
    const response = await asked({});
    expect(response.headers.get("x-lantern-tool-format")).toBe("generic");
    const { choices } = (await response.json()) as OpenAI.ChatCompletion;
    expect(choices[0]!.finish_reason).toBe("tool_calls");
    expect(choices[0]!.message.tool_calls).toMatchObject([
      { function: { name: "get_time", arguments: '{"city": "Rome"}' } },
    ]);
    expect(plain.prompt).toContain("You can call these tools:");
    expect(plain.prompt).toContain('"name":"get_time"');
    expect(plain.options.grammar).toBeDefined();
    plain.words = ["It is noon."];
    const text = (await (await asked({})).json()) as OpenAI.ChatCompletion;
    expect(text.choices[0]!.message.content).toBe("It is noon.");
    const without = await asked({ tools: [] });
    expect(without.headers.get("x-lantern-tool-format")).toBeNull();
    expect(plain.prompt).not.toContain("You can call");
  });

  test("gets results as words of the user, one turn for all", async () => {
    plain.words = ["It is noon."];
    const made = (id: string): object => ({
      id,
      type: "function",
      function: { name: "get_time", arguments: '{"city":"Rome"}' },
    });
    const said = [
      ...messages,
      { role: "assistant", content: null, tool_calls: [made("a"), made("b")] },
      { role: "tool", tool_call_id: "a", content: "12:00" },
      { role: "tool", tool_call_id: "b", content: "13:00" },
      { role: "user", content: "Well?" },
    ];
    await asked({ messages: said });
    expect(plain.prompt).toContain('assistant\n{"tool_calls":[{"name":"get_time"');
    expect(plain.prompt).toContain(
      "<|im_start|>user\nResult: 12:00\n\nResult: 13:00\n\nWell?<|im_end|>",
    );
  });
});

describe("tokens of reasoning are counted in the usage", () => {
  // Tokens are three characters here: eight reach from <think> to behind </think>.
  const thought = "<think>\nWhere?\n</think>\n\nIt is noon.";
  type Details = { reasoning_tokens: number };

  const lastUsage = async (path: string, body: object): Promise<Record<string, Details>> => {
    const response = await post(`${server.url}${path}`, { model: modelId, ...body });
    const text = await response.text();
    const events = text.startsWith("{")
      ? [text]
      : text.split("\n").flatMap((line) => (line.startsWith("data: {") ? [line.slice(6)] : []));
    const last = JSON.parse(events.at(-1)!) as { usage?: object; response?: { usage: object } };
    return (last.usage ?? last.response!.usage) as Record<string, Details>;
  };

  test.each([
    [thought, 8],
    ["It is noon.", 0],
    [`${thought.slice(0, 12)}`, 4], // cut off within it
    [`<think>\n\n</think>${call}`, 6],
  ])("%j: %d", async (words, reasoning_tokens) => {
    say(words);
    const stream = { stream: true, stream_options: { include_usage: true } };
    for (const more of [{}, stream, { ...stream, reasoning_format: "none" }]) {
      const usage = await lastUsage("/v1/chat/completions", { messages, tools, ...more });
      expect(usage.completion_tokens_details).toEqual({ reasoning_tokens });
    }
    for (const more of [{}, { stream: true }]) {
      const usage = await lastUsage("/v1/responses", { input: "When?", ...more });
      expect(usage.output_tokens_details).toEqual({ reasoning_tokens });
    }
  });

  test("two choices, and answers of several messages", async () => {
    say(thought);
    const both = await lastUsage("/v1/chat/completions", { messages, n: 2 });
    expect(both.completion_tokens_details).toEqual({ reasoning_tokens: 16 });
    const marks = ["<|channel|>", "analysis", "<|message|>", "Hm", ".", "<|end|>"];
    const rest = ["<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Noon."];
    const tokens = [...marks, ...rest].map((text, id) => ({ id, text }));
    const answer = ChatAnswer.of({ format: { frames: "harmony", turnEnds: [] } }, tokens);
    expect(answer.text("content")).toBe("Noon.");
    expect(answer.reasoningTokens).toBe(marks.length);
  });
});

describe("a budget of reasoning", () => {
  const budgetOf = async (url: string, path: string, body: object): Promise<unknown> => {
    say("<think>\nHm.\n</think>\n\nYes.");
    const response = await post(`${url}${path}`, { model: modelId, ...body });
    expect(response.status, await response.clone().text()).toBe(200);
    return spoken.options.reasoningBudget;
  };

  test("is the request's, or the server's", async () => {
    const chat = "/v1/chat/completions";
    const marks = { start: "<think>", end: "</think>", isOpen: false };
    expect(await budgetOf(server.url, chat, { messages })).toBeUndefined();
    expect(await budgetOf(server.url, chat, { messages, reasoning_budget_tokens: 7 })).toEqual({
      tokens: 7,
      ...marks,
    });
    const asked = { messages, max_tokens: 100, thinking: { type: "enabled", budget_tokens: 9 } };
    expect(await budgetOf(server.url, "/v1/messages", asked)).toMatchObject({ tokens: 9 });
    const reasoning = { budget: 0, message: "Enough." };
    const strict = await serveModel(spoken.model, [], { reasoning });
    expect(await budgetOf(strict.url, "/api/chat", { messages, stream: false })).toEqual({
      tokens: 0,
      message: "Enough.",
      ...marks,
    });
    expect(await budgetOf(strict.url, chat, { messages, thinking_budget_tokens: 3 })).toMatchObject(
      { tokens: 3 },
    );
    await strict.stop();
  });
});
