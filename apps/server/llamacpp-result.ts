// The response of llama.cpp's /completion, which other routes include as `__verbose`.

import type { GenerateOptions, GenerationResult, StopReason, TokenEvent } from "../../src/index.ts";
import type { ServedModel } from "./context.ts";
import { generationSettings, type SettingsMore } from "./generation-settings.ts";
import { timingFields } from "./timings.ts";

const stopTypes: Readonly<Record<StopReason, string>> = {
  end: "eos",
  stop: "word",
  length: "limit",
  context: "limit",
  aborted: "none",
};

export interface ResultFacts {
  index: number;
  slot: number;
  served: ServedModel;
  options: GenerateOptions;
  more: SettingsMore;
  result: GenerationResult;
  /** The prompt's text with special tokens. */
  prompt: string;
  content: string;
  tokens: readonly number[];
}

export function resultObject(facts: ResultFacts): Record<string, unknown> {
  const { result, served, options } = facts;
  const { stopReason, timings, text } = result;
  return {
    index: facts.index,
    content: facts.content,
    tokens: facts.tokens,
    id_slot: facts.slot,
    stop: true,
    model: served.id,
    tokens_predicted: timings.generatedTokens,
    tokens_evaluated: timings.promptTokens,
    generation_settings: generationSettings(options, served.model.info, facts.more),
    prompt: facts.prompt,
    has_new_line: text.includes("\n"),
    // Whether the text was cut: never for a prompt, but for an answer, or for a context that has lost its beginning.
    truncated: stopReason === "context" || timings.contextShifts !== undefined,
    stop_type: stopTypes[stopReason],
    stopping_word: result.stopString ?? "",
    tokens_cached: timings.cachedTokens,
    ...timingFields(timings),
  };
}

/** The prompt in llama.cpp's form. */
export async function promptText(
  { model }: ServedModel,
  tokens: readonly number[],
): Promise<string> {
  return await model.detokenize(tokens, { special: true });
}

/** `__verbose`: the prompt and the settings in another route's response. */
export async function verboseField(
  isWanted: boolean,
  tokens: readonly number[],
  facts: Omit<ResultFacts, "prompt" | "content" | "tokens">,
): Promise<object> {
  if (!isWanted) return {};
  const prompt = await promptText(facts.served, tokens);
  const content = facts.more.stream ? "" : facts.result.text;
  return { __verbose: resultObject({ ...facts, prompt, content, tokens: [] }) };
}

/** `completion_probabilities`: one entry per token, none for an event without one; `drawn`: of the distribution that the token was drawn from. */
export function probabilities(events: readonly TokenEvent[], drawn: boolean): object[] {
  const value = (logprob: number): object =>
    drawn ? { prob: Math.exp(logprob) } : { logprob: finite(logprob) };
  return events.flatMap((event) => {
    if (event.logprob === undefined) return [];
    const top = (event.top ?? []).map(({ id, text, bytes, logprob }) => ({
      id,
      token: text,
      bytes,
      ...value(logprob),
    }));
    return [
      {
        id: event.id,
        token: event.token ?? event.text,
        bytes: event.bytes ?? [],
        ...value(event.logprob),
        [drawn ? "top_probs" : "top_logprobs"]: top,
      },
    ];
  });
}

/** JSON has no -Infinity. */
function finite(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : -3.4028234663852886e38;
}

/** llama.cpp's `response_fields`: keeps only these, with paths (a/b) moved to the top; missing ones are left out. */
export function pickFields(
  answer: Readonly<Record<string, unknown>>,
  paths: readonly string[],
): Record<string, unknown> {
  const found = paths.flatMap((path): [string, unknown][] => {
    let value: unknown = answer;
    for (const key of path.split("/")) {
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return [];
      value = (value as Record<string, unknown>)[key];
    }
    return [[path, value]];
  });
  return Object.fromEntries(found);
}
