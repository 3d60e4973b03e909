// embed() and rerank() on the caller's side: checks the options, puts prefixes before texts, sends the texts to the engine in groups
// and scales the results. The engine (embedding.ts) pools hidden states and knows nothing of prefixes and norms.

import type {
  Embedding,
  EmbedOptions,
  EmbedProgress,
  ModelInfo,
  Pooling,
  RankedDocument,
  RerankOptions,
  RerankResult,
} from "../api/api.ts";
import { wrongArgument } from "../base/arguments.ts";
import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { normalized } from "../base/vectors.ts";
import { embeddingPrefix } from "../models/embed-prefixes.ts";
import { checkCount, checkText } from "./arguments.ts";
import type { Prompt } from "./protocol.ts";

/** The calls that embed() and rerank() make on the model's connection. */
export interface EmbedLine {
  readonly info: ModelInfo;
  /** A prompt with its text tokenized, if the text is large. */
  ready(prompt: Prompt, signal: AbortSignal | undefined): Promise<Prompt>;
  /** The pooled states of some texts, not scaled. */
  embed(
    prompts: readonly Prompt[],
    pooling: Pooling | undefined,
    onText: (done: number) => void,
    signal: AbortSignal | undefined,
  ): Promise<Embedding[]>;
}

/** Texts in one message to the engine. */
const GROUP = 256;

/** Texts as vectors. `toPrompt`: the prompt of a text after a prefix, or of token ids. */
export async function embedTexts(
  line: EmbedLine,
  texts: readonly (string | readonly number[])[],
  options: EmbedOptions,
  toPrompt: (text: string | readonly number[], prefix: string) => Prompt,
): Promise<Embedding[]> {
  const { as, dimensions, onProgress, signal } = options;
  const norm = normOf(options.normalize);
  const pooling = options.pooling ?? line.info.embedding?.pooling;
  checkDimensions(line.info, pooling, dimensions);
  const prefix = as === undefined ? undefined : prefixOf(line.info, as);
  if (prefix !== undefined) texts.forEach(checkTakesPrefix);
  const prompts = texts.map((text) => toPrompt(text, prefix ?? ""));
  const found = await inGroups(line, prompts, options.pooling, onProgress, signal);
  if (pooling === "rank") return found; // scores are no vectors
  const { size } = line.info.embedding!;
  return found.map(({ vector, tokens }) => ({
    vector: rowsOf(vector, size, dimensions ?? size, norm),
    tokens,
    ...(prefix !== undefined && { prefix }),
  }));
}

/** Documents by the score that the model's classifier gives each of them together with the query. */
export async function rerankDocuments(
  line: EmbedLine,
  query: string,
  documents: readonly string[],
  { topN = Number.POSITIVE_INFINITY, onProgress, signal }: RerankOptions,
): Promise<RerankResult> {
  checkText(query, "rerank(): query");
  documents.forEach((document, at) => {
    checkText(document, `rerank(): documents[${at}]`);
  });
  checkCount("topN", topN, 1);
  checkRanks(line.info);
  const prompts = documents.map((document): Prompt => ({ kind: "pair", query, document }));
  const found = await inGroups(line, prompts, "rank", onProgress, signal);
  const results = found.map(
    ({ vector }, index): RankedDocument => ({
      index,
      score: vector[0]!,
      document: documents[index]!,
    }),
  );
  // Equal scores stay in their order.
  results.sort((a, b) => b.score - a.score);
  const tokens = found.reduce((sum, one) => sum + one.tokens, 0);
  return { results: results.slice(0, topN), tokens };
}

function checkRanks({ name, embedding }: ModelInfo): void {
  if (embedding?.labels) return;
  throw new UsageError(
    `rerank(): ${name} has no classifier that could score documents. Open a reranker, such as bge-reranker-v2-m3; embed() works with this model`,
  );
}

/** A large list goes to the engine piece by piece, so that no message holds all of it. */
async function inGroups(
  line: EmbedLine,
  prompts: readonly Prompt[],
  pooling: Pooling | undefined,
  onProgress: ((progress: EmbedProgress) => void) | undefined,
  signal: AbortSignal | undefined,
): Promise<Embedding[]> {
  const results: Embedding[] = [];
  const totalTexts = prompts.length;
  for (let from = 0; from < totalTexts; from += GROUP) {
    const group: Prompt[] = [];
    for (const prompt of prompts.slice(from, from + GROUP)) {
      group.push(await line.ready(prompt, signal));
    }
    const onText = (done: number) => onProgress?.({ doneTexts: from + done, totalTexts });
    results.push(...(await line.embed(group, pooling, onText, signal)));
  }
  return results;
}

/** Each row of `size` values, cut to `kept` and scaled. */
function rowsOf(rows: Float32Array, size: number, kept: number, norm: number): Float32Array {
  const count = rows.length / size;
  const out = new Float32Array(count * kept);
  for (let row = 0; row < count; row++) {
    out.set(normalized(rows.subarray(row * size, row * size + kept), norm), row * kept);
  }
  return out;
}

/** The norm by llama.cpp's number. */
function normOf(normalize: EmbedOptions["normalize"] = true): number {
  if (normalize === true) return 2;
  if (normalize === false) return -1;
  if (Number.isInteger(normalize) && normalize >= -1) return normalize;
  throw wrongArgument(
    "normalize",
    normalize,
    "true, false, or -1 (none), 0 (largest value 32760), 1 (taxicab), 2 (Euclidean), or the p of a p-norm",
  );
}

function checkDimensions(
  { name, embedding }: ModelInfo,
  pooling: Pooling | undefined,
  dimensions: number | undefined,
): void {
  if (dimensions === undefined || !embedding) return;
  if (pooling === "rank") {
    throw new UsageError(
      'dimensions: got a number with pooling "rank", which gives scores. Drop it',
    );
  }
  if (Number.isSafeInteger(dimensions) && dimensions >= 1 && dimensions <= embedding.size) return;
  throw new UsageError(
    `dimensions: got ${show(dimensions)}, expected a whole number from 1 to ${embedding.size}: vectors of ${name} have ${embedding.size} values`,
  );
}

function prefixOf(info: ModelInfo, as: unknown): string {
  if (as === "query" || as === "passage") return embeddingPrefix(info, as);
  throw wrongArgument("as", as, '"query" or "passage"');
}

function checkTakesPrefix(text: string | readonly number[]): void {
  if (typeof text === "string") return;
  throw wrongArgument("embed(): texts", text, 'a text: with "as", something is put before it');
}
