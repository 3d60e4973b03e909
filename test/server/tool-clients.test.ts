// Tools and typed answers with the helpers of other people's clients. Answers are forced by grammars or given (spoken-model.ts):
// the tests are about their form.
// Held against: other people's clients.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { ChatOpenAI } from "@langchain/openai";
import { generateObject, generateText, stepCountIs, streamObject, tool } from "ai";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as z from "zod";
import type { RunningServer } from "../../apps/server/serve.ts";
import { type SpokenModel, spokenModel } from "./spoken-model.ts";
import { all, modelId, serveModel } from "./test-server.ts";

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

const call =
  '<think>\nWhere?\n</think>\n\n<tool_call>\n{"name": "get_time", "arguments": {"city": "Rome"}}\n</tool_call>';
const noon = '{"time": "noon", "sure": true}';
const parameters = z.object({ city: z.string() });
const answer = z.object({ time: z.string(), sure: z.boolean() });
const messages = [{ role: "user" as const, content: "What time is it in Rome?" }];
const asked: string[] = [];
const run = ({ city }: { city: string }): string => {
  asked.push(city);
  return "12:00";
};
/** The model calls, and then says what it was told. */
const inTwoSteps = (): void => {
  asked.length = 0;
  spoken.words = [call, "It is noon."];
};

describe("openai", () => {
  const client = () => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });

  test("parse: an answer and arguments by a schema of Zod", async () => {
    spoken.words = [noon];
    const response_format = zodResponseFormat(answer, "answer");
    const typed = await client().chat.completions.parse({
      model: modelId,
      messages,
      response_format,
    });
    expect(typed.choices[0]!.message.parsed).toEqual({ time: "noon", sure: true });
    spoken.words = [call];
    const tools = [zodFunction({ name: "get_time", parameters })];
    const called = await client().chat.completions.parse({ model: modelId, messages, tools });
    expect(called.choices[0]!.message.tool_calls).toMatchObject([
      { function: { parsed_arguments: { city: "Rome" } } },
    ]);
    // Both: a call, or an answer of that form.
    spoken.words = [noon];
    const both = { model: modelId, messages, tools, response_format };
    const second = await client().chat.completions.parse(both);
    expect(second.choices[0]!.message.parsed).toEqual({ time: "noon", sure: true });
  });

  test("runTools: calls, results and the answer", async () => {
    inTwoSteps();
    const runner = client().chat.completions.runTools({
      model: modelId,
      messages,
      tools: [zodFunction({ name: "get_time", parameters, function: run })],
    });
    expect(await runner.finalContent()).toBe("It is noon.");
    expect(asked).toEqual(["Rome"]);
    expect(spoken.prompt).toContain("tool\n12:00");
  });
});

describe("ai", () => {
  const model = () =>
    createOpenAICompatible({
      name: "lantern",
      baseURL: `${server.url}/v1`,
      supportsStructuredOutputs: true,
    })(modelId);

  test("generateText with tools, in several steps", async () => {
    inTwoSteps();
    const { text, steps } = await generateText({
      model: model(),
      messages,
      tools: {
        get_time: tool({ inputSchema: parameters, execute: async (input) => run(input) }),
      },
      stopWhen: stepCountIs(3),
    });
    expect([text, asked, steps.length]).toEqual(["It is noon.", ["Rome"], 2]);
    expect(steps[0]!.reasoningText).toBe("Where?");
  });

  test("generateObject and streamObject", async () => {
    spoken.words = [noon];
    const { object } = await generateObject({ model: model(), messages, schema: answer });
    expect(object).toEqual({ time: "noon", sure: true });
    const stream = streamObject({ model: model(), messages, schema: answer });
    expect((await all(stream.partialObjectStream)).at(-1)).toEqual(object);
  });
});

describe("@langchain/openai", () => {
  const model = () =>
    new ChatOpenAI({
      model: modelId,
      apiKey: "none",
      maxRetries: 0,
      configuration: { baseURL: `${server.url}/v1` },
    });

  test("bindTools", async () => {
    spoken.words = [call];
    const schema = z.toJSONSchema(parameters);
    const tools = [
      { type: "function" as const, function: { name: "get_time", parameters: schema } },
    ];
    const said = await model().bindTools(tools, { tool_choice: "get_time" }).invoke("What time?");
    expect(said.tool_calls).toMatchObject([{ name: "get_time", args: { city: "Rome" } }]);
  });

  test("withStructuredOutput", async () => {
    spoken.words = [noon];
    const typed = model().withStructuredOutput(answer, { name: "answer", method: "jsonSchema" });
    expect(await typed.invoke("What time is it?")).toEqual({ time: "noon", sure: true });
  });
});

describe("@anthropic-ai/sdk", () => {
  test("the tool runner", async () => {
    inTwoSteps();
    const client = new Anthropic({ apiKey: "none", baseURL: server.url, maxRetries: 0 });
    const get_time = betaTool({
      name: "get_time",
      description: "The time of a city.",
      inputSchema: {
        type: "object",
        properties: { city: { type: "string" } },
        required: ["city"],
      } as const,
      run,
    });
    const last = await client.beta.messages.toolRunner({
      model: modelId,
      max_tokens: 100,
      messages,
      tools: [get_time],
    });
    expect(last.content).toMatchObject([{ type: "text", text: "It is noon." }]);
    expect(asked).toEqual(["Rome"]);
  });
});

describe("ollama", () => {
  const client = () => new Ollama({ host: server.url });

  test("a format", async () => {
    spoken.words = [noon];
    const format = z.toJSONSchema(answer);
    const { message } = await client().chat({ model: modelId, messages, format });
    expect(answer.parse(JSON.parse(message.content))).toEqual({ time: "noon", sure: true });
  });

  test("tools, in a loop as its documentation has it", async () => {
    inTwoSteps();
    const said: { role: string; content: string; tool_name?: string }[] = [...messages];
    const schema = z.toJSONSchema(parameters);
    const tools = [{ type: "function", function: { name: "get_time", parameters: schema } }];
    for (;;) {
      const request = { model: modelId, messages: said, tools: tools as never };
      const { message } = await client().chat(request);
      said.push(message);
      if (!message.tool_calls) break;
      for (const { function: own } of message.tool_calls) {
        const content = run(own.arguments as { city: string });
        said.push({ role: "tool", tool_name: own.name, content });
      }
    }
    expect([said.at(-1)!.content, asked]).toEqual(["It is noon.", ["Rome"]]);
  });
});
