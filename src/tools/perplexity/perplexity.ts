// Perplexity of a model on a text, by llama.cpp's method. The tokens are split into windows. Each window is read from an empty
// context with BOS replacing its first token (if the model starts texts with one). The tokens of its second half are scored, so
// that each has at least half a window of context. The rest at the end is not used.
//
// With a base, the tokens are the base's own, and the distributions are compared as well. The composition root
// (src/tools/perplexity/api.ts) opens models and files.

import type { Model, ModelInfo, ModelLocation, OpenOptions, ScoreResult } from "../../api/api.ts";
import { UsageError } from "../../base/errors.ts";
import { plural } from "../../base/plural.ts";
import {
  type BaseFile,
  type BaseSink,
  baseFileBytes,
  baseFileHead,
  SMALLEST_WINDOW,
  scoredPositions,
} from "./base-file.ts";
import {
  addScores,
  type BaseComparison,
  compareWithBase,
  type Estimate,
  newSums,
  type RunningPerplexity,
  runningPerplexity,
  type Sums,
} from "./statistics.ts";

/** Default window in tokens, if the model's context is as large. */
export const DEFAULT_WINDOW = 512;

export interface PerplexityOptions {
  /** Tokens of a window (default: 512, or the model's context where that is less; with a base, the base's). */
  contextSize?: number | undefined;
  /** The most windows to read (default: all). */
  chunks?: number | undefined;
  /** A file of base distributions, by Lantern or llama.cpp, to compare with on its own text. */
  base?: ModelLocation | undefined;
  /** Saves such a file: to a path, atomically, or into any sink for bytes. */
  saveBase?: string | BaseSink | undefined;
  /** Replace an existing file at that path. Files that are read are never replaced. */
  replace?: boolean | undefined;
  /** Recognise special tokens in the text (<|im_end|>), as in a chat; default: they are ordinary text. */
  parseSpecial?: boolean | undefined;
  /** Windows that are read at the same time (default 1). */
  parallel?: number | undefined;
  /** The options to open the model with, if it is not open yet. */
  open?: Omit<OpenOptions, "contextSize" | "parallel" | "signal"> | undefined;
  signal?: AbortSignal | undefined;
  /** Called when the model is open. */
  onOpen?: ((info: ModelInfo) => void) | undefined;
  /** Called after every window. */
  onProgress?: ((progress: PerplexityProgress) => void) | undefined;
}

export interface PerplexityProgress extends RunningPerplexity {
  /** Windows done, and their total number. */
  window: number;
  windows: number;
}

export interface PerplexityResult {
  perplexity: Estimate;
  /** Tokens scored, over all windows. */
  scored: number;
  contextSize: number;
  windows: number;
  ms: number;
  /** The differences between the model and the base. */
  base?: BaseComparison;
  /** The size of the vocabulary: the perplexity of a guess that takes all tokens for equally likely. */
  uniform: number;
  /** A warning about a perplexity that is clearly beyond that; absent: it is not. */
  warning?: string;
}

export interface MeasureInput {
  model: Model;
  /** undefined: the base's tokens. */
  text: string | undefined;
  base: BaseFile | undefined;
  /** Opens the output of a base of that size; undefined: none is saved. */
  createBase: ((bytes: number) => Promise<BaseSink>) | undefined;
  now(): number;
}

interface Windows {
  size: number;
  count: number;
  /** [count x size], and the unused rest. */
  tokens: readonly number[];
}

export async function measurePerplexity(
  input: MeasureInput,
  options: PerplexityOptions,
): Promise<PerplexityResult> {
  const { model, base, now } = input;
  options.onOpen?.(model.info);
  const started = now();
  const windows = await cut(input, options);
  const { from } = scoredPositions(windows.size);
  const saving = await beginBase(input, windows);
  const failed = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, failed.signal]) : failed.signal;
  const scoreWindow = async (window: number): Promise<ScoreResult> => {
    const rows = await base?.readRows(window);
    const tokens = windows.tokens.slice(window * windows.size, (window + 1) * windows.size);
    return await model.score(tokens, {
      from,
      firstIsBos: true,
      rows: saving !== undefined,
      ...(rows && { base: rows }),
      signal,
    });
  };
  const sums = newSums(base !== undefined);
  try {
    for await (const scores of inOrder(windows.count, options.parallel ?? 1, scoreWindow)) {
      addScores(sums, scores.value);
      if (scores.value.rows) await saving?.write(bytesOf(scores.value.rows));
      options.onProgress?.({
        ...runningPerplexity(sums),
        window: scores.index + 1,
        windows: windows.count,
      });
    }
  } catch (error) {
    failed.abort(); // windows that were started are no longer needed
    throw error;
  }
  return resultOf(sums, windows, model.info.vocabSize, now() - started);
}

async function beginBase(
  { model, createBase }: MeasureInput,
  { size, count, tokens }: Windows,
): Promise<BaseSink | undefined> {
  if (!createBase) return undefined;
  const shape = { window: size, vocabSize: model.info.vocabSize, windows: count };
  const sink = await createBase(baseFileBytes(shape));
  await sink.write(baseFileHead(shape, tokens.slice(0, count * size)));
  return sink;
}

function resultOf(sums: Sums, windows: Windows, vocabSize: number, ms: number): PerplexityResult {
  const compared = compareWithBase(sums);
  const measured = runningPerplexity(sums).perplexity;
  const { value } = measured;
  // A model that was never trained guesses, and is a little above or below that by chance.
  const isWorse = !(value <= 1.05 * vocabSize);
  return {
    perplexity: measured,
    scored: sums.count,
    contextSize: windows.size,
    windows: windows.count,
    ms,
    uniform: vocabSize,
    ...(isWorse && { warning: worseThanGuess(value, vocabSize) }),
    ...(compared && { base: compared }),
  };
}

function worseThanGuess(value: number, vocabSize: number): string {
  return `a perplexity of ${value.toFixed(0)} is worse than a guess: one that takes all ${vocabSize} tokens of the vocabulary for equally likely has ${vocabSize}. The model does not fit the text: it was trained on chats alone and this is plain text (measure it on chats in its template, with --special), the text is in a language that it never saw, its tokenizer is another model's, or its weights are damaged or were converted wrongly ("lantern verify" compares them)`;
}

/** Runs `work` on 0 to count - 1, several at a time, and yields the results in order. */
async function* inOrder<T>(
  count: number,
  atOnce: number,
  work: (index: number) => Promise<T>,
): AsyncGenerator<{ index: number; value: T }> {
  const running: Promise<T>[] = [];
  let begun = 0;
  for (let index = 0; index < count; index++) {
    while (begun < count && running.length < atOnce) {
      const begins = work(begun++);
      begins.catch(() => {}); // it may fail while an earlier one is awaited; its error is thrown in its turn
      running.push(begins);
    }
    yield { index, value: await running.shift()! };
  }
}

function bytesOf(rows: Uint16Array): Uint8Array {
  return new Uint8Array(rows.buffer, rows.byteOffset, rows.byteLength);
}

/** Splits the text, or takes the base's windows: all that were requested, or an error. */
async function cut(input: MeasureInput, options: PerplexityOptions): Promise<Windows> {
  const { model, text, base } = input;
  const size = windowSize(input, options);
  const most = checkCount("chunks", options.chunks) ?? Number.POSITIVE_INFINITY;
  const tokens =
    text === undefined
      ? undefined
      : await model.tokenize(text, { parseSpecial: options.parseSpecial ?? false });
  if (base) {
    if (tokens) checkSameText(base, tokens);
    return { size, count: Math.min(most, base.windows), tokens: [...base.tokens] };
  }
  if (!tokens)
    throw new UsageError("perplexity(): got no text, expected one. Give a text, or a base file");
  if (tokens.length < 2 * size) {
    throw new UsageError(
      `perplexity(): the text is too short: it has ${plural(tokens.length, "token")}, and two windows of ${size} need ${2 * size}. Give a longer text, or a smaller window (contextSize) of at most ${Math.floor(tokens.length / 2)}`,
    );
  }
  return { size, count: Math.min(most, Math.floor(tokens.length / size)), tokens };
}

function windowSize({ model, base }: MeasureInput, options: PerplexityOptions): number {
  const { info } = model;
  const asked = checkCount("contextSize", options.contextSize);
  if (base && base.vocabSize !== info.vocabSize) {
    throw new UsageError(
      `perplexity(): ${base.name} was saved with another model: its vocabulary has ${base.vocabSize} tokens, that of ${info.name} ${info.vocabSize}. Save a base with a model of the same family`,
    );
  }
  if (base && asked !== undefined && base.window !== asked) {
    throw new UsageError(
      `perplexity(): ${base.name} was saved with windows of ${base.window} tokens, but windows of ${asked} were asked for. Leave contextSize out, or save the base again`,
    );
  }
  const size = base?.window ?? asked ?? Math.min(DEFAULT_WINDOW, info.contextSize);
  if (size < SMALLEST_WINDOW) {
    throw new UsageError(
      `perplexity(): contextSize: got ${size}, expected at least ${SMALLEST_WINDOW} tokens, of which the second half is scored`,
    );
  }
  if (size <= info.contextSize) return size;
  throw new UsageError(
    `perplexity(): windows of ${size} tokens do not fit ${info.name}, whose context holds ${info.contextSize} (trained for ${info.trainedContext}). Use a smaller window (contextSize)`,
  );
}

/** The same text gives the same tokens, if the tokenizer is the same. */
function checkSameText(base: BaseFile, tokens: readonly number[]): void {
  const at = base.tokens.findIndex((id, index) => id !== tokens[index]);
  if (at < 0) return;
  throw new UsageError(
    `perplexity(): ${base.name} was saved from another text, or with another tokenizer: its token ${at} is ${base.tokens[at]}, that of the text is ${tokens[at] ?? "missing"}. Leave the text out to use the base's, or save the base again`,
  );
}

function checkCount(name: string, count: number | undefined): number | undefined {
  if (count === undefined || (Number.isSafeInteger(count) && count >= 1)) return count;
  throw new UsageError(
    `perplexity(): ${name}: got ${String(count)}, expected a whole number above 0`,
  );
}
