// Tool calls and reasoning in OpenAI's responses, Anthropic's messages and Ollama's chats, read by their own clients.
// Held against: OpenAI's, Anthropic's and Ollama's own clients.

import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import { type SpokenModel, spokenModel } from "./spoken-model.ts";
import { all, modelId, post, serveModel } from "./test-server.ts";

let spoken: SpokenModel;
let server: RunningServer;

beforeAll(async () => {
  spoken = await spokenModel();
  server = await serveModel(spoken.model, []);
});

afterAll(async () => {
  await server.stop();
  await spoken.close();
});

const callOf = (city: string): string =>
  `<tool_call>\n{"name": "get_time", "arguments": {"city": "${city}"}}\n</tool_call>`;
const thought = "<think>\nWhere?\n</think>\n\n";
const schema = { type: "object" as const, properties: { city: { type: "string" } } };
const question = "What time is it?";
/** What the template makes of a question, a thought, a call and its answer. */
const history = `user
${question}<|im_end|>
<|im_start|>assistant
<think>
Where?
</think>

<tool_call>
{"name": "get_time", "arguments": {"city": "Paris"}}
</tool_call><|im_end|>
<|im_start|>tool
12:00<|im_end|>`.replace("</think>\n\n<", "</think>\n\n\n<");

describe("responses", () => {
  const client = () => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
  const tools: OpenAI.Responses.FunctionTool[] = [
    { type: "function", name: "get_time", parameters: schema, strict: false },
  ];
  const ask = { model: modelId, input: question, tools };

  test("have items for reasoning, text and calls", async () => {
    spoken.words = [`${thought}Let me see.\n${callOf("Paris")}\n${callOf("Rome")}`];
    const { output, status, output_text } = await client().responses.create(ask);
    expect(status).toBe("completed");
    expect(output_text).toBe("Let me see.");
    expect(output).toMatchObject([
      { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "Where?" }] },
      { type: "message", role: "assistant" },
      { type: "function_call", name: "get_time", arguments: '{"city": "Paris"}' },
      { type: "function_call", name: "get_time", arguments: '{"city": "Rome"}' },
    ]);
    expect(new Set(output.map(({ id }) => id)).size).toBe(4);
    expect(spoken.prompt).toContain("Tools: get_time");
  });

  test("stream the same", async () => {
    spoken.words = [`${thought}Let me see.\n${callOf("Paris")}`];
    const stream = client().responses.stream(ask);
    const types: string[] = [];
    for await (const { type } of stream) if (types.at(-1) !== type) types.push(type);
    expect(types).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      "response.reasoning_text.delta",
      "response.reasoning_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.output_item.added",
      "response.function_call_arguments.delta",
      "response.function_call_arguments.done",
      "response.output_item.done",
      "response.completed",
    ]);
    const { output } = await stream.finalResponse();
    expect(output.at(-1)).toMatchObject({ type: "function_call", arguments: '{"city": "Paris"}' });
  });

  test("take their own items back, with what the function said", async () => {
    spoken.words = [`${thought}${callOf("Paris")}`, "It is noon."];
    const first = await client().responses.create(ask);
    const call = first.output.find(({ type }) => type === "function_call");
    const { call_id } = call as OpenAI.Responses.ResponseFunctionToolCall;
    const second = await client().responses.create({
      ...ask,
      input: [
        { role: "user", content: question },
        ...(first.output as OpenAI.Responses.ResponseInputItem[]),
        { type: "function_call_output", call_id, output: "12:00" },
      ],
    });
    expect(second.output_text).toBe("It is noon.");
    expect(spoken.prompt).toContain(history);
  });

  test("refuse what they cannot do, by name", async () => {
    const refused = async (fields: object): Promise<string> =>
      (
        (await client()
          .responses.create({ ...ask, ...fields } as never)
          .catch((e) => e)) as Error
      ).message;
    const required = { tools: [{ type: "web_search" }], tool_choice: "required" };
    expect(await refused(required)).toContain("there are no tools");
    expect(await refused({ tools: [...tools, ...tools] })).toContain("two with the name");
    expect(await refused({ input: [{ type: "computer_call" }] })).toContain("computer_call");
    expect(await refused({ tool_choice: { type: "function", name: "f" } })).toContain("no tool");
  });
});

describe("Anthropic's messages", () => {
  const client = () => new Anthropic({ apiKey: "none", baseURL: server.url, maxRetries: 0 });
  const tools: Anthropic.Tool[] = [{ name: "get_time", input_schema: schema }];
  const messages: Anthropic.MessageParam[] = [{ role: "user", content: question }];
  const ask = { model: modelId, max_tokens: 100, messages, tools };

  test("have blocks for thinking, text and calls", async () => {
    spoken.words = [`${thought}Let me see.\n${callOf("Paris")}`];
    const answer = await client().messages.create(ask);
    expect(answer.stop_reason).toBe("tool_use");
    expect(answer.content).toMatchObject([
      { type: "thinking", thinking: "Where?" },
      { type: "text", text: "Let me see." },
      { type: "tool_use", name: "get_time", input: { city: "Paris" } },
    ]);
  });

  test("stream the same", async () => {
    spoken.words = [`${thought}${callOf("Paris")}\n${callOf("Rome")}`];
    const stream = client().messages.stream(ask);
    const deltas = new Set<string>();
    for await (const event of stream) {
      if (event.type === "content_block_delta") deltas.add(event.delta.type);
    }
    expect([...deltas]).toEqual(["thinking_delta", "signature_delta", "input_json_delta"]);
    const { content, stop_reason } = await stream.finalMessage();
    expect(stop_reason).toBe("tool_use");
    expect(content).toMatchObject([
      { type: "thinking", thinking: "Where?" },
      { type: "tool_use", input: { city: "Paris" } },
      { type: "tool_use", input: { city: "Rome" } },
    ]);
  });

  test("take their own blocks back, with results", async () => {
    spoken.words = [`${thought}${callOf("Paris")}`, "It is noon."];
    const { content } = await client().messages.create(ask);
    const call = content.find(({ type }) => type === "tool_use") as Anthropic.ToolUseBlock;
    const result: Anthropic.ToolResultBlockParam = {
      type: "tool_result",
      tool_use_id: call.id,
      content: [{ type: "text", text: "12:00" }],
    };
    const second = await client().messages.create({
      ...ask,
      messages: [
        ...messages,
        { role: "assistant", content },
        { role: "user", content: [result, { type: "text", text: "Well?" }] },
      ],
    });
    expect(second.content).toEqual([{ type: "text", text: "It is noon." }]);
    expect(second.stop_reason).toBe("end_turn");
    expect(spoken.prompt).toContain(`${history}\n<|im_start|>user\nWell?<|im_end|>`);
  });

  test("refuse a result of no call", async () => {
    const lost = { type: "tool_result" as const, tool_use_id: "x", content: "7" };
    const body = { ...ask, messages: [{ role: "user" as const, content: [lost] }] };
    await expect(client().messages.create(body)).rejects.toThrow(/tool_use_id/);
  });

  test("count tools as part of the prompt", async () => {
    const count = async (given: Anthropic.Tool[]): Promise<number> =>
      (await client().messages.countTokens({ model: modelId, messages, tools: given }))
        .input_tokens;
    expect(await count(tools)).toBeGreaterThan(await count([]));
  });
});

describe("Ollama's chats", () => {
  const client = () => new Ollama({ host: server.url });
  const tools = [
    { type: "function", function: { name: "get_time", description: "", parameters: schema } },
  ];
  const messages = [{ role: "user", content: question }];

  test("have thinking and calls, whole and streamed", async () => {
    spoken.words = [`${thought}Let me see.\n${callOf("Paris")}`];
    const ask = { model: modelId, messages, tools: tools as never };
    const { message } = await client().chat(ask);
    const call = { function: { name: "get_time", arguments: { city: "Paris" } } };
    expect(message).toMatchObject({
      content: "Let me see.",
      thinking: "Where?",
      tool_calls: [call],
    });
    const parts = await all(await client().chat({ ...ask, stream: true }));
    expect(parts.map((part) => part.message.content).join("")).toBe("Let me see.");
    expect(parts.map((part) => part.message.thinking ?? "").join("")).toBe("Where?");
    expect(parts.flatMap((part) => part.message.tool_calls ?? [])).toMatchObject([call]);
    expect(parts.at(-1)!.done).toBe(true);
  });

  test("take calls and what tools said back", async () => {
    spoken.words = ["It is noon."];
    const tool_calls = [{ function: { name: "get_time", arguments: { city: "Paris" } } }];
    const said = [
      ...messages,
      { role: "assistant", content: "", thinking: "Where?", tool_calls },
      { role: "tool", tool_name: "get_time", content: "12:00" },
    ];
    await client().chat({ model: modelId, messages: said, tools: tools as never });
    expect(spoken.prompt).toContain(history);
  });

  test("think, or not", async () => {
    spoken.words = [`${thought}Noon.`];
    const { response, thinking } = await client().generate({ model: modelId, prompt: question });
    expect([response, thinking]).toEqual(["Noon.", "Where?"]);
    const shown = await client().show({ model: modelId });
    expect(shown.capabilities).toContain("tools");
    expect(shown.capabilities).toContain("thinking");
    const refused = await post(`${server.url}/api/chat`, { model: modelId, messages, think: "a" });
    expect(refused.status).toBe(400);
  });
});
