// llama.cpp's POST /completion: a prompt to be continued, with that server's own fields and answer.

import * as z from "zod";
import type { GenerationResult, StopReason, TokenEvent } from "../../index.ts";
import { emptyList, type FieldRules, oneOf, readFields } from "../body.ts";
import { type Completion, collect, startCompletion } from "../completion.ts";
import { openaiErrors } from "../errors.ts";
import { inputList, promptInput } from "../inputs.ts";
import { textTokens } from "../prompt.ts";
import { type Call, json } from "../route.ts";
import { generateOptions, samplingShape } from "../sampling-fields.ts";
import { eventStream, eventsOf, type ServerEvent } from "../sse.ts";
import { timingsOf } from "../timings.ts";

const completionFields = z.object({
  ...samplingShape,
  model: z.string().optional(),
  prompt: promptInput.refine(
    (prompt) => inputList(prompt).length === 1,
    "expected a string, or token ids",
  ),
  n_predict: z.int().min(-1).optional(),
  stream: z.boolean().optional(),
  n_probs: z.int().min(0).max(100).optional(),
  return_tokens: z.boolean().optional(),
});

const rules: FieldRules = {
  accepted: ["cache_prompt", "id_slot", "timings_per_token", "n_keep"],
  refused: {
    grammar: { why: "grammars are not enforced", fine: oneOf("") },
    json_schema: { why: "JSON schemas are not enforced" },
    image_data: { why: "this server reads text only", fine: emptyList },
    min_keep: { why: "samplers keep at least one token", fine: oneOf(0, 1) },
    n_indent: { why: "indentation is not enforced", fine: oneOf(0) },
    t_max_predict_ms: { why: "there is no time limit: close the connection", fine: oneOf(0) },
    lora: { why: "LoRA adapters are not read", fine: emptyList },
  },
};

const stopTypes: Readonly<Record<StopReason, string>> = {
  end: "eos",
  stop: "word",
  length: "limit",
  context: "limit",
  aborted: "none",
};

export async function completion(call: Call): Promise<Response> {
  const { server } = call;
  const fields = await readFields(call, completionFields, rules);
  const served = server.models.find(fields.model);
  const prompt = inputList(fields.prompt)[0]!;
  const tokens = typeof prompt === "string" ? await textTokens(served, prompt) : prompt;
  const maxTokens = fields.n_predict === -1 ? undefined : fields.n_predict;
  const probabilities = fields.n_probs ? { logprobs: fields.n_probs } : {};
  const options = generateOptions(
    fields,
    { maxTokens, ...probabilities },
    server.settings.sampling,
  );
  const starting = startCompletion(call, { served, tokens, options });
  const last = (result: GenerationResult): object => ({
    index: 0,
    tokens: fields.return_tokens ? result.tokenIds : [],
    id_slot: -1,
    stop: true,
    model: served.id,
    tokens_predicted: result.tokenIds.length,
    tokens_evaluated: result.promptTokenIds.length,
    tokens_cached: result.timings.cachedTokens,
    has_new_line: result.text.includes("\n"),
    truncated: false, // nothing is ever cut
    stop_type: stopTypes[result.stopReason],
    stopping_word: result.stopString ?? "",
    timings: timingsOf(result.timings),
  });
  if (!fields.stream) {
    const { events, result } = await collect(await starting);
    const probs = fields.n_probs ? { completion_probabilities: events.flatMap(probability) } : {};
    return json({ content: result.text, ...last(result), ...probs });
  }
  async function* events(running: Completion): AsyncGenerator<ServerEvent> {
    for await (const token of running.tokens()) {
      const probs = fields.n_probs ? { completion_probabilities: probability(token) } : {};
      const ids = token.id < 0 ? [] : [token.id];
      yield { data: { index: 0, content: token.text, tokens: ids, stop: false, ...probs } };
    }
    yield { data: { content: "", ...last(await running.result) } };
  }
  return eventStream(await eventsOf(server, starting, events), {
    server,
    error: (facts) => [{ data: openaiErrors.body(facts) }],
  });
}

function probability(event: TokenEvent): object[] {
  if (event.logprob === undefined) return [];
  return [
    {
      id: event.id,
      token: event.token ?? event.text,
      logprob: event.logprob,
      top_logprobs: (event.top ?? []).map(({ id, text, logprob }) => ({
        id,
        token: text,
        logprob,
      })),
    },
  ];
}
