// OpenAI's POST /v1/completions: continues text or tokens; several prompts at once; echo.

import * as z from "zod";
import type { GenerateOptions, Timings } from "../../../../src/index.ts";
import { readFields } from "../../body.ts";
import { type ChoiceEvent, gatherChoices, startChoices } from "../../choices.ts";
import type { ServedModel } from "../../context.ts";
import { openaiErrors, unsupportedField } from "../../errors.ts";
import { llamacppGrammar, noteHeaders, usableGrammar } from "../../grammar-fields.ts";
import { gapTokens } from "../../infill.ts";
import { inputList, promptInput } from "../../inputs.ts";
import {
  fingerprintOf,
  llamacppShape,
  maxTokensOf,
  reportsProgress,
  slotOf,
} from "../../llamacpp-fields.ts";
import { verboseField } from "../../llamacpp-result.ts";
import { withTokenBiases } from "../../logit-bias.ts";
import { checkStreamOptions, finishReason, newId, openaiRules } from "../../openai-fields.ts";
import { readPrompts, type TextPrompt } from "../../prompts.ts";
import { type Call, json, type RouteFamily } from "../../route.ts";
import { generateOptions, samplingOf, samplingShape } from "../../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../../sse.ts";
import { LiveTimings, progressOf, timingFields, usageOf } from "../../timings.ts";
import { completionLogprobs } from "./logprobs.ts";

const completionFields = z.object({
  ...samplingShape,
  ...llamacppShape,
  model: z.string().optional(),
  prompt: promptInput,
  parse_special: z.boolean().optional(),
  stream: z.boolean().optional(),
  stream_options: z
    .strictObject({
      include_usage: z.boolean().optional(),
      include_obfuscation: z.boolean().optional(),
    })
    .optional(),
  max_tokens: z.int().min(-1).optional(),
  n: z.int().min(1).max(128).optional(),
  logprobs: z.int().min(0).max(20).optional(),
  echo: z.boolean().optional(),
  suffix: z.string().optional(),
});

type CompletionFields = z.infer<typeof completionFields>;

/** OpenAI's default; a model that never ends would otherwise fill its context. */
const defaultMaxTokens = 16;

interface Envelope {
  id: string;
  object: "text_completion";
  created: number;
  model: string;
  system_fingerprint: string;
}

/** The common parts of the answers to one request. */
interface Context {
  call: Call;
  fields: CompletionFields;
  served: ServedModel;
  options: GenerateOptions;
  prompts: readonly TextPrompt[];
  envelope: Envelope;
}

async function completions(call: Call): Promise<Response> {
  const { server } = call;
  const given = await readFields(call, completionFields, openaiRules);
  const served = await server.models.obtain(given.model);
  checkStreamOptions(given);
  if (given.echo && given.logprobs !== undefined) {
    throw unsupportedField("echo", "together with logprobs: those of prompts are not computed");
  }
  const fields = await withTokenBiases(served, given);
  server.queue.checkCapacity(call.client, inputList(fields.prompt).length * (fields.n ?? 1));
  const { prompts: read } = fields.suffix
    ? { prompts: [await beforeGap(served, fields, fields.suffix)] }
    : await readPrompts(served, fields.prompt, fields.parse_special ?? true);
  const prompts = fields.echo ? await Promise.all(read.map((one) => withText(served, one))) : read;
  const asked = fields.max_tokens ?? fields.n_predict;
  const sampling = samplingOf(server, served);
  const usual = sampling.maxTokens ?? defaultMaxTokens;
  const grammar = await usableGrammar(served, llamacppGrammar(fields));
  call.headers = noteHeaders(grammar);
  const options: GenerateOptions = {
    ...generateOptions(
      fields,
      {
        maxTokens: asked === undefined ? usual : maxTokensOf(asked),
        logprobs: fields.logprobs,
      },
      sampling,
    ),
    ...(reportsProgress(fields) && { progress: true }),
    ...grammar.options,
  };
  const requests = prompts.map(({ tokens }) => ({ served, tokens, options }));
  const starting = startChoices(call, requests, fields.n ?? 1, slotOf(fields));
  const envelope: Envelope = {
    id: newId("cmpl-"),
    object: "text_completion",
    created: Math.floor(server.time() / 1000),
    model: served.id,
    system_fingerprint: fingerprintOf(server.settings.version),
  };
  const context: Context = { call, fields, served, options, prompts, envelope };
  if (!fields.stream) return json(await wholeAnswer(await starting, context));
  const events = await eventsOf(server, starting, (all) => chunks(all, context));
  return eventStream(events, {
    server,
    error: (facts) => [{ data: openaiErrors.body(facts) }],
  });
}

/** With a `suffix`, the prompt is the text before a gap. */
async function beforeGap(
  served: ServedModel,
  { prompt, max_tokens: room = defaultMaxTokens }: CompletionFields,
  suffix: string,
): Promise<TextPrompt> {
  if (typeof prompt !== "string") {
    throw unsupportedField("suffix", "together with a prompt that is not text");
  }
  const gap = { prefix: prompt, suffix };
  return { text: prompt, tokens: await gapTokens(served, gap, Math.max(0, room), "suffix") };
}

/** The text to echo of a prompt that was given as tokens. */
async function withText({ model }: ServedModel, prompt: TextPrompt): Promise<TextPrompt> {
  return { ...prompt, text: prompt.text ?? (await model.detokenize(prompt.tokens)) };
}

async function wholeAnswer(events: AsyncIterable<ChoiceEvent>, context: Context): Promise<object> {
  const { fields, prompts, envelope } = context;
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
    ...timingFields(ended[0]!.result.timings),
    ...(await verbose(context, ended[0]!)),
  };
}

async function verbose(
  { call, fields, served, prompts, options }: Context,
  { index, slot, result }: Extract<ChoiceEvent, { result: unknown }>,
): Promise<object> {
  const isWanted = fields.verbose ?? call.server.settings.verbose;
  const more = { stream: fields.stream, timingsPerToken: fields.timings_per_token };
  const facts = { index, slot, served, options, more, result };
  return await verboseField(isWanted, prompts[Math.floor(index / (fields.n ?? 1))]!.tokens, facts);
}

/** The prompt, if it should be repeated before the answer. */
function echoOf(prompts: readonly TextPrompt[], { echo, n }: CompletionFields, index: number) {
  return echo ? (prompts[Math.floor(index / (n ?? 1))]!.text ?? "") : "";
}

/** Counts every prompt once, however many choices it has. */
function usageOfAll(all: readonly Timings[], n: number): object {
  const prompts = all.filter((_, at) => at % n === 0);
  const sum = (list: readonly Timings[], of: (one: Timings) => number): number =>
    list.reduce((total, one) => total + of(one), 0);
  const restored = {
    ramTokens: sum(prompts, (one) => one.restored?.ramTokens ?? 0),
    diskTokens: sum(prompts, (one) => one.restored?.diskTokens ?? 0),
    ms: sum(prompts, (one) => one.restored?.ms ?? 0),
  };
  return usageOf([
    {
      ...all[0]!,
      restored,
      promptTokens: sum(prompts, (one) => one.promptTokens),
      cachedTokens: sum(prompts, (one) => one.cachedTokens),
      generatedTokens: sum(all, (one) => one.generatedTokens),
    },
  ]);
}

async function* chunks(
  events: AsyncIterable<ChoiceEvent>,
  context: Context,
): AsyncGenerator<ServerEvent> {
  const { call, fields, prompts, envelope } = context;
  const withUsage = fields.stream_options?.include_usage === true;
  const chunk = (choice: object, more: object = {}): ServerEvent => ({
    data: { ...envelope, choices: [choice], ...(withUsage && { usage: null }), ...more },
  });
  const all: Timings[] = [];
  const offsets: number[] = [];
  const live = new Map<number, LiveTimings>();
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
      const choice = { index, text: "", logprobs: null, finish_reason: null };
      yield chunk(choice, { ...more, prompt_progress: progressOf(token.progress) });
    } else if (token.text !== "" || fields.logprobs !== undefined) {
      const offset = offsets[index] ?? 0;
      offsets[index] = offset + token.text.length;
      const logprobs = fields.logprobs === undefined ? null : completionLogprobs([token], offset);
      yield chunk({ index, text: token.text, logprobs, finish_reason: null }, more);
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
  routes: [{ method: "POST", path: "/v1/completions", access: "use", handle: completions }],
};
