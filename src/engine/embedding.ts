// Texts as vectors: the hidden states of a text's tokens after the last norm, pooled (embed-call.ts scales them); or the scores that
// a classifier gives it. No logits are computed. Several texts share a batch, and none changes the bits of another.

import type { EmbedOptions } from "../api/api.ts";
import { contextAdvice } from "../base/context-advice.ts";
import { AbortedError, ContextError, OptionError, UsageError } from "../base/errors.ts";
import type { Engine } from "./engine.ts";
import { NonFiniteError, widenAndRecompute } from "./non-finite.ts";
import { checkTokens } from "./prompt-checks.ts";
import type { RunControl } from "./run-control.ts";

type Pooling = NonNullable<EmbedOptions["pooling"]>;

/** Texts that may wait for a batch at a time. */
const MOST_WAITING = 64;

export interface EmbedRequest {
  readonly texts: readonly (readonly number[])[];
  /** Default: as the file asks for (ModelInfo.embedding). */
  readonly pooling: Pooling | undefined;
  readonly isBackground?: boolean;
}

/** A way of pooling: the states of a text that it reads, and the result that it makes of them. */
interface Pool {
  /** Whether the output of token `index` of `tokens` is read. */
  wants(index: number, tokens: number, engine: Engine): boolean;
  readonly output: "hidden" | "scores";
  /** The rows that were read, each of `size` values, as the text's vector. */
  vector(rows: Float32Array, size: number): Float32Array;
}

const asRead = (rows: Float32Array): Float32Array => rows;

const pools: Readonly<Record<Pooling, Pool>> = {
  none: { wants: () => true, output: "hidden", vector: asRead },
  mean: { wants: () => true, output: "hidden", vector: meanOf },
  cls: { wants: (index) => index === 0, output: "hidden", vector: asRead },
  last: { wants: (index, tokens) => index === tokens - 1, output: "hidden", vector: asRead },
  rank: { wants: isScored, output: "scores", vector: asRead },
};

/** A classifier reads the first token of an encoder, and the last of a decoder: that has seen the whole text. */
function isScored(index: number, tokens: number, { isBidirectional }: Engine): boolean {
  return index === (isBidirectional ? 0 : tokens - 1);
}

/** A vector with NaN in it would be found nowhere, or everywhere; undefined: every number is finite. */
function nonFiniteIn(vector: Float32Array, text: number): NonFiniteError | undefined {
  const wrong = vector.find((value) => !Number.isFinite(value));
  if (wrong === undefined) return undefined;
  return new NonFiniteError(
    `the model computed nonsense: the embedding of text ${text} holds ${wrong}. Its weights are damaged, or a sum is beyond what a float holds. Download or convert it again`,
  );
}

/** One vector for each text, in their order; with "none", the vectors of all its tokens one after the other. */
export async function computeEmbeddings(
  engine: Engine,
  { texts, pooling, isBackground = false }: EmbedRequest,
  control: RunControl,
  onText: () => void = () => {},
): Promise<Float32Array[]> {
  const pool = poolFor(engine, pooling);
  for (const tokens of texts) checkText(engine, tokens);
  const size = engine.graph.outputs[pool.output]!.cols;
  const vectors = new Array<Float32Array>(texts.length);
  let next = 0;
  let isFailed = false;
  const isStopped = () => isFailed || control.aborted;
  /** Computes a text again after activations that left the range of their type, as a generation does (widenAndRecompute). */
  const vectorOf = async (tokens: readonly number[], index: number): Promise<Float32Array> => {
    for (;;) {
      const { widenings } = engine;
      const rows = await readRows(engine, tokens, pool, size, {
        isStopped,
        control,
        isBackground,
      });
      const vector = pool.vector(rows, size);
      const error = nonFiniteIn(vector, index);
      if (!error) return vector;
      await widenAndRecompute(error, engine, { tokens, widenings }, control);
    }
  };
  const lane = async (): Promise<void> => {
    while (next < texts.length && !isStopped()) {
      const index = next++;
      const tokens = texts[index]!;
      vectors[index] = await vectorOf(tokens, index);
      onText();
    }
  };
  const lanes = Array.from({ length: Math.min(texts.length, MOST_WAITING) }, async () => {
    try {
      await lane();
    } catch (error) {
      isFailed = true; // the others end soon
      throw error;
    }
  });
  const ended = await Promise.allSettled(lanes);
  if (control.aborted) throw new AbortedError("embed()");
  // The first text to fail has the reason; later ones were stopped.
  const reasons = ended.flatMap((one) =>
    one.status === "rejected" ? [one.reason as unknown] : [],
  );
  if (reasons.length > 0) throw reasons.find((one) => !(one instanceof AbortedError)) ?? reasons[0];
  return vectors;
}

/** The rows that a way of pooling reads of a text: [rows, size]. */
async function readRows(
  engine: Engine,
  tokens: readonly number[],
  pool: Pool,
  size: number,
  {
    isStopped,
    control,
    isBackground,
  }: { isStopped: () => boolean; control: RunControl; isBackground: boolean },
): Promise<Float32Array> {
  const { output } = pool;
  const wants = (index: number) => pool.wants(index, tokens.length, engine);
  const count = tokens.reduce<number>((sum, _, index) => sum + (wants(index) ? 1 : 0), 0);
  const rows = new Float32Array(count * size);
  const running = await engine.open({
    tokens: [], // states of all tokens may be needed, so nothing is reused
    mayAdd: tokens.length,
    ...(isBackground && { background: "stays" }), // a text is short
    isAborted: isStopped,
  });
  let read = 0;
  try {
    for (let done = 0; done < tokens.length; ) {
      // Texts that were admitted with this one are to be in its batch.
      await control.yieldThread();
      if (isStopped()) throw new AbortedError("embed()");
      done += await engine.advance(running, tokens, done, {
        wants,
        logits: output === "scores",
        onOutput: (_index, readInto) => readInto(output, rows.subarray(read * size, ++read * size)),
        stop: isStopped,
      });
    }
  } finally {
    engine.close(running);
  }
  return rows;
}

function poolFor(engine: Engine, asked: Pooling | undefined): Pool {
  const { name, embedding } = engine.info;
  if (!embedding) {
    throw new UsageError(
      `${name}: this model has no hidden state that embeddings could be made from`,
    );
  }
  const pooling = asked ?? embedding.pooling;
  if (typeof pooling !== "string" || !Object.hasOwn(pools, pooling)) {
    const known = Object.keys(pools).join(", ");
    throw new OptionError("pooling", pooling, `one of ${known}`);
  }
  if (pooling === "rank" && !embedding.labels) {
    throw new UsageError(
      `pooling: got "rank", but ${name} has no classifier that could rank texts. Use a reranker, or one of mean, cls, last, none`,
    );
  }
  return pools[pooling];
}

function checkText(engine: Engine, tokens: readonly number[]): void {
  checkTokens(engine, tokens);
  const { contextSize } = engine.info;
  if (tokens.length <= contextSize) return;
  throw new ContextError(
    `the text has ${tokens.length} tokens, but the context holds ${contextSize}. ${contextAdvice(engine.info)}`,
  );
}

function meanOf(rows: Float32Array, size: number): Float32Array {
  const sum = new Float64Array(size); // [embed]
  for (let i = 0; i < rows.length; i++) sum[i % size]! += rows[i]!;
  const count = rows.length / size;
  return Float32Array.from(sum, (value) => value / count);
}
