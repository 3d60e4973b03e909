// The common parts of OpenAI's chat, completion and response requests: harmless fields, refused fields with reasons,
// and small conversions.

import type { StopReason } from "../../src/index.ts";
import { emptyList, type FieldRules, oneOf, type Refusal } from "./body.ts";
import { skipTools } from "./chat-tools.ts";
import { invalidRequest } from "./errors.ts";
import { llamacppRules } from "./llamacpp-fields.ts";

const noTools: Refusal = { why: "only chats call tools", fine: emptyList };
const textOnly = (value: unknown): boolean =>
  typeof value === "object" && value !== null && "type" in value && value.type === "text";

/** Fields about the user, billing and storage: without effect here. */
const accepted = [
  "user",
  "metadata",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "prompt_cache_options",
  "service_tier",
  "moderation",
  "client_metadata",
];

export const openaiRules: FieldRules = {
  accepted: [...accepted, ...llamacppRules.accepted, "return_tokens"],
  refused: {
    ...llamacppRules.refused,
    tools: noTools,
    functions: { why: 'it was replaced by "tools"', fine: emptyList },
    tool_choice: { why: noTools.why, fine: oneOf("none", "auto") },
    function_call: { why: 'it was replaced by "tool_choice"', fine: oneOf("none", "auto") },
    parallel_tool_calls: { why: noTools.why, fine: (value) => typeof value === "boolean" },
    response_format: { why: 'only chats have it. Use "json_schema"', fine: textOnly },
    modalities: {
      why: "this server generates text only",
      fine: (value) => Array.isArray(value) && value.every((mode) => mode === "text"),
    },
    audio: { why: "this server generates text only" },
    prediction: { why: "predicted outputs are not supported", isAdvice: true },
    web_search_options: { why: "web search is not supported", isAdvice: true },
    reasoning_effort: {
      why: "only chat requests can set the reasoning effort",
      fine: oneOf("none"),
    },
    verbosity: {
      why: "the length of answers cannot be set this way",
      fine: oneOf("medium"),
      isAdvice: true,
    },
    store: { why: "answers are not stored", fine: oneOf(false), isAdvice: true },
    suffix: { why: "fill-in-the-middle is not supported here", fine: oneOf("") },
    best_of: {
      why: 'choices are not ranked. Ask for several with "n"',
      fine: oneOf(1),
      isAdvice: true,
    },
  },
  adjust: (body) => renameFields(body, others),
};

type Renamed = readonly (readonly [other: string, own: string])[];

/** Other servers' names of fields, and ours. */
const others: Renamed = [["repetition_penalty", "repeat_penalty"]];
const othersOfChats: Renamed = [...others, ["max_output_tokens", "max_completion_tokens"]];

function renameFields(body: Record<string, unknown>, renamed: Renamed): void {
  for (const [other, own] of renamed) {
    if (!Object.hasOwn(body, other)) continue;
    body[own] ??= body[other];
    delete body[other];
  }
}

/** Chats read tools and reasoning themselves. */
export const chatRules: FieldRules = {
  ...openaiRules,
  adjust(body, ignored) {
    renameFields(body, othersOfChats);
    reasoningObject(body);
    skipTools(body, ({ type }) => type === "function" || type === undefined, ignored);
  },
};

/** OpenRouter's `reasoning`: an object with the fields that other protocols have at the top. */
function reasoningObject(body: Record<string, unknown>): void {
  const { reasoning } = body;
  if (typeof reasoning !== "object" || reasoning === null) return;
  const { effort, max_tokens: budget, enabled } = reasoning as Record<string, unknown>;
  delete body.reasoning;
  if (effort !== undefined) body.reasoning_effort ??= effort;
  if (budget !== undefined) body.reasoning_budget_tokens ??= budget;
  if (typeof enabled === "boolean") body.enable_thinking ??= enabled;
}

/** OpenAI refuses it as well: a response that is not streamed always has its usage. */
export function checkStreamOptions(fields: {
  stream?: boolean | undefined;
  stream_options?: object | undefined;
}): void {
  if (fields.stream_options === undefined || fields.stream) return;
  throw invalidRequest('"stream_options" needs "stream": true', "stream_options");
}

/**
 * OpenAI has no other word: an answer that ends because the context is full is as incomplete as one that reached
 * max_tokens.
 */
const finishReasons: Readonly<Record<StopReason, string>> = {
  end: "stop",
  stop: "stop",
  length: "length",
  context: "length",
  aborted: "stop",
};

export function finishReason(reason: StopReason): string {
  return finishReasons[reason];
}

/** "chatcmpl-0123456789ab": random, and long enough to be unique. */
export function newId(prefix: string): string {
  return `${prefix}${crypto.randomUUID().replaceAll("-", "").slice(0, 24)}`;
}
