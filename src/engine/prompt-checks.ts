// Checks of prompts before anything is computed. They refuse prompts that do not fit, invalid tokens and counts, and models without
// logits.

import { contextAdvice } from "../base/context-advice.ts";
import { ContextError, UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import type { Engine } from "./engine.ts";

/** Refuses an empty prompt, unknown tokens, and too many tokens. */
export function checkPrompt(engine: Engine, tokens: readonly number[]): void {
  checkTokens(engine, tokens);
  const { contextSize } = engine.info;
  if (tokens.length >= contextSize) {
    throw new ContextError(
      `the prompt has ${tokens.length} tokens, but the context holds ${contextSize}, answer included. ${contextAdvice(engine.info)}`,
    );
  }
}

/** There are some, and all are in the vocabulary. */
export function checkTokens(engine: Engine, tokens: readonly number[]): void {
  if (tokens.length === 0) {
    throw new UsageError(
      "the prompt has no tokens, and this model adds no begin-of-text token. Give it some text",
    );
  }
  const wrong = tokens.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= engine.vocabSize);
  if (wrong >= 0) {
    throw new UsageError(
      `token id ${show(tokens[wrong])} is not in the vocabulary (0 to ${engine.vocabSize - 1})`,
    );
  }
}

/** Throws where the model gives no logits of a next token: `what` needs them. */
export function checkLogits({ info, graph, isBidirectional }: Engine, what: string): void {
  if (graph.outputs.logits && !isBidirectional) return;
  const kind = graph.outputs.logits
    ? "its tokens attend in both directions, so it does not continue a text token by token"
    : "it is an encoder, which makes embeddings";
  throw new UsageError(
    `${what}: ${info.name} (${info.architecture}) cannot do this: ${kind}. Use embed(), or a model that generates text`,
  );
}

export function checkCount(name: string, count: number): void {
  if (Number.isSafeInteger(count) && count >= 0) return;
  throw new UsageError(`${name}: got ${show(count)}, expected a whole number of at least 0`);
}
