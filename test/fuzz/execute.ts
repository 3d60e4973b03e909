// The child process of a fuzz run: executes a target, one input after the other, and reports what it found. It may hang or
// die; the parent (runner.ts) sees where it was from a file that is written before each execution.

import { closeSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { seededRandom } from "../formats/mutate.ts";
import { minimise } from "./minimise.ts";
import { executionSeed, type FuzzTarget, type Json, placeOf, shapeOf } from "./target.ts";

export interface Order {
  /** Path of the target's module, which exports `target`. */
  module: string;
  /** Where this process writes what it is at. */
  stateFile: string;
  seed: number;
  /** Number of the first execution, and of the one at which to stop. */
  first: number;
  end: number;
  /** When to stop, in milliseconds since 1970. */
  until: number;
  corpus: Json[];
  /** Outcomes that are known already. */
  outcomes: string[];
  /** Just this input, once. */
  only?: Json;
}

export type Report =
  | { kind: "ready" }
  | { kind: "kept"; input: Json; outcome: string }
  | { kind: "finding"; n: number; seed: number; input: Json; message: string; shape: string }
  | { kind: "done"; next: number };

/** Larger inputs teach little and make a corpus that nobody wants to keep. */
const keptBytes = 16_000;
/** Of one life of a child: what templates write has more shapes than anybody can use. */
const mostKept = 2000;

async function loadTarget(module: string): Promise<FuzzTarget> {
  const loaded = (await import(pathToFileURL(module).href)) as { target: FuzzTarget };
  return loaded.target;
}

async function execute(order: Order): Promise<void> {
  const target = await loadTarget(order.module);
  await target.prepare?.();
  await report({ kind: "ready" });
  const state = openSync(order.stateFile, "w");
  const corpus = [...order.corpus];
  const outcomes = new Set(order.outcomes);
  const shapes = new Set<string>(); // of findings
  let n = order.first;
  for (; n < order.end && Date.now() < order.until; n++) {
    const seed = executionSeed(order.seed, n);
    // What is known comes first: an outcome that was right and is not any more is a finding.
    const input = order.only ?? order.corpus[n] ?? inputOf(target, seed, corpus);
    note(state, n, seed, input);
    try {
      const outcome = (await target.run(seed, input)) ?? "ran";
      if (typeof outcome !== "string" || outcomes.has(outcome) || !target.make) continue;
      if (outcomes.size - order.outcomes.length >= mostKept) continue;
      outcomes.add(outcome);
      if (JSON.stringify(input).length > keptBytes) continue;
      corpus.push(input);
      await report({ kind: "kept", input, outcome });
    } catch (error) {
      const shape = errorShape(error);
      if (shapes.has(shape)) continue;
      shapes.add(shape);
      const message = error instanceof Error ? (error.stack ?? error.message) : String(error);
      const still = async (candidate: Json): Promise<boolean> => {
        note(state, n, seed, candidate); // a smaller one may hang
        return (await shapeFrom(target, seed, candidate)) === shape;
      };
      const small =
        order.only === undefined && target.make
          ? await minimise(input, still, { tries: 400, seconds: 10 })
          : input;
      await report({ kind: "finding", n, seed, input: small, message, shape });
    }
  }
  closeSync(state);
  await target.dispose?.();
  await report({ kind: "done", next: n });
}

function errorShape(error: unknown): string {
  const words = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return `${shapeOf(words)} @ ${placeOf(error)}`;
}

/** The shape of what an input throws; undefined: nothing. */
async function shapeFrom(
  target: FuzzTarget,
  seed: number,
  input: Json,
): Promise<string | undefined> {
  try {
    await target.run(seed, input);
    return undefined;
  } catch (error) {
    return errorShape(error);
  }
}

/** Half of the inputs go on from one of the corpus. */
function inputOf(target: FuzzTarget, seed: number, corpus: readonly Json[]): Json {
  if (!target.make) return { seed };
  const random = seededRandom(seed ^ 0x5bd1e995);
  const base = corpus.length > 0 && random.below(2) === 0 ? random.pick(corpus) : undefined;
  return target.make(seed, base);
}

function note(state: number, n: number, seed: number, input: Json): void {
  const bytes = Buffer.from(JSON.stringify({ n, seed, input }));
  ftruncateSync(state, 0);
  writeSync(state, bytes, 0, bytes.length, 0);
}

async function report(message: Report): Promise<void> {
  await new Promise<void>((resolve, reject) =>
    process.send?.(message, undefined, {}, (error: Error | null) =>
      error ? reject(error) : resolve(),
    ),
  );
}

process.once("message", (order: Order) => {
  execute(order).then(
    () => process.disconnect?.(),
    (error: unknown) => {
      console.error(error);
      process.exit(70); // the target itself is broken
    },
  );
});
