// llama.cpp's POST /completion: continues prompts, with that server's own fields and response; and POST /infill: fills
// in the text between two others, with a model that was trained for it.

import * as z from "zod";
import type { GenerateOptions } from "../../../../src/index.ts";
import { type FieldRules, readFields } from "../../body.ts";
import { type ChoiceEvent, gatherChoices, startChoices } from "../../choices.ts";
import type { ServedModel } from "../../context.ts";
import { openaiErrors } from "../../errors.ts";
import { llamacppGrammar, noteHeaders, usableGrammar } from "../../grammar-fields.ts";
import { gapTokens, noFill } from "../../infill.ts";
import { inputList, listOf, promptInput } from "../../inputs.ts";
import {
  llamacppRules,
  llamacppShape,
  maxTokensOf,
  reportsProgress,
  slotOf,
} from "../../llamacpp-fields.ts";
import { pickFields, probabilities, promptText, resultObject } from "../../llamacpp-result.ts";
import { withTokenBiases } from "../../logit-bias.ts";
import { readPrompts, type TextPrompt } from "../../prompts.ts";
import { type Call, json } from "../../route.ts";
import { generateOptions, samplingOf, samplingShape } from "../../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../../sse.ts";
import { LiveTimings, progressOf } from "../../timings.ts";

const completionShape = {
  ...samplingShape,
  ...llamacppShape,
  model: z.string().optional(),
  max_tokens: z.int().min(-1).optional(),
  n: z.int().min(1).max(128).optional(),
  stream: z.boolean().optional(),
  n_probs: z.int().min(0).max(100).optional(),
  post_sampling_probs: z.boolean().optional(),
  return_tokens: z.boolean().optional(),
  response_fields: z.array(z.string()).max(100).optional(),
};

const completionFields = z.object({
  ...completionShape,
  prompt: promptInput,
  parse_special: z.boolean().optional(),
});

type CompletionFields = z.infer<typeof completionFields>;

const rules: FieldRules = llamacppRules;

/** The common parts of the answers to one request. */
interface Context {
  call: Call;
  fields: Omit<CompletionFields, "prompt">;
  served: ServedModel;
  options: GenerateOptions;
  prompts: readonly TextPrompt[];
}

export async function completion(call: Call): Promise<Response> {
  const { server } = call;
  const given = await readFields(call, completionFields, rules);
  const served = await server.models.obtain(given.model);
  const fields = await withTokenBiases(served, given);
  server.queue.checkCapacity(call.client, inputList(fields.prompt).length * (fields.n ?? 1));
  return await answerPrompts(
    call,
    fields,
    served,
    await readPrompts(served, fields.prompt, fields.parse_special ?? true),
  );
}

/** llama.cpp's response to each of these prompts. */
async function answerPrompts(
  call: Call,
  fields: Omit<CompletionFields, "prompt">,
  served: ServedModel,
  { prompts, isList }: { prompts: readonly TextPrompt[]; isList: boolean },
): Promise<Response> {
  const { server } = call;
  const grammar = await usableGrammar(served, llamacppGrammar(fields));
  call.headers = noteHeaders(grammar);
  const options: GenerateOptions = {
    ...generateOptions(
      fields,
      {
        maxTokens: maxTokensOf(fields.n_predict, fields.max_tokens),
        logprobs: fields.n_probs || undefined,
      },
      samplingOf(server, served),
    ),
    ...(fields.post_sampling_probs && { logprobsOf: "sampler" }),
    ...(reportsProgress(fields) && { progress: true }),
    ...grammar.options,
  };
  const context: Context = { call, fields, served, options, prompts };
  const requests = prompts.map(({ tokens }) => ({ served, tokens, options }));
  const starting = startChoices(call, requests, fields.n ?? 1, slotOf(fields));
  if (!fields.stream) {
    const answers = await wholeAnswers(await starting, context);
    return json(isList || answers.length > 1 ? answers : answers[0]);
  }
  return eventStream(await eventsOf(server, starting, (all) => chunks(all, context)), {
    server,
    error: (facts) => [{ data: openaiErrors.body(facts) }],
  });
}

async function wholeAnswers(
  events: AsyncIterable<ChoiceEvent>,
  context: Context,
): Promise<object[]> {
  const { fields } = context;
  const ended = await gatherChoices(events);
  return await Promise.all(
    ended.map(async ({ index, slot, tokens, result }) => {
      const answer = await lastObject(context, { index, slot, result }, result.text);
      const probs = fields.n_probs
        ? { completion_probabilities: probabilities(tokens, fields.post_sampling_probs === true) }
        : {};
      return selected({ ...answer, ...probs }, fields);
    }),
  );
}

async function lastObject(
  { fields, served, options, prompts }: Context,
  { index, slot, result }: Extract<ChoiceEvent, { result: unknown }>,
  content: string,
): Promise<Record<string, unknown>> {
  const { tokens } = prompts[Math.floor(index / (fields.n ?? 1))]!;
  return resultObject({
    index,
    slot,
    served,
    options,
    more: {
      stream: fields.stream,
      timingsPerToken: fields.timings_per_token,
      postSamplingProbs: fields.post_sampling_probs,
    },
    result,
    prompt: await promptText(served, tokens),
    content,
    tokens: fields.return_tokens && !fields.stream ? result.tokenIds : [],
  });
}

function selected(
  answer: Record<string, unknown>,
  { response_fields: paths }: Pick<CompletionFields, "response_fields">,
): object {
  return paths && paths.length > 0 ? pickFields(answer, paths) : answer;
}

async function* chunks(
  events: AsyncIterable<ChoiceEvent>,
  context: Context,
): AsyncGenerator<ServerEvent> {
  const { call, fields, prompts } = context;
  const live = new Map<number, LiveTimings>();
  const counts = new Map<number, number>();
  for await (const event of events) {
    const { index, slot } = event;
    if ("result" in event) {
      yield { data: selected(await lastObject(context, event, ""), fields) };
      continue;
    }
    const { token } = event;
    const timings = live.get(index) ?? new LiveTimings(call.server.now);
    live.set(index, timings.see(token));
    const count = (counts.get(index) ?? 0) + (token.id < 0 ? 0 : 1);
    counts.set(index, count);
    if (token.progress && !fields.return_progress) continue;
    if (token.id < 0 && token.text === "" && !token.progress) continue;
    yield {
      data: {
        index,
        content: token.text,
        tokens: token.id < 0 ? [] : [token.id],
        stop: false,
        id_slot: slot,
        tokens_predicted: count,
        tokens_evaluated: prompts[Math.floor(index / (fields.n ?? 1))]!.tokens.length,
        ...(fields.timings_per_token && { timings: timings.toJson() }),
        ...(token.progress && { prompt_progress: progressOf(token.progress) }),
        ...(fields.n_probs &&
          !token.progress && {
            completion_probabilities: probabilities([token], fields.post_sampling_probs === true),
          }),
      },
    };
  }
}

/** The most extra files in a request. */
const maxExtra = 1024;

const infillFields = z.object({
  ...completionShape,
  input_prefix: z.string(),
  input_suffix: z.string(),
  input_extra: listOf(
    z.object({ text: z.string(), filename: z.string().max(1000).optional() }),
    maxExtra,
  ).optional(),
  prompt: z.string().optional(),
});

const infillRules: FieldRules = {
  ...llamacppRules,
  // Time limits of editors are accepted, but not enforced.
  accepted: [...llamacppRules.accepted, "t_max_prompt_ms", "t_max_predict_ms", "n_indent"],
};

export async function infill(call: Call): Promise<Response> {
  const given = await readFields(call, infillFields, infillRules);
  const served = await call.server.models.obtain(given.model);
  if (!served.model.info.fillTokens) throw noFill(served.id);
  const fields = await withTokenBiases(served, given);
  call.server.queue.checkCapacity(call.client, fields.n ?? 1);
  const gap = {
    prefix: fields.input_prefix,
    suffix: fields.input_suffix,
    begun: fields.prompt,
    extra: fields.input_extra,
  };
  const room = maxTokensOf(fields.n_predict, fields.max_tokens) ?? 0;
  const tokens = await gapTokens(served, gap, room, "input_prefix");
  const prompts = [{ text: undefined, tokens }];
  return await answerPrompts(call, fields, served, { prompts, isList: false });
}
