// OpenAI's POST /v1/completions: text, or tokens, to be continued; several prompts at once; echo.

import * as z from "zod";
import type { Timings } from "../../index.ts";
import { readFields } from "../body.ts";
import { type ChoiceEvent, gatherChoices, startChoices } from "../choices.ts";
import type { ServedModel } from "../context.ts";
import { openaiErrors, unsupportedField } from "../errors.ts";
import { inputList, promptInput } from "../inputs.ts";
import { checkStreamOptions, finishReason, newId, openaiRules } from "../openai-fields.ts";
import { completionLogprobs } from "../openai-logprobs.ts";
import { textTokens } from "../prompt.ts";
import { type Call, json, type RouteFamily } from "../route.ts";
import { generateOptions, samplingShape } from "../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../sse.ts";
import { timingsOf, usageOf } from "../timings.ts";

const completionFields = z.object({
  ...samplingShape,
  model: z.string().optional(),
  prompt: promptInput,
  stream: z.boolean().optional(),
  stream_options: z
    .strictObject({
      include_usage: z.boolean().optional(),
      include_obfuscation: z.boolean().optional(),
    })
    .optional(),
  max_tokens: z.int().min(0).optional(),
  n: z.int().min(1).max(128).optional(),
  logprobs: z.int().min(0).max(20).optional(),
  echo: z.boolean().optional(),
});

type CompletionFields = z.infer<typeof completionFields>;

/** OpenAI's default; a model that never ends would otherwise fill its context. */
const defaultMaxTokens = 16;

interface Envelope {
  id: string;
  object: "text_completion";
  created: number;
  model: string;
}

/** A prompt as text (for echo) and as tokens. */
interface TextPrompt {
  text: string;
  tokens: readonly number[];
}

async function completions(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, completionFields, openaiRules);
  const served = server.models.find(fields.model);
  checkStreamOptions(fields);
  if (fields.echo && fields.logprobs !== undefined) {
    throw unsupportedField("echo", "together with logprobs: those of prompts are not computed");
  }
  server.queue.checkRoom(inputList(fields.prompt).length * (fields.n ?? 1));
  const prompts = await readPrompts(served, fields.prompt, fields.echo === true);
  const options = generateOptions(
    fields,
    { maxTokens: fields.max_tokens ?? defaultMaxTokens, logprobs: fields.logprobs },
    server.settings.sampling,
  );
  const requests = prompts.map(({ tokens }) => ({ served, tokens, options }));
  const starting = startChoices(call, requests, fields.n ?? 1);
  const envelope: Envelope = {
    id: newId("cmpl-"),
    object: "text_completion",
    created: Math.floor(server.time() / 1000),
    model: served.id,
  };
  if (!fields.stream) return json(await wholeAnswer(await starting, envelope, fields, prompts));
  const events = await eventsOf(server, starting, (all) => chunks(all, envelope, fields, prompts));
  return eventStream(events, {
    server,
    error: (facts) => [{ data: openaiErrors.body(facts) }],
  });
}

async function readPrompts(
  served: ServedModel,
  prompt: CompletionFields["prompt"],
  withText: boolean,
): Promise<TextPrompt[]> {
  return await Promise.all(
    inputList(prompt).map(async (one) => {
      if (typeof one === "string") return { text: one, tokens: await textTokens(served, one) };
      return { text: withText ? await served.model.detokenize(one) : "", tokens: one };
    }),
  );
}

async function wholeAnswer(
  events: AsyncIterable<ChoiceEvent>,
  envelope: Envelope,
  fields: CompletionFields,
  prompts: readonly TextPrompt[],
): Promise<object> {
  const ended = await gatherChoices(events);
  return {
    ...envelope,
    choices: ended.map(({ index, tokens, result }) => ({
      index,
      text: echoOf(prompts, fields, index) + result.text,
      logprobs: fields.logprobs === undefined ? null : completionLogprobs(tokens, 0),
      finish_reason: finishReason(result.stopReason),
    })),
    usage: usageOfAll(
      ended.map(({ result }) => result.timings),
      fields.n ?? 1,
    ),
    timings: timingsOf(ended[0]!.result.timings),
  };
}

/** The prompt, for whoever wants it in front of the answer. */
function echoOf(prompts: readonly TextPrompt[], { echo, n }: CompletionFields, index: number) {
  return echo ? prompts[Math.floor(index / (n ?? 1))]!.text : "";
}

/** Every prompt once, however many choices it has. */
function usageOfAll(all: readonly Timings[], n: number): object {
  const prompts = all.filter((_, at) => at % n === 0);
  const sum = (list: readonly Timings[], of: (one: Timings) => number): number =>
    list.reduce((total, one) => total + of(one), 0);
  return usageOf([
    {
      ...all[0]!,
      promptTokens: sum(prompts, (one) => one.promptTokens),
      cachedTokens: sum(prompts, (one) => one.cachedTokens),
      generatedTokens: sum(all, (one) => one.generatedTokens),
    },
  ]);
}

async function* chunks(
  events: AsyncIterable<ChoiceEvent>,
  envelope: Envelope,
  fields: CompletionFields,
  prompts: readonly TextPrompt[],
): AsyncGenerator<ServerEvent> {
  const withUsage = fields.stream_options?.include_usage === true;
  const chunk = (choice: object, more: object = {}): ServerEvent => ({
    data: { ...envelope, choices: [choice], ...(withUsage && { usage: null }), ...more },
  });
  const all: Timings[] = [];
  const offsets: number[] = [];
  const choices = prompts.length * (fields.n ?? 1);
  for (let index = 0; fields.echo && index < choices; index++) {
    const text = echoOf(prompts, fields, index);
    yield chunk({ index, text, logprobs: null, finish_reason: null });
  }
  for await (const event of events) {
    const { index } = event;
    if ("result" in event) {
      const { stopReason, timings } = event.result;
      all[index] = timings;
      yield chunk(
        { index, text: "", logprobs: null, finish_reason: finishReason(stopReason) },
        { timings: timingsOf(timings) },
      );
    } else if (event.token.text !== "" || fields.logprobs !== undefined) {
      const { token } = event;
      const offset = offsets[index] ?? 0;
      offsets[index] = offset + token.text.length;
      const logprobs = fields.logprobs === undefined ? null : completionLogprobs([token], offset);
      yield chunk({ index, text: token.text, logprobs, finish_reason: null });
    }
  }
  if (withUsage) {
    yield { data: { ...envelope, choices: [], usage: usageOfAll(all, fields.n ?? 1) } };
  }
  yield { data: "[DONE]" };
}

export const openaiCompletionRoutes: RouteFamily = {
  name: "openai-completions",
  errors: openaiErrors,
  routes: [{ method: "POST", path: "/v1/completions", handle: completions }],
};
