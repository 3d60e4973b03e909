// Streams that have nothing to send yet: comments keep them open, other clients ignore them, and errors while waiting
// are still reported. The test takes all turns, so that a request waits until it says so.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { streamText } from "ai";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Turn } from "../../apps/server/queue.ts";
import type { RunningServer } from "../../apps/server/serve.ts";
import { type Model, open } from "../../src/index.ts";
import { all, modelId, post, prompt, serveModel, until } from "./test-server.ts";

const maxTokens = 8;
const messages = [{ role: "user" as const, content: prompt }];
const body = { model: modelId, messages, max_tokens: maxTokens, temperature: 0, stream: true };
const comment = ": waiting\n\n";

let model: Model;
let expected: string;
const log: string[] = [];
beforeAll(async () => {
  model = await open(modelId, { threads: 1, parallel: 2 });
  const { result } = model.generate(prompt, { temperature: 0, maxTokens });
  expected = (await result).text;
});
afterAll(async () => {
  await model.dispose();
  expect(log).toEqual([]);
});

/** A server whose only place is taken; the heart beats every few milliseconds. */
async function withBusyServer(
  work: (server: RunningServer, turn: Turn) => Promise<void>,
  queue: number = 8,
): Promise<void> {
  const server = await serveModel(model, log, { parallel: 1, queue, heartbeatMs: 5 });
  const turn = await server.context.queue.enter("the test", new AbortController().signal);
  try {
    await work(server, turn);
  } finally {
    turn.release();
    await server.stop();
  }
}

/** Reads until there are so many comments; returns the reader and what came. */
async function comments(response: Response, count: number) {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (text.split(comment).length <= count) text += (await reader.read()).value!;
  return { reader, text };
}

describe("a request that waits for its turn", () => {
  test("gets comments, then its events", async () => {
    await withBusyServer(async (server, turn) => {
      const response = await post(`${server.url}/v1/chat/completions`, body);
      expect(response.status).toBe(200);
      const { reader, text } = await comments(response, 3);
      expect(text.replaceAll(comment, "")).toBe(""); // nothing else yet
      turn.release();
      let rest = "";
      for (let step = await reader.read(); !step.done; step = await reader.read()) {
        rest += step.value;
      }
      const events = rest.replaceAll(comment, "");
      expect(events).toMatch(/^data: \{/);
      expect(events).toMatch(/\n\ndata: \[DONE\]\n\n$/);
    });
  });

  test("of another protocol as well", async () => {
    await withBusyServer(async (server, turn) => {
      const { url } = server;
      const answers = await Promise.all([
        post(`${url}/v1/completions`, { ...body, messages: undefined, prompt }),
        post(`${url}/v1/responses`, { model: modelId, input: prompt, stream: true }),
        post(`${url}/v1/messages`, body),
        post(`${url}/completion`, { prompt, n_predict: 4, stream: true }),
      ]);
      const read = await Promise.all(answers.map((answer) => comments(answer, 2)));
      expect(read.map(({ text }) => text.replaceAll(comment, ""))).toEqual(["", "", "", ""]);
      await Promise.all(read.map(({ reader }) => reader.cancel()));
      await until("all have left the queue", () => server.context.queue.waiting === 0);
      turn.release();
    });
  });

  test("is refused with a status when that is known at once", async () => {
    await withBusyServer(async (server) => {
      const response = await post(`${server.url}/v1/chat/completions`, body);
      expect(response.status).toBe(429);
    }, 0);
  });

  test("is told when the server ends", async () => {
    await withBusyServer(async (server) => {
      const response = await post(`${server.url}/v1/chat/completions`, body);
      const { reader } = await comments(response, 1);
      const stopped = server.stop();
      let rest = "";
      for (let step = await reader.read(); !step.done; step = await reader.read()) {
        rest += step.value;
      }
      expect(rest).toMatch(/data: \{"error":\{[^\n]*"server_stopping"\}\}\n\n$/);
      await stopped;
    });
  });
});

describe("other people's clients do not see comments", () => {
  /** Starts a request, lets it wait for some heartbeats, then lets it run. */
  const afterBeats = (work: (url: string) => Promise<string>) =>
    withBusyServer(async (server, turn) => {
      const text = work(server.url);
      await until("it waits", () => server.context.queue.waiting === 1);
      await new Promise((resolve) => setTimeout(resolve, 60)); // some heartbeats
      turn.release();
      expect(await text).toBe(expected);
    });

  test("openai", async () => {
    await afterBeats(async (url) => {
      const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
      const stream = await client.chat.completions.create({ ...body, stream: true });
      const chunks = await all(stream);
      return chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("");
    });
  });

  test("openai, responses", async () => {
    await afterBeats(async (url) => {
      const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
      const stream = await client.responses.create({
        model: modelId,
        input: prompt,
        temperature: 0,
        max_output_tokens: maxTokens,
        stream: true,
      });
      const events = await all(stream);
      return events
        .map((event) => (event.type === "response.output_text.delta" ? event.delta : ""))
        .join("");
    });
  });

  test("@anthropic-ai/sdk", async () => {
    await afterBeats(async (baseURL) => {
      const client = new Anthropic({ baseURL, apiKey: "none", maxRetries: 0 });
      const message = await client.messages
        .stream({ model: modelId, messages, max_tokens: maxTokens, temperature: 0 })
        .finalMessage();
      return message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
    });
  });

  test("ai + @ai-sdk/openai-compatible", async () => {
    await afterBeats(async (url) => {
      const provider = createOpenAICompatible({ name: "lantern", baseURL: `${url}/v1` });
      const { textStream } = streamText({
        model: provider(modelId),
        prompt,
        temperature: 0,
        maxOutputTokens: maxTokens,
        maxRetries: 0,
      });
      return (await all(textStream)).join("");
    });
  });
});
