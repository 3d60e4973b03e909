// Sessions of coding agents, ten turns in each protocol: a prompt of real size, tools, errors of tools, an interrupted stream, counted
// tokens, lists of models, and a prompt that has grown too long.
// Held against: the clients of OpenAI, Anthropic and Ollama, which put the streamed pieces together.

import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { RunningServer } from "../../apps/server/serve.ts";
import { agentContext, agentModel } from "./agent-model.ts";
import {
  type AgentTurn,
  agentReminder,
  agentSystem,
  agentTools,
  agentTurns,
  agentWords,
  sentences,
  wordsOf,
} from "./agent-session.ts";
import type { SpokenModel } from "./spoken-model.ts";
import { modelId, serveModel } from "./test-server.ts";

let spoken: SpokenModel;
let server: RunningServer;
beforeAll(async () => {
  spoken = await agentModel(agentWords);
  server = await serveModel(spoken.model, []);
});
afterAll(async () => {
  await server.stop();
  await spoken.close();
});

/** What a client has made of an answer. */
interface Heard {
  readonly thinking: string;
  readonly text: string;
  readonly calls: readonly { readonly name: string; readonly input: unknown }[];
  /** Streamed pieces of text, reasoning and arguments. */
  readonly pieces: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** An agent's side of a protocol: it keeps the conversation. */
interface Agent {
  say(text: string): void;
  /** The answer to the conversation, which becomes part of it. */
  answer(): Promise<Heard>;
  /** Asks, and leaves after the first piece. */
  leave(): Promise<void>;
  results(turn: AgentTurn): void;
  /** What it takes for a prompt that is too long. */
  isTooLong(error: unknown): boolean;
  /** The length of the prompt of its next request; undefined: the protocol has no request for that. */
  count?(): Promise<number>;
}

const apiKey = "none";
const max = 4096;

function anthropicAgent(): Agent {
  const client = new Anthropic({ baseURL: server.url, apiKey, maxRetries: 0 });
  const messages: Anthropic.Beta.BetaMessageParam[] = [];
  let ids: string[] = [];
  const cache_control = { type: "ephemeral" as const };
  const prompt = {
    model: modelId,
    system: [
      { type: "text" as const, text: "x-agent-billing: version=1;" },
      { type: "text" as const, text: agentSystem, cache_control },
    ],
    tools: [
      ...agentTools.map(({ name, description, parameters }, at) => ({
        name,
        description,
        input_schema: parameters as Anthropic.Beta.BetaTool["input_schema"],
        ...(at > 30 && { defer_loading: true }),
      })),
      { type: "web_search_20250305" as const, name: "web_search" as const },
    ],
    thinking: { type: "adaptive" as const },
    output_config: { effort: "high" as const },
    context_management: {
      edits: [{ type: "clear_thinking_20251015" as const, keep: "all" as const }],
    },
  };
  const stream = () =>
    client.beta.messages.stream({
      ...prompt,
      messages,
      max_tokens: max,
      metadata: { user_id: "u" },
    });
  return {
    say: (text) =>
      void messages.push({
        role: "user",
        content: [
          { type: "text", text: agentReminder },
          { type: "text", text, cache_control },
        ],
      }),
    async answer() {
      let pieces = 0;
      const running = stream().on("streamEvent", ({ type }) => {
        if (type === "content_block_delta") pieces++;
      });
      const { content, usage } = await running.finalMessage();
      messages.push({ role: "assistant", content });
      const calls = content.filter((block) => block.type === "tool_use");
      ids = calls.map(({ id }) => id);
      const cachedTokens = usage.cache_read_input_tokens ?? 0;
      return {
        thinking: content
          .map((block) => (block.type === "thinking" ? block.thinking : ""))
          .join(""),
        text: content.map((block) => (block.type === "text" ? block.text : "")).join(""),
        calls: calls.map(({ name, input }) => ({ name, input })),
        ...{ pieces, cachedTokens, promptTokens: usage.input_tokens + cachedTokens },
      };
    },
    async leave() {
      const running = stream();
      for await (const { type } of running) if (type === "content_block_delta") break;
      running.abort();
    },
    results: ({ calls }) =>
      void messages.push({
        role: "user",
        content: calls.map(({ result, isError = false }, at) => ({
          type: "tool_result",
          tool_use_id: ids[at]!,
          content: [{ type: "text", text: result }],
          is_error: isError,
        })),
      }),
    isTooLong: (error) =>
      error instanceof Anthropic.BadRequestError &&
      /"type":"invalid_request_error","message":"prompt is too long: \d+ tokens > \d+ maximum/.test(
        error.message,
      ),
    count: async () =>
      (await client.beta.messages.countTokens({ ...prompt, messages })).input_tokens,
  };
}

const openaiClient = () => new OpenAI({ baseURL: `${server.url}/v1`, apiKey, maxRetries: 0 });

function chatAgent(): Agent {
  const client = openaiClient();
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "system", content: agentSystem }];
  let ids: string[] = [];
  const tools = agentTools.map((own) => ({ type: "function" as const, function: { ...own } }));
  const request = () => ({
    ...{ model: modelId, messages, tools, tool_choice: "auto" as const, max_tokens: max },
    ...{ verbosity: "low" as const, store: false, prompt_cache_key: "session" },
    stream: true as const,
    stream_options: { include_usage: true },
  });
  return {
    say: (text) => void messages.push({ role: "user", content: `${agentReminder}\n${text}` }),
    async answer() {
      let pieces = 0;
      let thinking = "";
      const running = client.chat.completions.stream(request()).on("chunk", ({ choices }) => {
        const delta = choices[0]?.delta as { reasoning_content?: string } | undefined;
        if (delta && Object.keys(delta).length > 0) pieces++;
        thinking += delta?.reasoning_content ?? "";
      });
      const { choices, usage } = await running.finalChatCompletion();
      const { content, tool_calls = [] } = choices[0]!.message;
      const called = tool_calls.filter((call) => call.type === "function");
      const given = called.map(({ id, function: own }) => {
        return {
          id,
          type: "function" as const,
          function: { name: own.name, arguments: own.arguments },
        };
      });
      messages.push({
        ...{ role: "assistant", content, reasoning_content: thinking },
        ...(given.length > 0 && { tool_calls: given }),
      } as OpenAI.ChatCompletionMessageParam);
      ids = given.map(({ id }) => id);
      return {
        ...{ thinking, pieces, text: content ?? "" },
        calls: given.map(({ function: own }) => ({
          name: own.name,
          input: JSON.parse(own.arguments) as unknown,
        })),
        promptTokens: usage!.prompt_tokens,
        cachedTokens: usage!.prompt_tokens_details!.cached_tokens!,
      };
    },
    async leave() {
      const running = await client.chat.completions.create(request());
      for await (const { choices } of running) if (choices[0]?.delta.content) break;
    },
    results: ({ calls }) =>
      void messages.push(
        ...calls.map(({ result }, at) => ({
          role: "tool" as const,
          tool_call_id: ids[at]!,
          content: result,
        })),
      ),
    isTooLong: (error) =>
      error instanceof OpenAI.BadRequestError &&
      error.code === "context_length_exceeded" &&
      /exceeds the available context size/.test(error.message),
  };
}

function responsesAgent(): Agent {
  const client = openaiClient();
  const input: OpenAI.Responses.ResponseInput = [];
  let ids: string[] = [];
  const prompt = () => ({
    ...{ model: modelId, input, instructions: agentSystem, parallel_tool_calls: true },
    tool_choice: "auto" as const,
    tools: [
      ...agentTools.map((own) => ({ type: "function" as const, strict: false, ...own })),
      { type: "web_search" as const },
    ],
  });
  const request = () => ({
    ...prompt(),
    ...{ store: false, include: ["reasoning.encrypted_content" as const] },
    ...{ prompt_cache_key: "session", client_metadata: { turn: "1" } },
    reasoning: { summary: "auto" as const },
  });
  return {
    say: (text) =>
      void input.push({
        type: "message",
        role: "user",
        content: [
          { type: "input_text", text: agentReminder },
          { type: "input_text", text },
        ],
      }),
    async answer() {
      let pieces = 0;
      const running = client.responses.stream(request()).on("event", ({ type }) => {
        if (type.endsWith(".delta")) pieces++;
      });
      const { output, output_text, usage } = await running.finalResponse();
      input.push(...(output as OpenAI.Responses.ResponseInput));
      const calls = output.filter((item) => item.type === "function_call");
      ids = calls.map(({ call_id }) => call_id);
      const thoughts = output.filter((item) => item.type === "reasoning");
      return {
        thinking: thoughts.flatMap(({ content = [] }) => content.map(({ text }) => text)).join(""),
        ...{ pieces, text: output_text },
        calls: calls.map((call) => ({
          name: call.name,
          input: JSON.parse(call.arguments) as unknown,
        })),
        promptTokens: usage!.input_tokens,
        cachedTokens: usage!.input_tokens_details.cached_tokens,
      };
    },
    async leave() {
      const running = await client.responses.create({ ...request(), stream: true });
      for await (const { type } of running) if (type.endsWith(".delta")) break;
    },
    results: ({ calls }) =>
      void input.push(
        ...calls.map(({ result }, at) => ({
          type: "function_call_output" as const,
          call_id: ids[at]!,
          output: result,
        })),
      ),
    isTooLong: (error) =>
      error instanceof OpenAI.APIError && error.code === "context_length_exceeded",
    count: async () => (await client.responses.inputTokens.count(prompt())).input_tokens,
  };
}

function ollamaAgent(): Agent {
  const client = new Ollama({ host: server.url });
  const messages: { role: string; content: string; [more: string]: unknown }[] = [
    { role: "system", content: agentSystem },
  ];
  let names: string[] = [];
  const request = () => ({
    ...{
      model: `${modelId}:latest`,
      messages,
      keep_alive: "30m",
      think: true,
      stream: true as const,
    },
    options: { num_ctx: 32_768, num_predict: max, f16_kv: true },
    tools: agentTools.map((own) => ({ type: "function", function: { ...own } })),
    truncate: false, // an agent shortens its conversation itself
  });
  return {
    say: (text) => void messages.push({ role: "user", content: `${agentReminder}\n${text}` }),
    async answer() {
      let pieces = 0;
      let thinking = "";
      let text = "";
      const calls: { name: string; input: unknown }[] = [];
      let last: Record<string, unknown> = {};
      for await (const line of await client.chat(request())) {
        pieces++;
        thinking += line.message.thinking ?? "";
        text += line.message.content;
        for (const { function: own } of line.message.tool_calls ?? []) {
          calls.push({ name: own.name, input: own.arguments });
        }
        last = { ...line };
      }
      const tool_calls = calls.map(({ name, input }) => ({ function: { name, arguments: input } }));
      messages.push({
        ...{ role: "assistant", content: text, thinking },
        ...(calls.length > 0 && { tool_calls }),
      });
      names = calls.map(({ name }) => name);
      const { prompt_eval_count, prompt_cached_kv_count, prompt_cached_ram_count } = last;
      return {
        ...{ thinking, text, calls, pieces },
        promptTokens: Number(prompt_eval_count),
        cachedTokens: Number(prompt_cached_kv_count) + Number(prompt_cached_ram_count),
      };
    },
    async leave() {
      const running = await client.chat(request());
      for await (const { message } of running) if (message.content) break;
      running.abort();
    },
    results: ({ calls }) =>
      void messages.push(
        ...calls.map(({ result }, at) => ({
          role: "tool",
          tool_name: names[at]!,
          content: result,
        })),
      ),
    isTooLong: (error) => /exceeds the available context size/.test(String(error)),
  };
}

const agents: readonly [string, () => Agent][] = [
  ["Anthropic's messages", anthropicAgent],
  ["OpenAI's chat", chatAgent],
  ["OpenAI's responses", responsesAgent],
  ["Ollama's chat", ollamaAgent],
];

describe.each(agents)("%s", (_, make) => {
  test("ten turns, of whose prompts 95 % are cached; interrupted, counted, and too long in the end", async () => {
    const agent = make();
    agent.say("Mend the test.");
    for (const [at, turn] of agentTurns.entries()) {
      if (at === 3) {
        spoken.words = [wordsOf(turn)];
        await agent.leave();
      }
      spoken.words = [wordsOf(turn)];
      const counted = await agent.count?.();
      const heard = await agent.answer();
      const calls = turn.calls.map(({ name, input }) => ({ name, input }));
      expect([at, heard]).toMatchObject([at, { calls, thinking: turn.thinking ?? "" }]);
      expect(heard.text.trim()).toBe(turn.text);
      expect(heard.pieces).toBeGreaterThan(1);
      expect(heard.promptTokens).toBeGreaterThan(15_000);
      if (counted !== undefined) expect(counted).toBe(heard.promptTokens);
      if (at > 0) expect(heard.cachedTokens / heard.promptTokens).toBeGreaterThan(0.95);
      if (turn.calls.length > 0) agent.results(turn);
    }
    agent.say(sentences(5, agentContext));
    const error = await agent.answer().catch((thrown: unknown) => thrown);
    expect([String(error), agent.isTooLong(error)]).toEqual([expect.any(String), true]);
  });
});

test("each protocol lists the model", async () => {
  const anthropic = new Anthropic({ baseURL: server.url, apiKey });
  expect((await anthropic.models.list()).data).toMatchObject([{ id: modelId, type: "model" }]);
  expect((await openaiClient().models.list()).data).toMatchObject([
    { id: modelId, object: "model" },
  ]);
  const { models } = await new Ollama({ host: server.url }).list();
  expect(models).toMatchObject([{ name: modelId }]);
});
