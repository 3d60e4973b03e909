// Reasoning and tool calls of conversations over HTTP: what is shown to the template, streamed, and refused. The model's
// words are given.

import { afterEach, expect, test } from "vitest";
import { type RunningServer, startServer } from "../../apps/server/serve.ts";
import type { Message } from "../../apps/sessions/session.ts";
import type { ChatMessage, GenerateOptions, Model, TemplateOptions } from "../../src/index.ts";
import { openNodeDatabase } from "../../src/platform/node-database.ts";
import { marked } from "../chat/json-format.ts";
import { scratchFile } from "../sessions/fakes.ts";
import { type Script, scriptedModel } from "../web/scripted-model.ts";
import { follow, request } from "./lantern-client.ts";

let server: RunningServer | undefined;
afterEach(async () => {
  await server?.stop();
  server = undefined;
});

/** What the template was asked to render. */
interface Rendered {
  messages: readonly ChatMessage[];
  options: TemplateOptions | undefined;
}

async function serve(script: Script, settings: object = {}) {
  const rendered: Rendered[] = [];
  const model = scriptedModel(script);
  const applyTemplate: Model["applyTemplate"] = (messages, options) => {
    rendered.push({ messages, options });
    return model.applyTemplate(messages, options);
  };
  const file = scratchFile();
  server = await startServer({
    models: { m: { ...model, applyTemplate } as Model },
    version: "test",
    port: 0,
    graceMs: 0,
    token: false,
    sessions: () => openNodeDatabase(file),
    log: () => {},
  });
  const base = `${server.url}/lantern/v1`;
  const session = await request<{ id: string }>(`${base}/sessions`, "POST", { settings }, 201);
  const url = `${base}/sessions/${session.id}`;
  const ask = async (body: object) => {
    const begun = await request<{ run: { id: string } }>(`${url}/messages`, "POST", body, 201);
    return await follow(`${base}/runs/${begun.run.id}/events?after=0`);
  };
  const last = async (): Promise<Message> =>
    (await request<{ messages: Message[] }>(`${url}/messages`)).messages.at(-1)!;
  return { url, ask, last, rendered };
}

const tool = { name: "add", description: "Adds.", parameters: { type: "object" } };
const words = '<think>So.</think>Well.<call>{"name":"add","arguments":{"a":[1,2]}}</call>';

test("a call is streamed, gets its result, and goes back to the template with it", async () => {
  const replies = [words, "3"];
  const wanted: GenerateOptions[] = [];
  const answer: Script["answer"] = (_, options) => {
    wanted.push(options);
    return replies.shift()!;
  };
  const { url, ask, last, rendered } = await serve(
    { answer, format: marked },
    { tools: [tool], thinking: false },
  );
  const events = await ask({ content: "1+2?" });
  const texts = (name: string) =>
    events.map((event) => (event.name === name ? event.data.text : "")).join("");
  expect([texts("reasoning"), texts("delta"), texts("arguments")]).toEqual([
    "So.",
    "Well.",
    '{"a":[1,2]}',
  ]);
  expect(rendered[0]!.options).toMatchObject({
    tools: [{ type: "function", function: tool }],
    variables: { enable_thinking: false },
  });
  expect(wanted[0]).toMatchObject({ special: true }); // marks are often control tokens
  expect(wanted[0]).not.toHaveProperty("tools");
  const { id, calls } = await last();
  const [call] = calls;
  const waiting = await request(`${url}/messages`, "POST", { content: "?" }, 409);
  expect(waiting).toMatchObject({ error: { code: "calls_waiting" } });
  const wrong = { message: id, call: call!.id, state: "waiting" };
  await request(`${url}/calls`, "POST", wrong, 400);
  await request(`${url}/calls`, "POST", { message: id, call: "call_0", result: "3" }, 404);
  const given = await request(`${url}/calls`, "POST", { message: id, call: call!.id, result: "3" });
  expect(given).toMatchObject({ message: { calls: [{ state: "done", result: "3", by: "hand" }] } });
  await ask({ parent: id });
  expect(await last()).toMatchObject({ parent: id, content: "3", reasoning: null });
  expect(rendered.at(-1)!.messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
});

test("an answer that goes on has no grammar: that of calls begins with the answer", async () => {
  const wanted: GenerateOptions[] = [];
  const answer: Script["answer"] = (_, options) => {
    wanted.push(options);
    return "Well, that is three.";
  };
  const settings = { tools: [tool], maxTokens: 1 }; // it is cut off
  const { url, ask, last } = await serve({ answer, format: marked }, settings);
  await ask({ content: "1+2?" });
  const { id } = await last();
  await request(`${url}/continue`, "POST", { message: id }, 201);
  await expect.poll(async () => (await last()).content).toBe("WellWell");
  expect(wanted.map(({ grammar }) => grammar !== undefined)).toEqual([true, false]);
});

test("tools are refused where a name is wrong or taken, and a field unknown", async () => {
  const { url } = await serve({ answer: () => "Hi" });
  const change = (tools: object[], status: number) =>
    request(url, "PATCH", { settings: { tools } }, status);
  expect(await change([tool, tool], 400)).toMatchObject({
    error: { message: expect.stringContaining("two tools have the same name") },
  });
  await change([{ ...tool, name: "a b" }], 400);
  await change([{ ...tool, run: "rm" }], 400);
  await change([tool], 200);
});

test("a model whose format has no calls is told how to call tools", async () => {
  const { reasoning, turnEnds } = marked;
  const { ask, rendered } = await serve(
    { answer: () => "Hi", format: { reasoning, turnEnds } },
    { tools: [tool] },
  );
  await ask({ content: "Hi" });
  expect(JSON.stringify(rendered)).toContain("You can call these tools");
});
