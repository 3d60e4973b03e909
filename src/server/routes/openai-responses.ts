// OpenAI's POST /v1/responses, for text: one answer, with the events that its clients expect when it is streamed.
// Nothing is stored: previous_response_id and the like are refused.

import * as z from "zod";
import type { ChatMessage, GenerateOptions, GenerationResult } from "../../index.ts";
import { checkFields, emptyList, type FieldRules, oneOf, readFields } from "../body.ts";
import { promptOptions } from "../chat-fields.ts";
import { type Completion, collect, startCompletion } from "../completion.ts";
import { invalidRequest, openaiErrors, unsupportedField } from "../errors.ts";
import { contentInput, objectList } from "../inputs.ts";
import { llamacppShape, maxTokensOf, reportsProgress, slotOf } from "../llamacpp-fields.ts";
import { withTokenBiases } from "../logit-bias.ts";
import { newId, openaiRules } from "../openai-fields.ts";
import { type ChatPromptOptions, chatTokenCount, chatTokens, contentText } from "../prompt.ts";
import { type Call, json, type RouteFamily } from "../route.ts";
import { generateOptions, samplingShape } from "../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../sse.ts";
import { cachedDetails, LiveTimings, progressOf, timingsOf } from "../timings.ts";

const inputItem = z.object({
  type: z.string().optional(),
  role: z.enum(["system", "developer", "user", "assistant"]).optional(),
  content: contentInput.optional(),
});

const responseFields = z.object({
  ...samplingShape,
  ...llamacppShape,
  model: z.string().optional(),
  input: z.union(
    [z.string(), objectList.refine((list) => list.length > 0)],
    "expected a string, or a list of messages",
  ),
  instructions: z.string().optional(),
  stream: z.boolean().optional(),
  max_output_tokens: z.int().min(-1).optional(),
  reasoning: z
    .looseObject({ effort: z.string().max(40).nullish(), summary: z.string().nullish() })
    .optional(),
});

/** Items of an earlier response come with their id and status. */
const itemRules: FieldRules = { accepted: ["id", "status", "phase"], refused: {} };

type ResponseFields = z.infer<typeof responseFields>;

const stateless = { why: "answers are not stored. Send the whole conversation as input" };

const rules: FieldRules = {
  accepted: [...openaiRules.accepted, "stream_options"],
  refused: {
    ...openaiRules.refused,
    previous_response_id: stateless,
    conversation: stateless,
    background: { ...stateless, fine: oneOf(false) },
    // OpenAI stores unless told otherwise; here true means the same as false.
    store: { why: "expected true or false", fine: (value) => typeof value === "boolean" },
    include: { why: "there is nothing to include", fine: emptyList },
    prompt: { why: "there are no stored prompts. Send the text as input" },
    text: {
      why: "answers are plain text only, and their length cannot be set this way",
      fine: plainText,
    },
    truncation: { why: "prompts are never cut", fine: oneOf("disabled") },
    top_logprobs: { why: "log probabilities are not part of responses", fine: oneOf(0) },
    max_tool_calls: { why: "tools are not supported yet" },
  },
};

function plainText(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { format, verbosity } = value as {
    format?: { type?: unknown } | null;
    verbosity?: unknown;
  };
  const usual = verbosity === undefined || verbosity === null || verbosity === "medium";
  return usual && (format === undefined || format === null || format.type === "text");
}

async function responses(call: Call): Promise<Response> {
  const { server } = call;
  const given = await readFields(call, responseFields, rules);
  const served = server.models.find(given.model);
  const fields = await withTokenBiases(served, given);
  const messages = toMessages(fields, server.settings.maxMessages);
  const tokens = await chatTokens(served, messages, chatOptions(call, fields), "input");
  const options: GenerateOptions = {
    ...generateOptions(
      fields,
      { maxTokens: maxTokensOf(fields.max_output_tokens, fields.n_predict) },
      server.settings.sampling,
    ),
    ...(reportsProgress(fields) && { progress: true }),
  };
  const starting = startCompletion(call, {
    served,
    tokens,
    options,
    slot: slotOf(fields),
    param: "input",
  });
  const answer = new ResponseObject(fields, served.id, Math.floor(server.time() / 1000));
  if (!fields.stream) {
    const { result } = await collect(await starting);
    return json(answer.ended(result));
  }
  const events = await eventsOf(server, starting, (all) =>
    responseEvents(all, answer, fields, new LiveTimings(server.now)),
  );
  return eventStream(events, {
    server,
    error: ({ message, code }) => [
      {
        name: "error",
        data: { type: "error", code, message, param: null, sequence_number: answer.next() },
      },
    ],
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
  const served = call.server.models.find(fields.model);
  const messages = toMessages(fields, call.server.settings.maxMessages);
  const count = await chatTokenCount(served, messages, chatOptions(call, fields));
  return json({ object: "response.input_tokens", input_tokens: count });
}

function toMessages(fields: ResponseFields, limit: number): ChatMessage[] {
  const { input, instructions } = fields;
  const items = typeof input === "string" ? [{ role: "user", content: input }] : input;
  if (items.length > limit) {
    throw invalidRequest(`"input": got ${items.length} items, expected at most ${limit}`, "input");
  }
  const messages = items.map((given: Readonly<Record<string, unknown>>, at): ChatMessage => {
    const path = `input[${at}]`;
    const type = given.type ?? "message"; // first: items of other types have other fields
    if (type !== "message") {
      throw unsupportedField(path, `items of type "${String(type).slice(0, 60)}"`);
    }
    const item = checkFields(given, inputItem, itemRules, `${path}.`);
    if (item.role === undefined || item.content === undefined) {
      throw invalidRequest(`"${path}": expected role and content`, path);
    }
    const types = ["input_text", "output_text", "text"];
    return {
      role: item.role === "developer" ? "system" : item.role,
      content: contentText(item.content, `${path}.content`, types),
    };
  });
  return instructions === undefined
    ? messages
    : [{ role: "system", content: instructions }, ...messages];
}

/** The response object, which is part of several events. */
class ResponseObject {
  readonly itemId: string = newId("msg_");
  readonly #id = newId("resp_");
  readonly #fields: ResponseFields;
  readonly #model: string;
  readonly #created: number;
  #sequence = 0;

  constructor(fields: ResponseFields, model: string, created: number) {
    this.#fields = fields;
    this.#model = model;
    this.#created = created;
  }

  /** The number of the next event. */
  next(): number {
    return this.#sequence++;
  }

  item(status: string, text: string | undefined): object {
    const content = text === undefined ? [] : [textPart(text)];
    return { type: "message", id: this.itemId, status, role: "assistant", content };
  }

  begun(): object {
    return this.#object("in_progress", [], null, null);
  }

  ended(result: GenerationResult): object {
    const { stopReason, timings, text } = result;
    const full = stopReason === "length" || stopReason === "context";
    const status = full ? "incomplete" : "completed";
    const usage = {
      input_tokens: timings.promptTokens,
      input_tokens_details: cachedDetails(timings),
      output_tokens: timings.generatedTokens,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: timings.promptTokens + timings.generatedTokens,
    };
    const details = full ? { reason: "max_output_tokens" } : null;
    return {
      ...this.#object(status, [this.item(status, text)], usage, details),
      timings: timingsOf(timings),
    };
  }

  #object(
    status: string,
    output: object[],
    usage: object | null,
    incomplete: object | null,
  ): object {
    const fields = this.#fields;
    return {
      id: this.#id,
      object: "response",
      created_at: this.#created,
      status,
      error: null,
      incomplete_details: incomplete,
      instructions: fields.instructions ?? null,
      max_output_tokens: fields.max_output_tokens ?? null,
      model: this.#model,
      output,
      parallel_tool_calls: false,
      previous_response_id: null,
      reasoning: { effort: fields.reasoning?.effort ?? null, summary: null },
      store: false,
      temperature: fields.temperature ?? null,
      text: { format: { type: "text" } },
      tool_choice: "none",
      tools: [],
      top_p: fields.top_p ?? null,
      truncation: "disabled",
      usage,
      metadata: {},
    };
  }
}

function textPart(text: string): object {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

async function* responseEvents(
  completion: Completion,
  answer: ResponseObject,
  fields: ResponseFields,
  live: LiveTimings,
): AsyncGenerator<ServerEvent> {
  const event = (type: string, more: object): ServerEvent => ({
    name: type,
    data: { type, sequence_number: answer.next(), ...more },
  });
  const at = { item_id: answer.itemId, output_index: 0, content_index: 0 };
  yield event("response.created", { response: answer.begun() });
  yield event("response.in_progress", { response: answer.begun() });
  let isItemOpen = false;
  function* openItem(): Generator<ServerEvent> {
    if (isItemOpen) return;
    isItemOpen = true;
    const item = answer.item("in_progress", undefined);
    yield event("response.output_item.added", { output_index: 0, item });
    yield event("response.content_part.added", { ...at, part: textPart("") });
  }
  if (!fields.return_progress) yield* openItem();
  for await (const token of completion.tokens()) {
    const more = live.see(token) && fields.timings_per_token ? { timings: live.toJson() } : {};
    if (token.progress) {
      if (!fields.return_progress) continue;
      const prompt_progress = progressOf(token.progress);
      yield event("response.in_progress", { response: answer.begun(), prompt_progress, ...more });
      continue;
    }
    yield* openItem();
    if (token.text === "") continue;
    yield event("response.output_text.delta", {
      ...at,
      delta: token.text,
      logprobs: [],
      ...more,
    });
  }
  yield* openItem();
  const result = await completion.result;
  const whole = answer.ended(result) as { status: string };
  yield event("response.output_text.done", { ...at, text: result.text, logprobs: [] });
  yield event("response.content_part.done", { ...at, part: textPart(result.text) });
  const done = answer.item(whole.status, result.text);
  yield event("response.output_item.done", { output_index: 0, item: done });
  yield event(`response.${whole.status}`, {
    response: whole,
    ...(fields.timings_per_token && { timings: timingsOf(result.timings) }),
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
