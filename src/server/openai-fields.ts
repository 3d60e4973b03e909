// What OpenAI's chat, completion and response requests have in common: harmless fields, refused fields with reasons,
// and small conversions.

import type { StopReason } from "../index.ts";
import { emptyList, type FieldRules, oneOf, type Refusal } from "./body.ts";
import { invalidRequest } from "./errors.ts";
import { llamacppRules } from "./llamacpp-fields.ts";

const noTools: Refusal = { why: "tools are not supported yet", fine: emptyList };
const textOnly = (value: unknown): boolean =>
  typeof value === "object" && value !== null && "type" in value && value.type === "text";

/** Fields about who asks, or how the vendor should bill and store: without effect here. */
const accepted = [
  "user",
  "metadata",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "service_tier",
];

export const openaiRules: FieldRules = {
  accepted: [...accepted, ...llamacppRules.accepted, "return_tokens"],
  refused: {
    ...llamacppRules.refused,
    tools: noTools,
    functions: noTools,
    tool_choice: { why: noTools.why, fine: oneOf("none", "auto") },
    function_call: { why: noTools.why, fine: oneOf("none", "auto") },
    parallel_tool_calls: { why: noTools.why, fine: (value) => typeof value === "boolean" },
    response_format: { why: 'only chats have it. Use "json_schema"', fine: textOnly },
    modalities: {
      why: "this server generates text only",
      fine: (value) => Array.isArray(value) && value.every((mode) => mode === "text"),
    },
    audio: { why: "this server generates text only" },
    prediction: { why: "predicted outputs are not supported" },
    web_search_options: { why: "web search is not supported" },
    reasoning_effort: {
      why: "only chat requests can set the reasoning effort",
      fine: oneOf("none"),
    },
    verbosity: { why: "the length of answers cannot be set this way", fine: oneOf("medium") },
    store: { why: "answers are not stored", fine: oneOf(false) },
    suffix: { why: "fill-in-the-middle is not supported here", fine: oneOf("") },
    best_of: { why: 'choices are not ranked. Ask for several with "n"', fine: oneOf(1) },
  },
};

/** Chats read tools and reasoning themselves. */
export const chatRules: FieldRules = openaiRules;

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
