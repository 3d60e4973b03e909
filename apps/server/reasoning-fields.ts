// Fields of requests about reasoning: the field that it is returned in, and its budget.

import * as z from "zod";

/** llama.cpp's field: where reasoning is returned. `auto` is a field of its own, `deepseek-legacy` this field and the text. */
export const reasoningFormats = ["none", "auto", "deepseek", "deepseek-legacy"] as const;

export type ReasoningFormat = (typeof reasoningFormats)[number];

export interface ReasoningFields {
  reasoning_format?: ReasoningFormat | undefined;
  reasoning_budget_tokens?: number | undefined;
  /** Another name of the same. */
  thinking_budget_tokens?: number | undefined;
  reasoning_budget_message?: string | undefined;
}

const budget = z.int().min(-1).optional();

export const reasoningShape: {
  readonly [K in keyof ReasoningFields]-?: z.ZodType<ReasoningFields[K]>;
} = {
  reasoning_format: z.enum(reasoningFormats).optional(),
  reasoning_budget_tokens: budget,
  thinking_budget_tokens: budget,
  reasoning_budget_message: z.string().max(4096).optional(),
};

/** The handling of reasoning; a request's missing fields are the server's defaults. */
export interface ReasoningOptions {
  readonly format?: ReasoningFormat | undefined;
  /** Tokens after which it is ended; -1 or undefined: any number. */
  readonly budget?: number | undefined;
  /** Text before the mark that ends it. */
  readonly message?: string | undefined;
}

/** The server's defaults. */
export interface ReasoningDefaults extends ReasoningOptions {
  /** The effort for templates that know efforts; none: no reasoning. */
  readonly effort?: string | undefined;
}

/** @param isMessage The answer has a field for reasoning and one for text: elsewhere they are never repeated in each other. */
export function reasoningOptions(
  fields: ReasoningFields,
  { reasoning = {} }: { readonly reasoning?: ReasoningOptions | undefined },
  isMessage = false,
): ReasoningOptions {
  const format = fields.reasoning_format ?? reasoning.format;
  const asked = fields.reasoning_budget_tokens ?? fields.thinking_budget_tokens ?? -1;
  return {
    format: format === "deepseek-legacy" && !isMessage ? "auto" : format,
    budget: asked === -1 ? reasoning.budget : asked,
    message: fields.reasoning_budget_message ?? reasoning.message,
  };
}
