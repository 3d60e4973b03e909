// How large the inputs of a model's matrices are while it reads a text: for each matrix and each of its columns, the sum
// of the squares of what comes in there. An importance matrix (src/tools/quantize/) is made of these.
//
// The values are seen through the backend's tap, which shows every value of a step; it needs the engine for itself.

import type { InputSums } from "../api/api.ts";
import type { Tap } from "../backends/backend.ts";
import { AbortedError, UsageError } from "../base/errors.ts";
import type { NodeOf } from "../graph/graph.ts";
import type { Engine } from "./engine.ts";
import { checkPrompt, type RunControl } from "./generator.ts";

export interface InputSumsRequest {
  /** A window of text. */
  tokens: readonly number[];
  /** Read BOS in place of the first token, where the model begins its texts with one. */
  firstIsBos: boolean;
}

export async function sumInputs(
  engine: Engine,
  request: InputSumsRequest,
  control: RunControl,
): Promise<InputSums[]> {
  const tokens = [...request.tokens];
  const { bos, addBos } = engine.tokenizer.special;
  if (request.firstIsBos && addBos && bos !== undefined) tokens[0] = bos;
  // checkPrompt() leaves room for an answer, and there will be none.
  checkPrompt(engine, tokens.slice(0, Math.min(tokens.length, engine.info.contextSize - 1)));
  if (tokens.length > engine.info.contextSize) {
    throw new UsageError(
      `inputSums(): got ${tokens.length} tokens, but the context holds ${engine.info.contextSize}. Give fewer at a time`,
    );
  }
  const { tap, result } = newSums(engine);
  const place = await engine.open({
    tokens: [], // inputs of all tokens are wanted, so all are computed
    mayAdd: tokens.length,
    isAborted: () => control.aborted,
  });
  try {
    for (let done = 0; done < tokens.length; ) {
      done += await engine.advance(place, tokens, done, {
        wants: () => true, // the last layers are computed for tokens whose logits are wanted
        onOutput: () => {},
        stop: () => control.aborted,
        tap,
      });
      await control.breathe();
      if (control.aborted) throw new AbortedError("inputSums()");
    }
  } finally {
    engine.close(place);
  }
  return result();
}

/** A tap that fills sums, and what it has filled: for every matrix; those that read the same value share its sums. */
function newSums({ graph }: Engine): { tap: Tap; result(): InputSums[] } {
  const isMatmul = (node: { op: string }): node is NodeOf<"matmul"> => node.op === "matmul";
  const readers = Map.groupBy(graph.nodes.filter(isMatmul), ({ x }) => x.id);
  const found = new Map<number, { squares: Float32Array; tokens: number }>();
  for (const [id, [first]] of readers) {
    found.set(id, { squares: new Float32Array(first!.x.cols), tokens: 0 });
  }
  const tap: Tap = (value, data) => {
    const sums = found.get(value.id);
    if (!sums) return;
    const { squares } = sums; // [cols]
    const { cols } = value;
    for (let at = 0; at < data.length; at += cols) {
      for (let i = 0; i < cols; i++) squares[i]! += data[at + i]! * data[at + i]!;
    }
    sums.tokens += data.length / cols;
  };
  const result = () =>
    [...readers].flatMap(([id, nodes]) =>
      nodes.map(({ weight }) => ({ name: weight.name, ...found.get(id)! })),
    );
  return { tap, result };
}
