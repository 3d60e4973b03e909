// OpenAI's POST /v1/responses: one answer with its reasoning and function calls, with the events that its clients expect when it
// is streamed. Nothing is stored: previous_response_id and the like are refused.

import * as z from "zod";
import type { AnswerReaderOptions, ChatMessage, GenerateOptions } from "../../../../src/index.ts";
import { type FieldRules, oneOf, readFields } from "../../body.ts";
import { BlockEvents, ChatAnswer } from "../../chat-answer.ts";
import { promptOptions } from "../../chat-fields.ts";
import {
  checkToolUse,
  choiceOf,
  skipTools,
  type Tool,
  type ToolUse,
  toolDescription,
  toolName,
  toolParameters,
  toolShape,
} from "../../chat-tools.ts";
import { chatTurn, shownTurn } from "../../chat-turn.ts";
import { type Completion, collect, startCompletion } from "../../completion.ts";
import { invalidRequest, openaiErrors } from "../../errors.ts";
import { textFormatInput, textGrammar } from "../../grammar-fields.ts";
import { objectList } from "../../inputs.ts";
import { llamacppShape, maxTokensOf, reportsProgress, slotOf } from "../../llamacpp-fields.ts";
import { withTokenBiases } from "../../logit-bias.ts";
import { openaiRules } from "../../openai-fields.ts";
import { type ChatPromptOptions, chatTokenCount } from "../../prompt.ts";
import { reasoningOptions, reasoningShape } from "../../reasoning-fields.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { generateOptions, samplingOf, samplingShape } from "../../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../../sse.ts";
import { LiveTimings, progressOf, timingFields } from "../../timings.ts";
import { blocksOf, ResponseObject, statusOf } from "./responses-answer.ts";
import { responseMessages } from "./responses-input.ts";

const toolInput = z.strictObject({
  type: z.literal("function", 'expected "function": only functions can be called'),
  name: toolName,
  description: toolDescription.nullish(),
  parameters: toolParameters.nullish(),
  strict: z.boolean().nullish(),
});

const responseFields = z.object({
  ...samplingShape,
  ...llamacppShape,
  ...reasoningShape,
  model: z.string().optional(),
  input: z.union(
    [z.string(), objectList.refine((list) => list.length > 0)],
    "expected a string, or a list of messages",
  ),
  instructions: z.string().optional(),
  stream: z.boolean().optional(),
  max_output_tokens: z.int().min(-1).optional(),
  tools: z.array(toolInput).optional(),
  tool_choice: toolShape.tool_choice,
  parallel_tool_calls: toolShape.parallel_tool_calls,
  text: z
    .strictObject({
      format: textFormatInput.nullish(),
      verbosity: z.string().nullish(),
    })
    .optional(),
  reasoning: z
    .looseObject({ effort: z.string().max(40).nullish(), summary: z.string().nullish() })
    .optional(),
});

type ResponseFields = z.infer<typeof responseFields>;

const stateless = { why: "answers are not stored. Send the whole conversation as input" };

const rules: FieldRules = {
  accepted: [...openaiRules.accepted, "stream_options", "access_programs", "image"],
  refused: {
    ...openaiRules.refused,
    previous_response_id: stateless,
    conversation: stateless,
    background: { ...stateless, fine: oneOf(false) },
    // OpenAI stores unless told otherwise; here true means the same as false.
    store: { why: "expected true or false", fine: (value) => typeof value === "boolean" },
    include: { why: "there is nothing of this to include", fine: onlyReasoning, isAdvice: true },
    prompt: { why: "there are no stored prompts. Send the text as input" },
    truncation: { why: "prompts are never cut", fine: oneOf("disabled"), isAdvice: true },
    context_management: { why: "prompts are never cut or edited", isAdvice: true },
    top_logprobs: { why: "log probabilities are not part of responses", fine: oneOf(0) },
    max_tool_calls: {
      why: "this server calls no tools itself: each call is an answer of its own",
      isAdvice: true,
    },
  },
  adjust(body, ignored) {
    openaiRules.adjust?.(body, ignored);
    skipTools(body, ({ type }) => type === "function", ignored);
  },
};

/** Reasoning is part of the items anyway, as text. */
function onlyReasoning(value: unknown): boolean {
  return Array.isArray(value) && value.every((what) => what === "reasoning.encrypted_content");
}

async function responses(call: Call): Promise<Response> {
  const { server } = call;
  const given = await readFields(call, responseFields, rules);
  const served = await server.models.obtain(given.model);
  const fields = await withTokenBiases(served, given);
  const use = toolUse(fields);
  const turn = await chatTurn(served, {
    messages: toMessages(call, fields),
    use,
    template: chatOptions(call, fields),
    reasoning: reasoningOptions(fields, server.settings),
    grammar: textGrammar(fields, fields.text?.format),
    param: "input",
  });
  const { tokens, plan } = turn;
  call.headers = turn.headers;
  const options: GenerateOptions = {
    ...generateOptions(
      fields,
      { maxTokens: maxTokensOf(fields.max_output_tokens, fields.n_predict) },
      samplingOf(server, served),
    ),
    ...(reportsProgress(fields) && { progress: true }),
    ...turn.options,
  };
  const starting = startCompletion(call, {
    served,
    tokens,
    options,
    slot: slotOf(fields),
    param: "input",
  });
  const response = new ResponseObject({
    ...fields,
    model: served.id,
    created: Math.floor(server.time() / 1000),
    effort: fields.reasoning?.effort,
    tools: fields.tools ?? [],
    tool_choice: use.tools.length === 0 ? "none" : (fields.tool_choice ?? "auto"),
    parallel_tool_calls: use.isParallel,
  });
  if (!fields.stream) {
    const { events, result } = await collect(await starting);
    return json(response.ended(result, ChatAnswer.of(plan, events)));
  }
  const live = new LiveTimings(server.now);
  const events = await eventsOf(server, starting, (all) =>
    responseEvents(all, response, { fields, plan, live }),
  );
  return eventStream(events, {
    server,
    error: ({ message, code }) => [
      {
        name: "error",
        data: { type: "error", code, message, param: null, sequence_number: response.next() },
      },
    ],
  });
}

/** Tools in the form that templates and the other protocols know. */
function toolUse(fields: ResponseFields): ToolUse {
  const tools = (fields.tools ?? []).map(
    ({ name, description, parameters, strict }): Tool => ({
      type: "function",
      function: {
        name,
        ...(description && { description }),
        ...(parameters && { parameters }),
        strict,
      },
    }),
  );
  return checkToolUse({
    tools,
    choice: choiceOf(fields.tool_choice),
    isParallel: fields.parallel_tool_calls ?? true,
    isParsed: true,
  });
}

/** Template options besides the messages. */
function chatOptions({ server }: Call, { reasoning }: ResponseFields): ChatPromptOptions {
  const reasoning_effort = reasoning?.effort ?? undefined;
  return promptOptions({ messages: [], reasoning_effort }, server.settings);
}

/** llama.cpp's POST /v1/responses/input_tokens: the length of the prompt, without an answer. */
async function inputTokens(call: Call): Promise<Response> {
  const fields = await readFields(call, responseFields, rules);
  const served = await call.server.models.obtain(fields.model);
  const messages = toMessages(call, fields);
  const { messages: said, tools } = await shownTurn(served, messages, toolUse(fields));
  const count = await chatTokenCount(served, said, { ...chatOptions(call, fields), tools });
  return json({ object: "response.input_tokens", input_tokens: count });
}

function toMessages({ server, ignored }: Call, fields: ResponseFields): ChatMessage[] {
  const { input, instructions } = fields;
  const limit = server.settings.maxMessages;
  const items = typeof input === "string" ? [{ role: "user", content: input }] : input;
  if (items.length > limit) {
    throw invalidRequest(`"input": got ${items.length} items, expected at most ${limit}`, "input");
  }
  return responseMessages(items, instructions, ignored);
}

async function* responseEvents(
  completion: Completion,
  response: ResponseObject,
  given: { fields: ResponseFields; plan: AnswerReaderOptions | undefined; live: LiveTimings },
): AsyncGenerator<ServerEvent> {
  const { fields, plan, live } = given;
  const answer = new ChatAnswer(plan);
  const blocks = new BlockEvents(answer);
  yield response.event("response.created", { response: response.begun() });
  yield response.event("response.in_progress", { response: response.begun() });
  for await (const token of completion.tokens()) {
    const more = live.see(token) && fields.timings_per_token ? { timings: live.toJson() } : {};
    if (token.progress) {
      if (!fields.return_progress) continue;
      const prompt_progress = progressOf(token.progress);
      const begun = { response: response.begun(), prompt_progress, ...more };
      yield response.event("response.in_progress", begun);
      continue;
    }
    for (const event of blocks.push(token)) {
      yield* response.events(event, more);
      if (event.type === "close") yield response.itemDone(event.block, "completed");
    }
  }
  const result = await completion.result;
  for (const event of blocks.end()) {
    yield* response.events(event, {});
    const isLast = event.block.index === answer.blocks.length - 1;
    const status = isLast ? statusOf(result.stopReason) : "completed";
    if (event.type === "close") yield response.itemDone(event.block, status);
  }
  const all = blocksOf(answer);
  const whole = response.ended(result, answer);
  if (blocks.opened === 0) {
    yield* response.events({ type: "open", block: all[0]!, text: "" }, {});
    yield* response.events({ type: "close", block: all[0]!, text: "" }, {});
    yield response.itemDone(all[0]!, whole.status);
  }
  yield response.event(`response.${whole.status}`, {
    response: whole,
    ...(fields.timings_per_token && timingFields(result.timings)),
  });
}

export const openaiResponseRoutes: RouteFamily = {
  name: "openai-responses",
  errors: openaiErrors,
  routes: ["/v1", ""].flatMap((prefix) => [
    { method: "POST", path: `${prefix}/responses`, access: "use", handle: responses },
    {
      method: "POST",
      path: `${prefix}/responses/input_tokens`,
      access: "use",
      handle: inputTokens,
    },
  ]),
};
