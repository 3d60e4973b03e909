// OpenAI's POST /v1/chat/completions, with llama.cpp's fields in addition to OpenAI's own.

import * as z from "zod";
import type { AnswerReaderOptions, GenerateOptions, Timings } from "../../../../src/index.ts";
import { readFields } from "../../body.ts";
import { ChatAnswer } from "../../chat-answer.ts";
import { promptOptions, templateShape, toMessages } from "../../chat-fields.ts";
import { toolShape, toolUse } from "../../chat-tools.ts";
import { chatTurn, shownTurn } from "../../chat-turn.ts";
import { type ChoiceEvent, gatherChoices, startChoices } from "../../choices.ts";
import type { ServedModel } from "../../context.ts";
import { invalidRequest, openaiErrors } from "../../errors.ts";
import { chatGrammar, responseFormatInput } from "../../grammar-fields.ts";
import {
  fingerprintOf,
  llamacppShape,
  maxTokensOf,
  reportsProgress,
  slotOf,
} from "../../llamacpp-fields.ts";
import { verboseField } from "../../llamacpp-result.ts";
import { withTokenBiases } from "../../logit-bias.ts";
import { chatRules, checkStreamOptions, newId } from "../../openai-fields.ts";
import { chatTokenCount } from "../../prompt.ts";
import { reasoningOptions, reasoningShape } from "../../reasoning-fields.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { generateOptions, samplingOf, samplingShape } from "../../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../../sse.ts";
import { LiveTimings, progressOf, timingFields, usageOf } from "../../timings.ts";
import { answerMessage, deltaOf, finishOf } from "./chat-answer.ts";
import { chatLogprobs } from "./logprobs.ts";

const chatFields = z.object({
  ...samplingShape,
  ...llamacppShape,
  ...templateShape,
  ...toolShape,
  ...reasoningShape,
  response_format: responseFormatInput.optional(),
  model: z.string().optional(),
  stream: z.boolean().optional(),
  stream_options: z
    .strictObject({
      include_usage: z.boolean().optional(),
      include_obfuscation: z.boolean().optional(),
    })
    .optional(),
  max_tokens: z.int().min(-1).optional(),
  max_completion_tokens: z.int().min(-1).optional(),
  n: z.int().min(1).max(128).optional(),
  logprobs: z.boolean().optional(),
  top_logprobs: z.int().min(0).max(20).optional(),
});

type ChatFields = z.infer<typeof chatFields>;

/** The common start of every chunk and of the whole response. */
interface Envelope {
  id: string;
  created: number;
  model: string;
  system_fingerprint: string;
}

/** The common parts of the answers to one request. */
interface Context {
  call: Call;
  fields: ChatFields;
  served: ServedModel;
  tokens: readonly number[];
  options: GenerateOptions;
  envelope: Envelope;
  plan: AnswerReaderOptions | undefined;
}

async function chat(call: Call): Promise<Response> {
  const { server } = call;
  const given = await readFields(call, chatFields, chatRules);
  const served = await server.models.obtain(given.model);
  checkStreamOptions(given);
  if (given.top_logprobs !== undefined && !given.logprobs) {
    throw invalidRequest('"top_logprobs" needs "logprobs": true', "top_logprobs");
  }
  const fields = await withTokenBiases(served, given);
  const messages = toMessages(fields.messages, call);
  const turn = await chatTurn(served, {
    messages,
    use: toolUse(fields),
    template: promptOptions(fields, server.settings),
    reasoning: reasoningOptions(fields, server.settings, true),
    grammar: chatGrammar(fields),
    param: "messages",
  });
  const { tokens, plan } = turn;
  call.headers = turn.headers;
  const options: GenerateOptions = {
    ...generateOptions(
      fields,
      {
        maxTokens: maxTokensOf(fields.max_completion_tokens, fields.max_tokens, fields.n_predict),
        logprobs: fields.logprobs ? (fields.top_logprobs ?? 0) : undefined,
      },
      samplingOf(server, served),
    ),
    ...(reportsProgress(fields) && { progress: true }),
    ...turn.options,
  };
  const starting = startChoices(
    call,
    [{ served, tokens, options, param: "messages" }],
    fields.n ?? 1,
    slotOf(fields),
  );
  const envelope: Envelope = {
    id: newId("chatcmpl-"),
    created: Math.floor(server.time() / 1000),
    model: served.id,
    system_fingerprint: fingerprintOf(server.settings.version),
  };
  const context: Context = { call, fields, served, tokens, options, envelope, plan };
  if (!fields.stream) return json(await wholeAnswer(await starting, context));
  const events = await eventsOf(server, starting, (all) => chunks(all, context));
  return eventStream(events, {
    server,
    error: (facts) => [{ data: openaiErrors.body(facts) }],
  });
}

/** llama.cpp's POST /v1/chat/completions/input_tokens: the length of the prompt, without an answer. */
async function inputTokens(call: Call): Promise<Response> {
  const { settings, models } = call.server;
  const fields = await readFields(call, chatFields, chatRules);
  const served = await models.obtain(fields.model);
  const messages = toMessages(fields.messages, call);
  const { messages: said, tools } = await shownTurn(served, messages, toolUse(fields));
  const count = await chatTokenCount(served, said, { ...promptOptions(fields, settings), tools });
  return json({ object: "response.input_tokens", input_tokens: count });
}

async function wholeAnswer(events: AsyncIterable<ChoiceEvent>, context: Context): Promise<object> {
  const { fields, envelope, plan } = context;
  const ended = await gatherChoices(events);
  const answers = ended.map(({ tokens }) => ChatAnswer.of(plan, tokens));
  return {
    ...envelope,
    object: "chat.completion",
    choices: ended.map(({ index, tokens, result }, at) => {
      const answer = answers[at]!;
      return {
        index,
        message: answerMessage(answer),
        logprobs: fields.logprobs ? chatLogprobs(tokens) : null,
        finish_reason: finishOf(result.stopReason, answer),
      };
    }),
    usage: usageOf(
      ended.map(({ result }) => result.timings),
      reasoningTokensOf(answers),
    ),
    ...timingFields(ended[0]!.result.timings),
    ...(await verbose(context, ended[0]!)),
  };
}

function reasoningTokensOf(answers: readonly ChatAnswer[]): number {
  return answers.reduce((sum, { reasoningTokens }) => sum + reasoningTokens, 0);
}

async function verbose(
  { call, fields, served, tokens, options }: Context,
  { index, slot, result }: Extract<ChoiceEvent, { result: unknown }>,
): Promise<object> {
  const isWanted = fields.verbose ?? call.server.settings.verbose;
  const more = { stream: fields.stream, timingsPerToken: fields.timings_per_token };
  const facts = { index, slot, served, options, more, result };
  return await verboseField(isWanted, tokens, facts);
}

async function* chunks(
  events: AsyncIterable<ChoiceEvent>,
  context: Context,
): AsyncGenerator<ServerEvent> {
  const { call, fields, envelope, plan } = context;
  const withUsage = fields.stream_options?.include_usage === true;
  const chunk = (choice: object, more: object = {}): ServerEvent => ({
    data: {
      ...envelope,
      object: "chat.completion.chunk",
      choices: [choice],
      ...(withUsage && { usage: null }),
      ...more,
    },
  });
  const all: Timings[] = [];
  const live = new Map<number, LiveTimings>();
  const answers = new Map<number, ChatAnswer>();
  for (let index = 0; index < (fields.n ?? 1); index++) {
    answers.set(index, new ChatAnswer(plan));
    const delta = { role: "assistant", content: null };
    yield chunk({ index, delta, logprobs: null, finish_reason: null });
  }
  for await (const event of events) {
    const { index } = event;
    const answer = answers.get(index)!;
    if ("result" in event) {
      const { stopReason, timings } = event.result;
      all[index] = timings;
      for (const part of answer.end()) {
        yield chunk({ index, delta: deltaOf(part), logprobs: null, finish_reason: null });
      }
      yield chunk(
        { index, delta: {}, logprobs: null, finish_reason: finishOf(stopReason, answer) },
        { ...timingFields(timings), ...(await verbose(context, event)) },
      );
      continue;
    }
    const { token } = event;
    const timings = live.get(index) ?? new LiveTimings(call.server.now);
    live.set(index, timings.see(token));
    const more = fields.timings_per_token ? { timings: timings.toJson() } : {};
    if (token.progress) {
      if (!fields.return_progress) continue;
      const prompt_progress = progressOf(token.progress);
      yield chunk(
        { index, delta: {}, logprobs: null, finish_reason: null },
        { ...more, prompt_progress },
      );
    } else {
      // A token may add several parts, or none that is certain yet: its log-probabilities go with the first.
      let logprobs = fields.logprobs ? chatLogprobs([token]) : null;
      const deltas = answer.push(token).map(deltaOf);
      if (deltas.length === 0 && logprobs !== null) deltas.push({});
      for (const delta of deltas) {
        yield chunk({ index, delta, logprobs, finish_reason: null }, more);
        logprobs = null;
      }
    }
  }
  if (withUsage) {
    yield {
      data: {
        ...envelope,
        object: "chat.completion.chunk",
        choices: [],
        usage: usageOf(all, reasoningTokensOf([...answers.values()])),
        ...timingFields(all[0]!),
      },
    };
  }
  yield { data: "[DONE]" };
}

export const openaiChatRoutes: RouteFamily = {
  name: "openai-chat",
  errors: openaiErrors,
  routes: ["/v1", ""].flatMap((prefix) => [
    { method: "POST", path: `${prefix}/chat/completions`, access: "use", handle: chat },
    {
      method: "POST",
      path: `${prefix}/chat/completions/input_tokens`,
      access: "use",
      handle: inputTokens,
    },
  ]),
};
