// A text as one vector: the hidden states of its tokens after the last norm (the input of the output matrix), pooled
// and scaled to length 1. No logits are computed.

import type { EmbedOptions } from "../api/api.ts";
import { AbortedError, UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import type { Engine } from "./engine.ts";
import { checkPrompt, type RunControl } from "./generator.ts";

type Pooling = NonNullable<EmbedOptions["pooling"]>;

/** The first token whose state is pooled, from the number of tokens. */
const firstPooled: Readonly<Partial<Record<Pooling, (tokens: number) => number>>> = {
  mean: () => 0,
  last: (tokens) => tokens - 1,
};

export async function computeEmbedding(
  engine: Engine,
  tokens: readonly number[],
  options: { pooling: Pooling; normalize: boolean },
  control: RunControl,
): Promise<Float32Array> {
  checkPrompt(engine, tokens);
  if (engine.hiddenSize === undefined) {
    throw new UsageError(
      `${engine.info.name}: this model has no hidden state that embeddings could be made from`,
    );
  }
  const { pooling } = options;
  const isKnown = typeof pooling === "string" && Object.hasOwn(firstPooled, pooling);
  const first = isKnown ? firstPooled[pooling]?.(tokens.length) : undefined;
  if (first === undefined) {
    const known = Object.keys(firstPooled).join(", ");
    throw new UsageError(`pooling: got ${show(options.pooling)}, expected one of ${known}`);
  }
  const state = new Float32Array(engine.hiddenSize); // [embed]
  const sum = new Float64Array(engine.hiddenSize); // [embed]
  const running = await engine.open({
    tokens: [], // states of all tokens are needed, so nothing is reused
    mayAdd: tokens.length,
    isAborted: () => control.aborted,
  });
  try {
    for (let done = 0; done < tokens.length; ) {
      done += await engine.advance(running, tokens, done, {
        wants: (index) => index >= first,
        logits: false,
        onOutput: async (_index, read) => {
          await read("hidden", state);
          for (let i = 0; i < state.length; i++) sum[i]! += state[i]!;
        },
        stop: () => control.aborted,
      });
      await control.breathe();
      if (control.aborted) throw new AbortedError("embed()");
    }
  } finally {
    engine.close(running);
  }
  const divisor = options.normalize ? lengthOf(sum) : tokens.length - first;
  return Float32Array.from(sum, (value) => (divisor > 0 ? value / divisor : 0));
}

function lengthOf(x: Float64Array): number {
  return Math.sqrt(x.reduce((squares, value) => squares + value * value, 0));
}
