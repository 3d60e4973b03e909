// Logits of all positions of a text, for comparison with those of other engines. Generations do not use this.

import type { LogitsResult } from "../api/api.ts";
import { AbortedError, ContextError } from "../base/errors.ts";
import { selectBest } from "../base/select-best.ts";
import { readingInto } from "./advance.ts";
import type { Engine, ReadOutput } from "./engine.ts";
import { NonFiniteError, widenAndRecompute } from "./non-finite.ts";
import { checkCount, checkLogits, checkPrompt } from "./prompt-checks.ts";
import type { RunControl } from "./run-control.ts";
import { TextOutput } from "./text-output.ts";

const always = () => true;

/** Logits of every prompt position and a greedy continuation, to be compared with golden files. */
export async function computeLogits(
  engine: Engine,
  tokens: readonly number[],
  options: { top: number; greedy: number },
  control: RunControl,
): Promise<LogitsResult> {
  checkPrompt(engine, tokens);
  checkCount("top", options.top);
  checkCount("greedy", options.greedy);
  if (options.greedy > 0 || !engine.graph.outputs.logits) checkLogits(engine, "logits()");
  if (tokens.length + options.greedy > engine.info.contextSize) {
    throw new ContextError(
      `${tokens.length} prompt tokens and ${options.greedy} more do not fit in a context of ${engine.info.contextSize} tokens`,
    );
  }
  const logits = new Float32Array(engine.vocabSize);
  const positions: LogitsResult["positions"] = [];
  const { widenings } = engine;
  let isNonFinite = false;
  const greedy: number[] = [];
  const best = bestOf(engine.vocabSize);
  const running = await engine.open({
    tokens: [], // logits of all positions are needed, so nothing is reused
    mayAdd: tokens.length + options.greedy,
    isAborted: () => control.aborted,
  });
  const stop = () => control.aborted;
  const oneToken = readingInto(logits, always, control);
  try {
    const note = async (_: number, read: ReadOutput) => {
      await read("logits", logits);
      const size = norm(logits);
      if (!Number.isFinite(size)) isNonFinite = true;
      positions.push({ norm: size, top: best(logits, options.top) });
    };
    for (let done = 0; done < tokens.length; ) {
      done += await engine.advance(running, tokens, done, { wants: always, onOutput: note, stop });
      await control.yieldThread();
      if (control.aborted) throw new AbortedError("logits()");
    }
    while (greedy.length < options.greedy) {
      greedy.push(best(logits, 1)[0]![0]);
      if (greedy.length === options.greedy) break;
      await engine.advance(running, greedy, greedy.length - 1, oneToken);
      await control.yieldThread();
      if (control.aborted) throw new AbortedError("logits()");
    }
  } finally {
    engine.close(running);
  }
  if (isNonFinite && (await mayHelp(engine, [...tokens, ...greedy], widenings, control))) {
    return await computeLogits(engine, tokens, options, control);
  }
  const text = new TextOutput(engine, [], false);
  for (const id of greedy) text.push(id);
  text.end();
  return { tokens: [...tokens], positions, greedy, text: text.all };
}

/** Whether computing these tokens again may give finite logits. */
async function mayHelp(
  engine: Engine,
  tokens: readonly number[],
  widenings: number,
  control: RunControl,
): Promise<boolean> {
  const error = new NonFiniteError("logits that are not finite");
  try {
    await widenAndRecompute(error, engine, { tokens, widenings }, control);
    return true;
  } catch (reason) {
    if (reason === error || (reason as Error).cause === error) return false; // they are shown as they are
    throw reason;
  }
}

function norm(x: Float32Array): number {
  let squares = 0;
  for (let i = 0; i < x.length; i++) squares += x[i]! * x[i]!;
  return Math.sqrt(squares);
}

/** The `count` largest, best first; the lower id on ties. */
function bestOf(vocabSize: number): (x: Float32Array, count: number) => [number, number][] {
  const ids = Int32Array.from({ length: vocabSize }, (_, id) => id);
  const found = new Int32Array(vocabSize);
  return (x, count) => {
    const size = selectBest(x, ids, vocabSize, count, found);
    return Array.from(found.subarray(0, size), (id) => [id, x[id]!]);
  };
}
