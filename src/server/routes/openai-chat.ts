// OpenAI's POST /v1/chat/completions, with llama.cpp's sampling fields beside OpenAI's own.

import * as z from "zod";
import type { ChatMessage, Timings } from "../../index.ts";
import { checkFields, emptyList, type FieldRules, oneOf, readFields } from "../body.ts";
import { type ChoiceEvent, gatherChoices, startChoices } from "../choices.ts";
import { invalidRequest, openaiErrors, unsupportedField } from "../errors.ts";
import { contentInput, objectList } from "../inputs.ts";
import { checkStreamOptions, finishReason, newId, openaiRules } from "../openai-fields.ts";
import { chatLogprobs } from "../openai-logprobs.ts";
import { chatTokens, contentText } from "../prompt.ts";
import { type Call, json, type RouteFamily } from "../route.ts";
import { generateOptions, samplingShape } from "../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../sse.ts";
import { timingsOf, usageOf } from "../timings.ts";

const messageFields = z.object({
  role: z.enum(["system", "developer", "user", "assistant", "tool", "function"]),
  content: contentInput,
});

const noTools = "calls of tools and their results are not read yet";

const messageRules: FieldRules = {
  accepted: ["name", "refusal", "annotations"],
  refused: {
    tool_calls: { why: noTools, fine: emptyList },
    tool_call_id: { why: noTools },
    function_call: { why: noTools },
    audio: { why: "this server reads text only" },
    reasoning_content: { why: "what a model thought is not read again", fine: oneOf("") },
  },
};

const chatFields = z.object({
  ...samplingShape,
  model: z.string().optional(),
  messages: objectList.refine((list) => list.length > 0, "expected at least one message"),
  stream: z.boolean().optional(),
  stream_options: z
    .strictObject({
      include_usage: z.boolean().optional(),
      include_obfuscation: z.boolean().optional(),
    })
    .optional(),
  max_tokens: z.int().min(0).optional(),
  max_completion_tokens: z.int().min(0).optional(),
  n: z.int().min(1).max(128).optional(),
  logprobs: z.boolean().optional(),
  top_logprobs: z.int().min(0).max(20).optional(),
});

type ChatFields = z.infer<typeof chatFields>;

/** What every chunk and the whole answer begin with. */
interface Envelope {
  id: string;
  created: number;
  model: string;
}

async function chat(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, chatFields, openaiRules);
  const served = server.models.find(fields.model);
  checkStreamOptions(fields);
  if (fields.top_logprobs !== undefined && !fields.logprobs) {
    throw invalidRequest('"top_logprobs" needs "logprobs": true', "top_logprobs");
  }
  const tokens = await chatTokens(served, toMessages(fields.messages, server.settings.maxMessages));
  const options = generateOptions(
    fields,
    {
      maxTokens: fields.max_completion_tokens ?? fields.max_tokens,
      logprobs: fields.logprobs ? (fields.top_logprobs ?? 0) : undefined,
    },
    server.settings.sampling,
  );
  const starting = startChoices(
    call,
    [{ served, tokens, options, param: "messages" }],
    fields.n ?? 1,
  );
  const envelope: Envelope = {
    id: newId("chatcmpl-"),
    created: Math.floor(server.time() / 1000),
    model: served.id,
  };
  if (!fields.stream) return json(await wholeAnswer(await starting, envelope, fields));
  const events = await eventsOf(server, starting, (all) => chunks(all, envelope, fields));
  return eventStream(events, {
    server,
    error: (facts) => [{ data: openaiErrors.body(facts) }],
  });
}

/** OpenAI's messages as the template knows them. */
function toMessages(
  messages: readonly Readonly<Record<string, unknown>>[],
  limit: number,
): ChatMessage[] {
  if (messages.length > limit) {
    throw invalidRequest(
      `"messages": got ${messages.length}, expected at most ${limit}`,
      "messages",
      "too_many_messages",
    );
  }
  return messages.map((message, at) => {
    const path = `messages[${at}]`;
    const { role, content } = checkFields(message, messageFields, messageRules, `${path}.`);
    if (role === "tool" || role === "function") throw unsupportedField(path, noTools);
    const text = contentText(content, `${path}.content`, ["text"]);
    return { role: role === "developer" ? "system" : role, content: text };
  });
}

async function wholeAnswer(
  events: AsyncIterable<ChoiceEvent>,
  envelope: Envelope,
  fields: ChatFields,
): Promise<object> {
  const ended = await gatherChoices(events);
  return {
    ...envelope,
    object: "chat.completion",
    choices: ended.map(({ index, tokens, result }) => ({
      index,
      message: { role: "assistant", content: result.text, refusal: null },
      logprobs: fields.logprobs ? chatLogprobs(tokens) : null,
      finish_reason: finishReason(result.stopReason),
    })),
    usage: usageOf(ended.map(({ result }) => result.timings)),
    timings: timingsOf(ended[0]!.result.timings),
  };
}

async function* chunks(
  events: AsyncIterable<ChoiceEvent>,
  envelope: Envelope,
  fields: ChatFields,
): AsyncGenerator<ServerEvent> {
  const usage = fields.stream_options?.include_usage ? { usage: null } : {};
  const chunk = (choice: object, more: object = {}): ServerEvent => ({
    data: { ...envelope, object: "chat.completion.chunk", choices: [choice], ...usage, ...more },
  });
  const all: Timings[] = [];
  for (let index = 0; index < (fields.n ?? 1); index++) {
    const delta = { role: "assistant", content: "" };
    yield chunk({ index, delta, logprobs: null, finish_reason: null });
  }
  for await (const event of events) {
    const { index } = event;
    if ("result" in event) {
      const { stopReason, timings } = event.result;
      all[index] = timings;
      yield chunk(
        { index, delta: {}, logprobs: null, finish_reason: finishReason(stopReason) },
        { timings: timingsOf(timings) },
      );
    } else if (event.token.text !== "" || fields.logprobs) {
      const logprobs = fields.logprobs ? chatLogprobs([event.token]) : null;
      const delta = { content: event.token.text };
      yield chunk({ index, delta, logprobs, finish_reason: null });
    }
  }
  if (fields.stream_options?.include_usage) {
    yield {
      data: {
        ...envelope,
        object: "chat.completion.chunk",
        choices: [],
        usage: usageOf(all),
        timings: timingsOf(all[0]!),
      },
    };
  }
  yield { data: "[DONE]" };
}

export const openaiChatRoutes: RouteFamily = {
  name: "openai-chat",
  errors: openaiErrors,
  routes: [{ method: "POST", path: "/v1/chat/completions", handle: chat }],
};
