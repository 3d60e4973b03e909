// Fields of llama.cpp's server besides OpenAI's, in every request for text: the supported ones, those without effect
// here, and the refused ones.

import * as z from "zod";
import { emptyList, type FieldRules, oneOf } from "./body.ts";
import { type GrammarFields, grammarShape } from "./grammar-fields.ts";

export interface LlamacppFields extends GrammarFields {
  n_predict?: number | undefined;
  timings_per_token?: boolean | undefined;
  return_progress?: boolean | undefined;
  verbose?: boolean | undefined;
  id_slot?: number | undefined;
}

export const llamacppShape: {
  readonly [K in keyof LlamacppFields]-?: z.ZodType<LlamacppFields[K]>;
} = {
  n_predict: z.int().min(-1).optional(),
  timings_per_token: z.boolean().optional(),
  return_progress: z.boolean().optional(),
  verbose: z.boolean().optional(),
  id_slot: z.int().min(-1).optional(),
  ...grammarShape,
};

export const llamacppRules: FieldRules = {
  // Preserved tokens are those that a trigger may have: here any token may.
  accepted: ["backend_sampling", "sse_ping_interval", "preserved_tokens"],
  refused: {
    image_data: { why: "this server reads text only", fine: emptyList },
    min_keep: { why: "samplers always keep at least one token", fine: oneOf(0, 1) },
    n_indent: { why: "indentation is not enforced", fine: oneOf(0) },
    t_max_predict_ms: {
      why: "there is no time limit. Close the connection to stop",
      fine: oneOf(0, -1),
    },
    adaptive_target: { why: "adaptive sampling is not supported", fine: oneOf(-1) },
    adaptive_decay: { why: "adaptive sampling is not supported", fine: oneOf(0.9) },
    reasoning_format: {
      why: "the reasoning of a model is part of its text",
      fine: oneOf("none", "auto"),
    },
    reasoning_budget_tokens: { why: "reasoning has no budget of its own", fine: oneOf(-1) },
    thinking_budget_tokens: { why: "reasoning has no budget of its own", fine: oneOf(-1) },
    parse_tool_calls: { why: "tools are not supported yet", fine: oneOf(false) },
  },
};

/** The first one given; -1, llama.cpp's "no limit", counts as not given. */
export function maxTokensOf(...given: (number | undefined)[]): number | undefined {
  const first = given.find((count) => count !== undefined);
  return first === -1 ? undefined : first;
}

/** The slot that a request asks for; -1 is llama.cpp's "any". */
export function slotOf({ id_slot: id }: LlamacppFields): number | undefined {
  return id === -1 ? undefined : id;
}

/** A streamed generation reports prompt progress for either of these. */
export function reportsProgress(
  fields: LlamacppFields & { stream?: boolean | undefined },
): boolean {
  return fields.stream === true && (fields.return_progress || fields.timings_per_token) === true;
}

/** The version in OpenAI's field, like llama.cpp's build: a number, then the program. */
export function fingerprintOf(version: string): string {
  return `b0-lantern-${version}`;
}
