// Anthropic's POST /v1/messages, with its streaming events, and /v1/messages/count_tokens.

import * as z from "zod";
import type { ChatMessage, GenerationResult, StopReason } from "../../index.ts";
import { emptyList, type FieldRules, oneOf, readFields } from "../body.ts";
import { thinking } from "../chat-fields.ts";
import { type Completion, collect, startCompletion } from "../completion.ts";
import { anthropicErrors, invalidRequest } from "../errors.ts";
import { contentInput, listOf, mostMessages } from "../inputs.ts";
import { newId } from "../openai-fields.ts";
import {
  type ChatPromptOptions,
  type Content,
  chatTokenCount,
  chatTokens,
  contentText,
} from "../prompt.ts";
import { type Call, json, type RouteFamily } from "../route.ts";
import { generateOptions, stopString } from "../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../sse.ts";
import { tiersOf } from "../timings.ts";

const promptShape = {
  model: z.string(),
  messages: listOf(
    z.strictObject({ role: z.enum(["user", "assistant", "system"]), content: contentInput }),
    mostMessages,
  ).refine((list) => list.length > 0, "expected at least one message"),
  system: contentInput.optional(),
  /** How long a model thinks is up to the model: a budget is accepted, but not enforced. */
  thinking: z.looseObject({ type: z.enum(["enabled", "disabled", "adaptive"]) }).optional(),
};

const countFields = z.object(promptShape);

const messageFields = z.object({
  ...promptShape,
  max_tokens: z.int().min(1),
  stop_sequences: z.array(stopString).max(32).optional(),
  stream: z.boolean().optional(),
  temperature: z.number().min(0).max(1).optional(),
  top_k: z.int().min(0).optional(),
  top_p: z.number().min(0).max(1).optional(),
});

const noTools = "tools are not supported yet";

const rules: FieldRules = {
  accepted: ["metadata", "service_tier", "inference_geo", "cache_control"],
  refused: {
    tools: { why: noTools, fine: emptyList },
    tool_choice: { why: noTools, fine: noChoice },
    container: { why: "there are no containers" },
    mcp_servers: { why: noTools, fine: emptyList },
    context_management: { why: "prompts are never cut or edited" },
    output_config: { why: "answers are plain text only" },
    output_format: { why: "answers are plain text only" },
    betas: { why: "no beta features are supported", fine: emptyList },
    speed: { why: "there is only one speed", fine: oneOf("standard") },
  },
};

/** Without tools, "none" and "auto" both request nothing. */
function noChoice(value: unknown): boolean {
  const { type } = (typeof value === "object" && value !== null ? value : {}) as { type?: unknown };
  return type === "none" || type === "auto";
}

async function messages(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, messageFields, rules);
  const served = server.models.find(fields.model);
  const said = toMessages(fields, server.settings.maxMessages);
  const tokens = await chatTokens(served, said, chatOptions(call, fields));
  const options = generateOptions(
    { ...fields, stop: fields.stop_sequences },
    { maxTokens: fields.max_tokens },
    server.settings.sampling,
  );
  const starting = startCompletion(call, { served, tokens, options });
  const message = (result: GenerationResult | undefined): object => ({
    id,
    type: "message",
    role: "assistant",
    model: served.id,
    content: result ? [{ type: "text", text: result.text }] : [],
    stop_reason: result ? stopReasons[result.stopReason] : null,
    stop_sequence: result?.stopString ?? null,
    usage: result
      ? usageOf(result)
      : { input_tokens: tokens.length, output_tokens: 0, cache_read_input_tokens: 0 },
  });
  const id = newId("msg_");
  if (!fields.stream) return json(message((await collect(await starting)).result));
  const events = await eventsOf(server, starting, (all) => messageEvents(all, message(undefined)));
  return eventStream(events, {
    server,
    error: (facts) => [{ name: "error", data: anthropicErrors.body(facts) }],
  });
}

/** Template options besides the messages. */
function chatOptions({ server }: Call, fields: z.infer<typeof countFields>): ChatPromptOptions {
  const { thinking: asked } = fields;
  const wanted = asked ? asked.type !== "disabled" : server.settings.thinking;
  return { variables: thinking(wanted) };
}

async function countTokens(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, countFields, rules);
  const served = server.models.find(fields.model);
  const messages = toMessages(fields, server.settings.maxMessages);
  const count = await chatTokenCount(served, messages, chatOptions(call, fields));
  return json({ input_tokens: count });
}

function toMessages(fields: z.infer<typeof countFields>, limit: number): ChatMessage[] {
  if (fields.messages.length > limit) {
    throw invalidRequest(`"messages": got ${fields.messages.length}, expected at most ${limit}`);
  }
  const text = (of: Content, path: string): string => contentText(of, path, ["text"]);
  const said = fields.messages.map(({ role, content: of }, at) => ({
    role,
    content: text(of, `messages[${at}].content`),
  }));
  return fields.system === undefined
    ? said
    : [{ role: "system", content: text(fields.system, "system") }, ...said];
}

const stopReasons: Readonly<Record<StopReason, string>> = {
  end: "end_turn",
  stop: "stop_sequence",
  length: "max_tokens",
  context: "model_context_window_exceeded",
  aborted: "end_turn",
};

/** Anthropic counts cached tokens separately. */
function usageOf({ timings }: GenerationResult): object {
  return {
    input_tokens: timings.promptTokens - timings.cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: timings.cachedTokens,
    cache_read_by_tier: tiersOf(timings),
    output_tokens: timings.generatedTokens,
  };
}

async function* messageEvents(
  completion: Completion,
  message: object,
): AsyncGenerator<ServerEvent> {
  const event = (type: string, more: object = {}): ServerEvent => ({
    name: type,
    data: { type, ...more },
  });
  yield event("message_start", { message });
  yield event("content_block_start", { index: 0, content_block: { type: "text", text: "" } });
  yield event("ping");
  for await (const { text } of completion.tokens()) {
    if (text === "") continue;
    yield event("content_block_delta", { index: 0, delta: { type: "text_delta", text } });
  }
  const result = await completion.result;
  yield event("content_block_stop", { index: 0 });
  yield event("message_delta", {
    delta: {
      stop_reason: stopReasons[result.stopReason],
      stop_sequence: result.stopString ?? null,
    },
    usage: usageOf(result),
  });
  yield event("message_stop");
}

export const anthropicRoutes: RouteFamily = {
  name: "anthropic",
  errors: anthropicErrors,
  routes: [
    { method: "POST", path: "/v1/messages", access: "use", handle: messages },
    { method: "POST", path: "/v1/messages/count_tokens", access: "use", handle: countTokens },
  ],
};
