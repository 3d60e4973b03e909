// Checks on a real model that a backend computes the same as the reference: the same batches on both, every named value compared. The
// backend runs three times:
//
//   op by op     every op gets the reference's own inputs, so that a wrong op shows by itself and rounding does not
//                accumulate (and no input is halfway between two quants of the type it is rounded to: ties.ts);
//   chained      every op gets the backend's earlier results, as in use, one op after the other;
//   as in use    without a tap, so that fused kernels and threads run as they normally do.
//
// Each run has a verdict and a tolerance of its own. Op by op it is the requested one. In the other two, where activations are rounded
// to few bits, a last bit may lead to the neighbouring quant, and that moves values by percents, but no further (`rounding` shows how
// far: the reference with every value changed in its last bits).

import type {
  Backend,
  KvCacheOptions,
  RunOptions,
  Tap,
  WeightReader,
} from "../../backends/backend.ts";
import { AbortedError } from "../../base/errors.ts";
import type { DType } from "../../dtypes/dtype.ts";
import { Batch, KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { type Graph, type GraphNode, outputNamed, type Weight } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import {
  byOp,
  comparedNodes,
  type Difference,
  differenceOf,
  larger,
  noDifference,
  type OpDifference,
  type ValueDifference,
} from "./differences.ts";
import { roundedTypes, withoutTies } from "./ties.ts";

export type { Difference, OpDifference, ValueDifference } from "./differences.ts";

/** The logits of a whole run compared with the reference's. */
export interface LogitsDifference {
  readonly relative: number;
  readonly positions: number;
  /** Positions with the same most likely token as the reference. */
  readonly sameTop: number;
  /** For the others: the largest lead of the reference's most likely token, relative to the largest logit. */
  readonly largestLostLead: number;
}

/** The verdict of the chained run, in which rounding accumulates. */
export interface ChainedVerdict {
  /** The allowed error of a value, relative to its row: in a model that rounds activations more than op by op. */
  readonly tolerance: number;
  /** The value that is furthest off; undefined: none was compared. */
  readonly largest: ValueDifference | undefined;
  /** A value may be off this many times as far as rounding alone moves it, too. */
  readonly roundings: number;
  /** Values beyond the tolerance that are allowed for that. */
  readonly allowed: number;
  /** The first in the order of the graph that is not. */
  readonly firstBeyond: ValueDifference | undefined;
}

export interface BackendVerification {
  readonly name: string;
  readonly passed: boolean;
  readonly values: readonly ValueDifference[];
  readonly ops: readonly OpDifference[];
  /** The first value in the order of the graph that exceeds the tolerance, op by op. */
  readonly firstBeyond: ValueDifference | undefined;
  readonly chained: ChainedVerdict;
  /** The number of values that were computed on matrix units, from half floats, and their allowed error. */
  readonly halves: { readonly values: number; readonly tolerance: number };
  readonly logits: LogitsDifference & { readonly tolerance: number };
}

export interface Verification {
  readonly tokens: readonly number[];
  /** Tokens of each batch. */
  readonly batches: readonly number[];
  readonly tolerance: number;
  /** No activation and no key is rounded: chained values and logits must be within the tolerance as well. */
  readonly isExact: boolean;
  /** The effect of rounding alone on the logits. */
  readonly rounding: LogitsDifference;
  readonly backends: readonly BackendVerification[];
  readonly passed: boolean;
  /** Requests that were only partly honoured, one sentence each. */
  readonly warnings?: readonly string[];
}

/** The model to verify, in any form that its composition root has. */
export interface VerifyInput {
  readonly plan: Plan;
  readonly kv: KvCacheOptions;
  readonly tokens: readonly number[];
  readonly batches: readonly number[];
  readonly tolerance: number;
  /** Compare only these layers; undefined: all. */
  readonly layers: ReadonlySet<number> | undefined;
  readWeight(weight: Weight): WeightReader;
  reference(): Promise<Backend>;
  readonly backends: readonly { name: string; create(): Promise<Backend> }[];
  /** Lets other work run; throws if it was aborted. */
  yieldThread(): Promise<void>;
  progress(now: string, done: number, total: number): void;
}

/** The values by value id, for each batch. */
type Seen = Map<number, Float32Array>[];

export async function verifyBackends(input: VerifyInput): Promise<Verification> {
  const watch = progressOf(input);
  const reference = await loaded(await input.reference(), "reference", input, watch);
  try {
    const types = roundedTypes(input.plan.graph, input.kv.dtype);
    const { made: plain } = await seenOn(reference, input, watch, new Map());
    const settled = await seenOn(reference, input, watch, types);
    const expected = logitsIn(plain, input);
    const { rounding, noise } = await roundingOf(reference, { plain, expected }, input, watch);
    reference.dispose();
    const backends: BackendVerification[] = [];
    for (const { name, create } of input.backends) {
      const backend = await loaded(await create(), name, input, watch);
      try {
        backends.push(await verifyOne(backend, { plain, settled, expected, noise }, input, watch));
      } finally {
        backend.dispose();
      }
    }
    const { tokens, batches, tolerance } = input;
    const passed = backends.every((each) => each.passed);
    const facts = { tokens, batches, tolerance, isExact: isExact(input) };
    return { ...facts, rounding, backends, passed };
  } finally {
    reference.dispose();
  }
}

/** Every value of the reference, and the values it continues with: none halfway between two quants of `types`. */
async function seenOn(
  reference: Backend,
  input: VerifyInput,
  watch: Watch,
  types: ReadonlyMap<number, ReadonlySet<DType>>,
): Promise<{ made: Seen; read: Seen }> {
  const [made, read]: [Seen, Seen] = [[], []];
  await runBatches(reference, input, watch, (batch) => {
    made.push(new Map());
    read.push(new Map());
    return {
      tap: ({ id }, data) => {
        const copy = data.slice();
        made[batch]!.set(id, copy);
        read[batch]!.set(id, [...(types.get(id) ?? [])].reduce(withoutTies, copy));
      },
      replace: ({ id }) => read[batch]!.get(id),
    };
  });
  return { made, read };
}

/** The movement of logits and values if every value is changed in its last bits: the worst of some runs. */
async function roundingOf(
  reference: Backend,
  { plain, expected }: Pick<ReferenceValues, "plain" | "expected">,
  input: VerifyInput,
  watch: Watch,
): Promise<{ rounding: LogitsDifference; noise: ReadonlyMap<number, Difference> }> {
  const noise = new Noise();
  const moves = new Map<number, Difference>();
  // The first half of a route's row are ids of experts, and the results of top_k are positions: these have no last bits.
  const { nodes } = input.plan.graph;
  const idsOf = (kind: string) =>
    new Set(nodes.filter(({ op }) => op === kind).map(({ out }) => out?.id));
  const [routes, positions] = [idsOf("route"), idsOf("top_k")];
  let worst: LogitsDifference | undefined;
  for (let i = 0; i < NOISY_RUNS; i++) {
    const moved = await runBatches(reference, input, watch, (batch) => {
      let now = new Float32Array();
      const compare = comparedWith(moves, plain[batch]!, batch);
      return {
        tap: (value, data) => {
          now = data.slice();
          compare(value, data);
        },
        replace: ({ id, cols }) => {
          if (positions.has(id)) return now;
          const moved = noise.moved(now);
          if (!routes.has(id)) return moved;
          return moved.map((value, i) => (i % cols < cols / 2 ? now[i]! : value));
        },
      };
    });
    const found = logitsDifference(moved, expected, input);
    if (!worst || found.relative > worst.relative) worst = found;
  }
  return { rounding: worst!, noise: moves };
}

/** A tap that collects the largest difference of each value. */
function comparedWith(
  into: Map<number, Difference>,
  wanted: ReadonlyMap<number, Float32Array>,
  batch: number,
  judge: (id: number, relative: number, inHalves: boolean) => void = () => {},
): Tap {
  return ({ id, cols }, data, inHalves = false) => {
    const found = differenceOf(data, wanted.get(id)!, cols, batch);
    into.set(id, larger(into.get(id) ?? noDifference, found));
    judge(id, found.relative, inHalves);
  };
}

/** The allowed error of a value that was computed on matrix units: both operands are rounded to half floats, each by up to 5e-4. */
const HALVES_TOLERANCE = 2e-3;

/** Whether an activation moves to its other neighbour is random, so several runs are made. */
const NOISY_RUNS = 3;

/** The allowed error of chained values and logits, relative to the largest of their row, if activations are rounded. */
const ROUNDED_TOLERANCE = 0.1;

interface ReferenceValues {
  readonly plain: Seen;
  /** Without ties: the result of each op, and the values that later ops read. */
  readonly settled: { readonly made: Seen; readonly read: Seen };
  /** The logits of each token. */
  readonly expected: readonly Float32Array[];
  /** The movement of each value by rounding alone. */
  readonly noise: ReadonlyMap<number, Difference>;
}

/** A chained value may be off this many times as far as rounding alone moves it: where sums cancel, that is far. */
const ROUNDINGS = 8;

async function verifyOne(
  backend: Backend,
  { plain, settled, expected, noise }: ReferenceValues,
  input: VerifyInput,
  watch: Watch,
): Promise<BackendVerification> {
  const { graph } = input.plan;
  const nodes = comparedNodes(graph.nodes, graph.layerStarts, input.layers);
  const alone = new Map<number, Difference>();
  const chained = new Map<number, Difference>();
  const beyond = new Set<number>();
  const halves = new Set<number>();
  const halvesTolerance = Math.max(input.tolerance, HALVES_TOLERANCE);
  const judge = (id: number, relative: number, inHalves: boolean): void => {
    if (inHalves) halves.add(id);
    if (!(relative <= (inHalves ? halvesTolerance : input.tolerance))) beyond.add(id);
  };
  await runBatches(backend, input, watch, (batch) => ({
    tap: comparedWith(alone, settled.made[batch]!, batch, judge),
    replace: ({ id }) => settled.read[batch]!.get(id),
  }));
  await runBatches(backend, input, watch, (batch) => ({
    tap: comparedWith(chained, plain[batch]!, batch),
  }));
  const logits = await runBatches(backend, input, watch, () => ({}));
  const values = nodes.flatMap((node) => valueDifference(node, alone, chained));
  const wrong = nodes.find(({ out }) => out && beyond.has(out.id));
  const firstBeyond = wrong && valueDifference(wrong, alone, chained)[0];
  const tolerance = isExact(input) ? input.tolerance : Math.max(input.tolerance, ROUNDED_TOLERANCE);
  const verdict = chainedVerdict(values, tolerance, (id) => noise.get(id)?.relative ?? 0, nodes);
  const whole = logitsDifference(logits, expected, input);
  return {
    name: backend.name,
    passed: !firstBeyond && !verdict.firstBeyond && whole.relative <= tolerance,
    values,
    ops: byOp(values),
    firstBeyond,
    chained: verdict,
    halves: { values: halves.size, tolerance: halvesTolerance },
    logits: { ...whole, tolerance },
  };
}

/** `rounding`: the movement of a value by it alone. */
function chainedVerdict(
  values: readonly ValueDifference[],
  tolerance: number,
  rounding: (id: number) => number,
  nodes: readonly GraphNode[],
): ChainedVerdict {
  const ids = new Map(nodes.flatMap(({ out }) => (out ? [[out.name, out.id] as const] : [])));
  const beyond = values.filter(({ chained }) => !(chained.relative <= tolerance));
  const wrong = beyond.filter(
    ({ name, chained }) => !(chained.relative <= ROUNDINGS * rounding(ids.get(name)!)),
  );
  return {
    tolerance,
    largest: values.reduce<ValueDifference | undefined>(
      (most, one) => (most && most.chained.relative >= one.chained.relative ? most : one),
      undefined,
    ),
    roundings: ROUNDINGS,
    allowed: beyond.length - wrong.length,
    firstBeyond: wrong[0],
  };
}

function valueDifference(
  { op, out }: GraphNode,
  alone: ReadonlyMap<number, Difference>,
  chained: ReadonlyMap<number, Difference>,
): ValueDifference[] {
  const [one, other] = out ? [alone.get(out.id), chained.get(out.id)] : [];
  // A value that a backend never materializes cannot be compared by itself.
  return out && one && other ? [{ name: out.name, op, alone: one, chained: other }] : [];
}

/** Most weight types round activations, and the cache rounds keys: then a last bit may become a whole quant. */
function isExact({ plan, kv }: VerifyInput): boolean {
  return roundedTypes(plan.graph, kv.dtype).size === 0;
}

/** Runs all batches from an empty cache; returns the logits of every token, one array each. */
async function runBatches(
  backend: Backend,
  { plan, tokens, batches, kv, yieldThread }: VerifyInput,
  watch: Watch,
  optionsOf: (batch: number) => RunOptions,
): Promise<Float32Array[]> {
  const batch = new Batch(plan.limits);
  // Blocks in reverse order, to catch a backend that ignores the block table.
  const { tableLength: length } = kv;
  const table = { blocks: Int32Array.from({ length }, (_, i) => length - 1 - i) };
  const logits: Float32Array[] = [];
  let position = 0;
  for (const [number, count] of batches.entries()) {
    await yieldThread();
    batch.clear();
    for (let i = 0; i < count; i++) batch.add(tokens[position]!, position++, table, true);
    await backend.run(batch, optionsOf(number));
    for (let row = 0; row < count; row++) {
      const output = lastOutput(plan.graph);
      const target = new Float32Array(outputNamed(plan.graph, output).cols);
      await backend.read(output, row, target);
      logits.push(target);
    }
    watch.ran(count);
  }
  return logits;
}

/** The purpose of a model: logits, or of an encoder the hidden states. */
function lastOutput({ outputs }: Graph): "logits" | "hidden" {
  return outputs.logits ? "logits" : "hidden";
}

function logitsIn(seen: Seen, { plan }: VerifyInput): Float32Array[] {
  const { id, cols } = outputNamed(plan.graph, lastOutput(plan.graph));
  return seen.flatMap((values) => {
    const all = values.get(id)!;
    return Array.from({ length: all.length / cols }, (_, i) =>
      all.subarray(i * cols, (i + 1) * cols),
    );
  });
}

function logitsDifference(
  got: readonly Float32Array[],
  expected: readonly Float32Array[],
  { plan }: VerifyInput,
): LogitsDifference {
  const { cols } = outputNamed(plan.graph, lastOutput(plan.graph));
  let [relative, sameTop, largestLostLead] = [0, 0, 0];
  for (const [i, wanted] of expected.entries()) {
    relative = Math.max(relative, differenceOf(got[i]!, wanted, cols, 0).relative);
    const [first, second] = topTwo(wanted);
    if (topTwo(got[i]!)[0] === first) sameTop++;
    else {
      const size = wanted.reduce((most, logit) => Math.max(most, Math.abs(logit)), 0);
      largestLostLead = Math.max(largestLostLead, (wanted[first]! - wanted[second]!) / size);
    }
  }
  return { relative, positions: expected.length, sameTop, largestLostLead };
}

function topTwo(logits: Float32Array): [number, number] {
  let [first, second] = [0, 1];
  if (logits[1]! > logits[0]!) [first, second] = [1, 0];
  for (let i = 2; i < logits.length; i++) {
    if (logits[i]! > logits[first]!) [first, second] = [i, first];
    else if (logits[i]! > logits[second]!) second = i;
  }
  return [first, second];
}

/** Changes floats in their last bits, up or down; the same way in every verification. */
class Noise {
  #state = 1;

  moved(values: Float32Array): Float32Array {
    return values.map((value) => {
      this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
      return value * (1 + (this.#state < 2 ** 31 ? 1 : -1) * 2 ** -22);
    });
  }
}

async function loaded(
  backend: Backend,
  name: string,
  { plan, kv, readWeight, yieldThread }: VerifyInput,
  watch: Watch,
): Promise<Backend> {
  watch.begin(name);
  try {
    await backend.prepare(plan, kv);
    for (const weight of plan.graph.weights) {
      await yieldThread();
      await backend.upload(weight, readWeight(weight));
    }
    return backend;
  } catch (error) {
    backend.dispose();
    throw error;
  }
}

interface Watch {
  begin(name: string): void;
  ran(tokens: number): void;
}

/** In tokens computed: a little more than twice on the reference, three times on each backend. */
function progressOf({ tokens, backends, progress }: VerifyInput): Watch {
  const total = tokens.length * (2 + NOISY_RUNS + 3 * backends.length);
  let [now, done] = ["reference", 0];
  return {
    begin: (name) => {
      now = name;
      progress(now, done, total);
    },
    ran: (count) => {
      done += count;
      progress(now, done, total);
    },
  };
}

/** For composition roots: the number of blocks for this many tokens. */
export function blocksFor(tokens: number): number {
  return Math.ceil(tokens / KV_BLOCK_TOKENS);
}

/** Throws if the signal was aborted. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new AbortedError("verify()", { cause: signal.reason });
}
