// Scores a given text with a model: the log-probability of every next token, and the most likely token. With a base, also the
// divergence of its distributions from another model's at the same positions.
//
// The logits stay on this thread. src/tools/perplexity/ computes perplexity, means and error bars from the results.

import type { ScoreResult } from "../api/api.ts";
import { contextAdvice } from "../base/context-advice.ts";
import { AbortedError, ContextError, UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import type { Engine } from "./engine.ts";
import {
  compareWithRow,
  logprobRowLength,
  summarizeLogits,
  writeLogprobRow,
} from "./logprob-rows.ts";
import { NonFiniteError, widenAndRecompute } from "./non-finite.ts";
import { checkLogits } from "./prompt-checks.ts";
import type { RunControl } from "./run-control.ts";

export interface ScoreRequest {
  /** A window of text. */
  tokens: readonly number[];
  /** The first position whose next token is scored. */
  from: number;
  /** Read BOS instead of the first token, if the model starts its texts with one. */
  firstIsBos: boolean;
  /** Return the distributions, in 16 bits per token. */
  rows: boolean;
  /** The base's distributions at the same positions: [scored, logprobRowLength(vocab)]. */
  base: Uint16Array | undefined;
}

export async function score(
  engine: Engine,
  request: ScoreRequest,
  control: RunControl,
): Promise<ScoreResult> {
  checkLogits(engine, "score()");
  checkRequest(engine, request);
  const { tokens, from } = request;
  const { bos, addBos } = engine.tokenizer.special;
  const read = tokens.slice(0, -1); // no prediction is needed after the last token
  if (request.firstIsBos && addBos && bos !== undefined) read[0] = bos;
  const scores = new Scores(engine.vocabSize, request);
  let nonsense: NonFiniteError | undefined;
  const { widenings } = engine;
  const running = await engine.open({
    tokens: [], // logits of many positions are needed, so nothing is reused
    mayAdd: read.length,
    isAborted: () => control.aborted,
  });
  try {
    for (let done = 0; done < read.length; ) {
      done += await engine.advance(running, read, done, {
        wants: (index) => index >= from,
        onOutput: (index, read) => scores.take(index, (target) => read("logits", target)),
        stop: () => control.aborted,
      });
      await control.yieldThread();
      if (control.aborted) throw new AbortedError("score()");
    }
  } catch (error) {
    if (!(error instanceof NonFiniteError)) throw error;
    nonsense = error;
  } finally {
    engine.close(running);
  }
  if (!nonsense) return scores.result;
  await widenAndRecompute(nonsense, engine, { tokens: read, widenings }, control);
  return await score(engine, request, control);
}

/** Takes logits position by position and keeps the requested values. */
class Scores {
  readonly result: ScoreResult;
  readonly #request: ScoreRequest;
  readonly #logits: Float32Array; // [vocab]
  readonly #rowLength: number;

  constructor(vocabSize: number, request: ScoreRequest) {
    const count = request.tokens.length - 1 - request.from;
    this.#request = request;
    this.#logits = new Float32Array(vocabSize);
    this.#rowLength = logprobRowLength(vocabSize);
    this.result = {
      logprobs: new Float64Array(count), // [scored]
      top: new Int32Array(count), // [scored]
      ...(request.rows && { rows: new Uint16Array(count * this.#rowLength) }), // [scored, row]
      ...(request.base && {
        base: {
          logprobs: new Float64Array(count), // [scored]
          top: new Int32Array(count), // [scored]
          divergences: new Float64Array(count), // [scored]
        },
      }),
    };
  }

  async take(index: number, read: (target: Float32Array) => Promise<void> | void): Promise<void> {
    const logits = this.#logits;
    await read(logits);
    const { tokens, from, base } = this.#request;
    const at = index - from;
    const next = tokens[index + 1]!;
    const summary = summarizeLogits(logits);
    if (!Number.isFinite(summary.logSumExp)) {
      throw new NonFiniteError(
        `score(): some logits after token ${index} are not numbers. The model's weights are damaged, or its values overflow`,
      );
    }
    const { result } = this;
    result.logprobs[at] = logits[next]! - summary.logSumExp;
    result.top[at] = summary.top;
    if (result.rows) writeLogprobRow(logits, summary, this.#row(result.rows, at));
    if (result.base && base) {
      const compared = compareWithRow(logits, summary, this.#row(base, at), next);
      result.base.logprobs[at] = compared.baseLogprob;
      result.base.top[at] = compared.baseTop;
      result.base.divergences[at] = compared.divergence;
    }
  }

  #row(rows: Uint16Array, at: number): Uint16Array {
    return rows.subarray(at * this.#rowLength, (at + 1) * this.#rowLength);
  }
}

function checkRequest(engine: Engine, { tokens, from, base }: ScoreRequest): void {
  const { vocabSize, info } = engine;
  if (!Number.isSafeInteger(from) || from < 0 || from > tokens.length - 2) {
    throw new UsageError(
      `score(): from: got ${show(from)} with ${tokens.length} tokens, expected a position that is followed by a token (0 to ${tokens.length - 2})`,
    );
  }
  const wrong = tokens.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (wrong >= 0) {
    throw new UsageError(
      `score(): token id ${show(tokens[wrong])} is not in the vocabulary (0 to ${vocabSize - 1})`,
    );
  }
  if (tokens.length > info.contextSize) {
    throw new ContextError(
      `score(): got ${tokens.length} tokens, but the context holds ${info.contextSize}. ${contextAdvice(info)}`,
    );
  }
  const rowLength = logprobRowLength(vocabSize);
  const count = tokens.length - 1 - from;
  if (base && base.length !== count * rowLength) {
    throw new UsageError(
      `score(): base has ${base.length} values, expected ${count * rowLength}: ${count} rows of ${rowLength}`,
    );
  }
}
