// Tool calls and reasoning in OpenAI's chats, read by its own client. The model's words are given (spoken-model.ts).

import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { open } from "../../src/index.ts";
import type { RunningServer } from "../../src/server/serve.ts";
import { type SpokenModel, spokenModel } from "./spoken-model.ts";
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
});

test("what is not there yet is refused by name", async () => {
  const refused = async (fields: object): Promise<string> => {
    const error = await client.chat.completions
      .create({ ...ask, ...fields })
      .catch((cause) => cause);
    expect((error as { status: number }).status).toBe(400);
    return (error as Error).message;
  };
  expect(await refused({ tool_choice: "required" })).toContain("cannot be forced");
  const named = { type: "function", function: { name: "get_time" } };
  expect(await refused({ tool_choice: named })).toContain("cannot be forced");
  const strict = [{ type: "function", function: { name: "f", strict: true } }];
  expect(await refused({ tools: strict })).toContain("strict");
  expect(await refused({ tools: [...tools, ...tools] })).toContain("two with the name");
});

test("a model whose template knows no tools says so", async () => {
  await using plain = await open(modelId, { threads: 1, chatTemplate: "chatml" });
  const other = await serveModel(plain, []);
  const response = await post(`${other.url}/v1/chat/completions`, {
    messages,
    tools,
    max_tokens: 1,
  });
  expect(response.status).toBe(400);
  expect(await response.text()).toContain("does not say how it calls them");
  await other.stop();
});
