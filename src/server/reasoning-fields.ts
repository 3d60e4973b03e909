// Fields of requests about reasoning: where it goes, and how much of it there may be.

import * as z from "zod";

/** llama.cpp's: where reasoning goes. `auto` is a field of its own. */
export const reasoningFormats = ["none", "auto", "deepseek"] as const;

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

/** How reasoning is treated; what a request does not say is as the server was started. */
export interface ReasoningOptions {
  readonly format?: ReasoningFormat | undefined;
  /** Tokens after which it is ended; -1 or undefined: any number. */
  readonly budget?: number | undefined;
  /** Text before the mark that ends it. */
  readonly message?: string | undefined;
}

export function reasoningOptions(
  fields: ReasoningFields,
  { reasoning = {} }: { readonly reasoning?: ReasoningOptions | undefined },
): ReasoningOptions {
  const asked = fields.reasoning_budget_tokens ?? fields.thinking_budget_tokens ?? -1;
  return {
    format: fields.reasoning_format ?? reasoning.format,
    budget: asked === -1 ? reasoning.budget : asked,
    message: fields.reasoning_budget_message ?? reasoning.message,
  };
}
