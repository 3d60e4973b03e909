// The size of the inputs of a model's matrices while it reads a text: for each matrix and each of its columns, the sum
// of squares of the inputs. An importance matrix (src/tools/quantize/) is made of these.
//
// The values come from the backend's tap, which shows every value of a batch. No other request may run meanwhile.

import type { InputSums } from "../api/api.ts";
import type { Tap } from "../backends/backend.ts";
import { AbortedError, UsageError } from "../base/errors.ts";
import type { NodeOf } from "../graph/graph.ts";
import { tensorOf } from "../graph/weight-source.ts";
import type { Engine } from "./engine.ts";
import { checkPrompt } from "./prompt-checks.ts";
import type { RunControl } from "./run-control.ts";

export interface InputSumsRequest {
  /** A window of text. */
  tokens: readonly number[];
  /** Read BOS instead of the first token, if the model starts its texts with one. */
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
  // checkPrompt() reserves room for an answer, but there is none here.
  checkPrompt(engine, tokens.slice(0, Math.min(tokens.length, engine.info.contextSize - 1)));
  if (tokens.length > engine.info.contextSize) {
    throw new UsageError(
      `inputSums(): got ${tokens.length} tokens, expected at most ${engine.info.contextSize}, the size of the context. Give fewer at a time`,
    );
  }
  const { tap, result } = newSums(engine);
  const running = await engine.open({
    tokens: [], // inputs of all tokens are needed, so nothing is reused
    mayAdd: tokens.length,
    isAborted: () => control.aborted,
  });
  try {
    for (let done = 0; done < tokens.length; ) {
      done += await engine.advance(running, tokens, done, {
        wants: () => true, // the last layers are only computed for tokens whose logits are read
        onOutput: () => {},
        stop: () => control.aborted,
        tap,
      });
      await control.yieldThread();
      if (control.aborted) throw new AbortedError("inputSums()");
    }
  } finally {
    engine.close(running);
  }
  return result();
}

interface Sums {
  readonly squares: Float32Array;
  tokens: number;
  readonly expertTokens?: Float32Array;
}

type ExpertMatmul = NodeOf<"matmul_id">;

/** A tap that adds up the inputs of every matrix, and its result. Matrices with the same input share their sums. */
function newSums({ graph }: Engine): { tap: Tap; result(): InputSums[] } {
  const readers = Map.groupBy(
    graph.nodes.filter((node) => node.op === "matmul"),
    ({ x }) => x.id,
  );
  const found = new Map<number, Sums>();
  for (const [id, [first]] of readers) {
    found.set(id, { squares: new Float32Array(first!.x.cols), tokens: 0 });
  }
  const experts = expertSums(graph.nodes.filter((node) => node.op === "matmul_id"));
  const tap: Tap = (value, data) => {
    experts.see(value, data);
    const sums = found.get(value.id);
    if (!sums) return;
    const { cols } = value;
    for (let at = 0; at < data.length; at += cols) addSquares(sums.squares, 0, data, at, cols);
    sums.tokens += data.length / cols;
  };
  const result = () => [
    ...[...readers].flatMap(([id, nodes]) => {
      // The parts of a fused tensor have one input, and one name in the file.
      const names = new Set(nodes.map(({ weight }) => tensorOf(weight) ?? weight.name));
      return [...names].map((name) => ({ name, ...found.get(id)! }));
    }),
    ...experts.result(),
  ];
  return { tap, result };
}

/** The same for expert matrices. Each sees only some tokens, which are known when the result is. */
function expertSums(nodes: readonly ExpertMatmul[]): {
  see: Tap;
  result(): InputSums[];
} {
  const kept = new Map<number, Float32Array>();
  for (const { x, routes } of nodes) {
    for (const { id } of [x, routes]) kept.set(id, new Float32Array());
  }
  const found = new Map<number, { node: ExpertMatmul; sums: Required<Sums> }>();
  for (const node of nodes) {
    const [experts, , cols] = node.weight.shape as [number, number, number];
    const squares = new Float32Array(experts * cols);
    const sums = { squares, tokens: 0, expertTokens: new Float32Array(experts) };
    found.set(node.out.id, { node, sums });
  }
  const see: Tap = (value, data) => {
    if (kept.has(value.id)) kept.set(value.id, data.slice());
    const own = found.get(value.id);
    if (!own) return;
    const { node, sums } = own;
    addExperts(node, kept.get(node.x.id)!, kept.get(node.routes.id)!, sums);
  };
  const result = () =>
    [...found.values()].map(({ node, sums }) => ({ name: node.weight.name, ...sums }));
  return { see, result };
}

function addExperts(
  { x, routes, weight }: ExpertMatmul,
  inputs: Float32Array,
  routed: Float32Array,
  sums: Required<Sums>,
): void {
  const cols = weight.shape[2]!;
  const slots = routes.cols / 2;
  const tokens = routed.length / routes.cols;
  for (let token = 0; token < tokens; token++) {
    for (let slot = 0; slot < slots; slot++) {
      const expert = routed[token * routes.cols + slot]!;
      const at = token * x.cols + (x.cols === cols ? 0 : slot * cols);
      addSquares(sums.squares, expert * cols, inputs, at, cols);
      sums.expertTokens[expert]!++;
    }
  }
  sums.tokens += tokens;
}

function addSquares(
  squares: Float32Array,
  to: number,
  values: Float32Array,
  at: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) squares[to + i]! += values[at + i]! * values[at + i]!;
}
