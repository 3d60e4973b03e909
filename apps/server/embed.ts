// Embeds texts and ranks documents for a request: each text must fit, and all of them run as one entry of the queue.

import {
  AbortedError,
  ContextError,
  type Embedding,
  embeddingPrefix,
  joined,
  type Pooling,
  type RerankResult,
  trusted,
  words,
} from "../../src/index.ts";
import type { ServedModel } from "./context.ts";
import { cacheFull, contextExceeded, invalidRequest, notSupported, stopping } from "./errors.ts";
import { type PromptOne, promptText } from "./inputs.ts";
import { textTokens } from "./prompt.ts";
import { promptTokens } from "./prompts.ts";
import type { Call } from "./route.ts";

/** A text, or token ids and texts. */
export type EmbedInput = PromptOne;

/** Options of embedding; undefined ones are the server's or the model's default. */
export interface EmbedFields {
  pooling?: Pooling | undefined;
  /** llama.cpp's number of a norm. */
  normalize?: number | undefined;
  dimensions?: number | undefined;
  /** The role of the inputs in a search: the model's own prefix is put before them. */
  as?: "query" | "passage" | undefined;
}

/** More texts would hold the queue for too long. */
const maxInputs = 2048;

/** The pooling of texts, unless a request sets it; undefined: the model has no embeddings. */
export function poolingOf({ server }: Call, { model }: ServedModel): Pooling | undefined {
  const { embedding } = model.info;
  const { pooling } = server.settings;
  // A server may have models with and without a classifier.
  return pooling === "rank" && !embedding?.labels
    ? embedding?.pooling
    : (pooling ?? embedding?.pooling);
}

export async function embedInputs(
  call: Call,
  served: ServedModel,
  inputs: readonly EmbedInput[],
  fields: EmbedFields = {},
): Promise<Embedding[]> {
  const { model } = served;
  checkCount("input", inputs.length);
  const { contextSize } = model.info;
  const prefix = fields.as === undefined ? "" : embeddingPrefix(model.info, fields.as);
  const prompts: (readonly number[])[] = [];
  for (const input of inputs) {
    // The inputs are plain words, but for the model's own prefix.
    const tokens =
      prefix === ""
        ? await promptTokens(served, input, { param: "input", parseSpecial: false })
        : await textTokens(served, joined(trusted(prefix), words(inputText(input))), {
            param: "input",
          });
    if (tokens.length > contextSize) throw contextExceeded(tokens.length, model.info, "input");
    prompts.push(tokens);
  }
  const pooling = fields.pooling ?? poolingOf(call, served);
  return await inTurn(call, served, prompts.length, async () => {
    const normalize = fields.normalize ?? call.server.settings.normalize;
    const found = await model.embed(prompts, {
      ...(pooling !== undefined && { pooling }),
      ...(normalize !== undefined && { normalize }),
      ...(fields.dimensions !== undefined && { dimensions: fields.dimensions }),
      signal: call.signal,
    });
    return { result: found, tokens: tokensOf(found) };
  });
}

/** All documents, by their score for a query. */
export async function rankDocuments(
  call: Call,
  served: ServedModel,
  query: string,
  documents: readonly string[],
): Promise<RerankResult> {
  const { model, id } = served;
  if (!model.info.embedding?.labels) {
    throw notSupported(
      `the model ${JSON.stringify(id)} has no classifier that could score documents. Serve a reranker, such as bge-reranker-v2-m3`,
    );
  }
  checkCount("documents", documents.length);
  await textTokens(served, words(query), { param: "query" }); // with every document the query would be tokenized before it is refused
  return await inTurn(call, served, documents.length, async () => {
    const result = await model.rerank(query, documents, { signal: call.signal });
    return { result, tokens: result.tokens };
  });
}

function checkCount(param: string, count: number): void {
  if (count <= maxInputs) return;
  throw invalidRequest(`"${param}": got ${count} texts, expected at most ${maxInputs}`, param);
}

function inputText(input: EmbedInput): string {
  const text = promptText(input);
  if (text !== undefined) return typeof text === "string" ? text : text.text;
  throw invalidRequest(
    '"input": got token ids with "input_type", expected texts: the model\'s prefix is put before them',
    "input",
  );
}

/** Runs the work when the queue admits it, and counts it. */
async function inTurn<T>(
  call: Call,
  served: ServedModel,
  texts: number,
  work: () => Promise<{ result: T; tokens: number }>,
): Promise<T> {
  const { server, signal } = call;
  const done = await server.models.hold(served, signal);
  const turn = await server.queue.enter(call.client, signal).catch((error: unknown) => {
    done();
    throw error;
  });
  try {
    const { result, tokens } = await work();
    server.metrics.promptTokens.add(tokens, {}, served.id);
    server.metrics.embeddedTexts.add(texts, {}, served.id);
    server.metrics.llamacpp.countEmbedded(tokens);
    return result;
  } catch (error) {
    if (error instanceof AbortedError && server.stopSignal.aborted) throw stopping();
    // Inputs were counted before, so it is the cache that is full; pairs are counted by the engine, whose error says
    // so.
    throw error instanceof ContextError && /KV cache/.test(error.message) ? cacheFull() : error;
  } finally {
    done();
    turn.release();
  }
}

export function tokensOf(embeddings: readonly Embedding[]): number {
  return embeddings.reduce((sum, { tokens }) => sum + tokens, 0);
}
