// Anthropic's POST /v1/messages, with tools, thinking and its streaming events, and /v1/messages/count_tokens.

import * as z from "zod";
import { byName } from "../../../../src/base/by-name.ts";
import type {
  AnswerReaderOptions,
  ChatMessage,
  GenerateOptions,
  GenerationResult,
  StopReason,
} from "../../../../src/index.ts";
import { generationTable } from "../../../../src/options/generation.ts";
import { textsInput } from "../../../sessions/option-input.ts";
import { emptyList, type FieldRules, oneOf, readFields } from "../../body.ts";
import { type AnswerBlock, BlockEvents, ChatAnswer } from "../../chat-answer.ts";
import { templateDefaults, thinking } from "../../chat-fields.ts";
import {
  checkToolUse,
  skipTools,
  type Tool,
  type ToolChoice,
  type ToolUse,
  toolDescription,
  toolName,
  toolParameters,
} from "../../chat-tools.ts";
import { chatTurn, shownTurn } from "../../chat-turn.ts";
import { type Completion, collect, startCompletion } from "../../completion.ts";
import { anthropicErrors, invalidRequest, noThreads } from "../../errors.ts";
import { textGrammar } from "../../grammar-fields.ts";
import { contentInput, listOf, mostMessages } from "../../inputs.ts";
import { newId } from "../../openai-fields.ts";
import { type ChatPromptOptions, chatTokenCount, contentText } from "../../prompt.ts";
import { reasoningOptions } from "../../reasoning-fields.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { anthropicShape, generateOptions, samplingOf } from "../../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../../sse.ts";
import { tiersOf } from "../../timings.ts";
import { anthropicTurns, blockEvents, contentBlocks } from "./messages.ts";

const toolInput = z.strictObject({
  type: z.literal("custom", 'expected "custom": this server runs no tools itself').nullish(),
  name: toolName,
  description: toolDescription.optional(),
  input_schema: toolParameters,
  strict: z.boolean().nullish(),
  cache_control: z.unknown().optional(),
  eager_input_streaming: z.boolean().nullish(),
  input_examples: z.array(z.unknown()).optional(),
});

const toolChoice = z.strictObject({
  type: z.enum(["auto", "any", "tool", "none"]),
  name: z.string().optional(),
  disable_parallel_tool_use: z.boolean().optional(),
});

const outputFormat = z.strictObject(
  { type: z.literal("json_schema"), schema: z.record(z.string(), z.unknown()) },
  'expected an object with the type "json_schema" and a schema',
);

const promptShape = {
  model: z.string(),
  messages: listOf(
    z.strictObject({ role: z.enum(["user", "assistant", "system"]), content: contentInput }),
    mostMessages,
  ).refine((list) => list.length > 0, "expected at least one message"),
  system: contentInput.optional(),
  thinking: z
    .looseObject({
      type: z.enum(["enabled", "disabled", "adaptive"]),
      budget_tokens: z.int().min(1).optional(),
    })
    .optional(),
  tools: z.array(toolInput).optional(),
  tool_choice: toolChoice.optional(),
  thread: z.unknown().optional(),
  output_config: z
    .strictObject({ effort: z.string().max(40).nullish(), format: outputFormat.nullish() })
    .optional(),
  /** The same, under its older name. */
  output_format: outputFormat.optional(),
};

const countFields = z.object(promptShape);

const messageFields = z.object({
  ...promptShape,
  max_tokens: z.int().min(1),
  stop_sequences: textsInput(generationTable.stop).optional(),
  stream: z.boolean().optional(),
  ...anthropicShape,
  cache_disk: z.boolean().optional(),
});

const rules: FieldRules = {
  accepted: [
    ...["metadata", "service_tier", "inference_geo", "cache_control", "user_profile_id"],
    ...["workspace_id", "diagnostics", "safeguards", "fallback_credit_token"],
  ],
  refused: {
    container: { why: "there are no containers", isAdvice: true },
    mcp_servers: { why: "this server calls no tools itself", fine: emptyList, isAdvice: true },
    context_management: { why: "prompts are never cut or edited", isAdvice: true },
    compaction: { why: "prompts are never cut or edited", isAdvice: true },
    fallbacks: { why: "there is no other model to fall back to", fine: emptyList, isAdvice: true },
    betas: { why: "no beta features are supported", fine: emptyList, isAdvice: true },
    speed: { why: "there is only one speed", fine: oneOf("standard"), isAdvice: true },
  },
  adjust(body, ignored) {
    skipTools(body, ({ type = "custom" }) => type === "custom" || type === null, ignored);
  },
};

const choices: Readonly<Record<string, ToolChoice>> = byName({
  auto: "auto",
  any: "required",
  none: "none",
});

type PromptFields = z.infer<typeof countFields>;

/** Tools in the form that templates and the other protocols know. */
function toolUse({ tools = [], tool_choice: given }: PromptFields): ToolUse {
  const { type = "auto", name = "", disable_parallel_tool_use = false } = given ?? {};
  return checkToolUse({
    tools: tools.map(
      (tool): Tool => ({
        type: "function",
        function: {
          name: tool.name,
          ...(tool.description !== undefined && { description: tool.description }),
          parameters: tool.input_schema,
          strict: tool.strict,
        },
      }),
    ),
    choice: type === "tool" ? { name } : choices[type]!,
    isParallel: !disable_parallel_tool_use,
    isParsed: true,
  });
}

async function messages(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, messageFields, rules);
  if (fields.thread !== undefined) throw noThreads();
  const served = await server.models.obtain(fields.model);
  const turn = await chatTurn(served, {
    messages: toMessages(call, fields),
    use: toolUse(fields),
    template: chatOptions(call, fields),
    reasoning: reasoningOptions(
      { reasoning_budget_tokens: fields.thinking?.budget_tokens },
      server.settings,
    ),
    grammar: textGrammar({}, fields.output_config?.format ?? fields.output_format),
    param: "messages",
  });
  const { tokens, plan } = turn;
  call.headers = turn.headers;
  const options: GenerateOptions = {
    ...generateOptions(
      { ...fields, stop: fields.stop_sequences },
      { maxTokens: fields.max_tokens },
      samplingOf(server, served),
    ),
    ...turn.options,
  };
  const starting = startCompletion(call, { served, tokens, options });
  const id = newId("msg_");
  const head = { id, type: "message", role: "assistant", model: served.id };
  if (!fields.stream) {
    const { events, result } = await collect(await starting);
    const answer = ChatAnswer.of(plan, events, callPrefix);
    const content = contentBlocks(answer);
    return json({ ...head, content, ...endOf(result, answer), usage: usageOf(result) });
  }
  const begun = {
    ...head,
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: tokens.length, output_tokens: 0, cache_read_input_tokens: 0 },
  };
  const events = await eventsOf(server, starting, (all) => messageEvents(all, begun, plan));
  return eventStream(events, {
    server,
    error: (facts) => [{ name: "error", data: anthropicErrors.body(facts) }],
  });
}

const callPrefix = "toolu_";

/** Template options besides the messages. */
function chatOptions({ server }: Call, fields: PromptFields): ChatPromptOptions {
  const { thinking: asked, output_config: output } = fields;
  const effort = output?.effort ?? undefined;
  return {
    variables: {
      ...templateDefaults(server.settings),
      ...(effort !== undefined && { reasoning_effort: effort }),
      ...(asked && thinking(asked.type !== "disabled")),
    },
  };
}

async function countTokens(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, countFields, rules);
  const served = await server.models.obtain(fields.model);
  const messages = toMessages(call, fields);
  const { messages: said, tools } = await shownTurn(served, messages, toolUse(fields));
  const count = await chatTokenCount(served, said, { ...chatOptions(call, fields), tools });
  return json({ input_tokens: count });
}

function toMessages({ server, ignored }: Call, fields: PromptFields): ChatMessage[] {
  const limit = server.settings.maxMessages;
  if (fields.messages.length > limit) {
    throw invalidRequest(`"messages": got ${fields.messages.length}, expected at most ${limit}`);
  }
  const said = anthropicTurns(fields.messages, ignored);
  return fields.system === undefined
    ? said
    : [{ role: "system", content: contentText(fields.system, "system", ["text"]) }, ...said];
}

const stopReasons: Readonly<Record<StopReason, string>> = {
  end: "end_turn",
  stop: "stop_sequence",
  length: "max_tokens",
  context: "model_context_window_exceeded",
  aborted: "end_turn",
};

/** Anthropic counts cached tokens separately. */
function usageOf({ timings }: GenerationResult): Record<string, number> {
  const { kv, ram, disk } = tiersOf(timings);
  return {
    input_tokens: timings.promptTokens - timings.cachedTokens,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: timings.cachedTokens,
    cache_read_kv_tokens: kv, // ours, as the next two
    cache_read_ram_tokens: ram,
    cache_read_disk_tokens: disk,
    output_tokens: timings.generatedTokens,
  };
}

function endOf({ stopReason, stopString }: GenerationResult, answer: ChatAnswer): object {
  const isCall = stopReason === "end" && answer.hasCalls;
  return {
    stop_reason: isCall ? "tool_use" : stopReasons[stopReason],
    stop_sequence: stopString ?? null,
  };
}

async function* messageEvents(
  completion: Completion,
  message: object,
  plan: AnswerReaderOptions | undefined,
): AsyncGenerator<ServerEvent> {
  const event = (type: string, more: object = {}): ServerEvent => ({
    name: type,
    data: { type, ...more },
  });
  const answer = new ChatAnswer(plan, callPrefix);
  const blocks = new BlockEvents(answer);
  yield event("message_start", { message });
  yield event("ping");
  for await (const token of completion.tokens()) {
    for (const one of blocks.push(token)) {
      for (const [type, data] of blockEvents(one)) yield event(type, data);
    }
  }
  const result = await completion.result;
  for (const one of blocks.end()) {
    for (const [type, data] of blockEvents(one)) yield event(type, data);
  }
  if (blocks.opened === 0) {
    const empty: AnswerBlock = { index: 0, kind: "content", text: "", id: "", name: "" };
    for (const type of ["open", "close"] as const) {
      for (const [name, data] of blockEvents({ type, block: empty, text: "" })) {
        yield event(name, data);
      }
    }
  }
  yield event("message_delta", { delta: endOf(result, answer), usage: usageOf(result) });
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
