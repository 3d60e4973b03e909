// Embeds texts for a request: each must fit, and all of them run in one turn of the queue, one after the other.

import { AbortedError, ContextError, type Embedding } from "../index.ts";
import { checkPrompt } from "./completion.ts";
import type { ServedModel } from "./context.ts";
import { cacheFull, invalidRequest, stopping } from "./errors.ts";
import type { PromptOne } from "./inputs.ts";
import { promptTokens } from "./prompts.ts";
import type { Call } from "./route.ts";

/** A text, or token ids and texts. */
export type EmbedInput = PromptOne;

export type Pooling = "mean" | "last";

/** More texts would hold a turn for too long. */
const maxInputs = 2048;

export async function embedInputs(
  call: Call,
  served: ServedModel,
  inputs: readonly EmbedInput[],
  pooling: Pooling | undefined,
): Promise<Embedding[]> {
  const { server, signal } = call;
  if (inputs.length > maxInputs) {
    throw invalidRequest(
      `"input": got ${inputs.length} texts, expected at most ${maxInputs}`,
      "input",
    );
  }
  const prompts: (readonly number[])[] = [];
  for (const input of inputs) {
    const tokens = await promptTokens(served, input, "input");
    checkPrompt(served, tokens, "input");
    prompts.push(tokens);
  }
  const turn = await server.queue.enter(call.client, signal);
  try {
    const embeddings = await served.model.embed(prompts, {
      pooling: pooling ?? server.settings.pooling,
      signal,
    });
    server.metrics.promptTokens.add(tokensOf(embeddings), {}, served.id);
    server.metrics.llamacpp.countEmbedded(tokensOf(embeddings));
    return embeddings;
  } catch (error) {
    if (error instanceof ContextError) throw cacheFull(); // each fits by itself
    throw error instanceof AbortedError && server.stopSignal.aborted ? stopping() : error;
  } finally {
    turn.release();
  }
}

export function tokensOf(embeddings: readonly Embedding[]): number {
  return embeddings.reduce((sum, { tokens }) => sum + tokens, 0);
}
