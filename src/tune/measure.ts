// Measures one matmul on the CPU backend with all variants that accept it. The weights are packed once; the variant of
// the next batch is a word in shared memory, so switching costs nothing.
//
// Stage times come from the threads' records (src/backends/cpu/threads/records.ts): init ends when the last thread has
// prepared its activations, compute when the last has finished its rows. Both include waiting at barriers.

import { type Backend, EVENT_NUMBERS, evenCapacity } from "../backends/backend.ts";
import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { backendByName } from "../backends/table.ts";
import { bytesFor } from "../dtypes/dtype.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { Batch } from "../graph/batch.ts";
import { makePlan } from "../graph/plan.ts";
import type { MatmulVariant } from "../kernels/matmul-variants.ts";
import type { EngineThread } from "../platform/platform.ts";
import { expertsGraph, floats, matmulBatch, matmulGraph, uploadSample } from "./matmul-graph.ts";
import type { StageTimes, TuneProblem } from "./tune-file.ts";

export interface MatmulTimesOptions {
  readonly problem: TuneProblem;
  /** Empty: opt level 2, row by row; undefined: the backend's own choice by number of tokens. */
  readonly variants: readonly MatmulVariant[] | undefined;
  /** Numbers of tokens to measure, ascending. */
  readonly tokens: readonly number[];
  readonly threads: number;
  /** true: all rows are computed; false: enough rows to be representative. */
  readonly whole: boolean;
  /**
   * Size of weights that stream: more than caches hold. In a model, all other weights pass through the caches in
   * between.
   */
  readonly streamBytes: number;
  readonly startThread: () => EngineThread;
  /** Makes the kernels; undefined: they are WebAssembly. */
  readonly native: NativeKernels | undefined;
}

/**
 * Up to this many tokens a matmul is measured with weights from memory, as in a model; with more tokens arithmetic
 * dominates. Machine code is so fast that it still matters with 32 tokens: cached weights made it look 1.2 to 1.5
 * times as fast as it is.
 */
const STREAMING_TOKENS = 32;
/**
 * Size of weights that are computed from caches: enough rows of a large matrix to be representative, enough copies of
 * a small one to be measurable.
 */
const COMPUTE_BYTES: number = 8 << 20;
const MOST_COMPUTING_COPIES = 4;
const MOST_COPIES = 256;

/** Measures a matmul with few tokens at the speed of memory, and with many at the speed of arithmetic. */
export class MatmulTimes {
  readonly #problem: TuneProblem;
  /** Each exists if some number of tokens is measured with it. */
  readonly #streaming: RowsBench | undefined;
  readonly #computing: RowsBench | undefined;

  private constructor(
    problem: TuneProblem,
    streaming: RowsBench | undefined,
    computing: RowsBench | undefined,
  ) {
    this.#problem = problem;
    this.#streaming = streaming;
    this.#computing = computing;
  }

  static async open(options: MatmulTimesOptions): Promise<MatmulTimes> {
    const { problem, tokens } = options;
    const streaming = await openStreaming(options);
    try {
      const isComputing = tokens.some((m) => m > STREAMING_TOKENS);
      const computing = isComputing ? await openComputing(options) : undefined;
      return new MatmulTimes(problem, streaming, computing);
    } catch (error) {
      streaming?.dispose();
      throw error;
    }
  }

  /** One batch of m tokens with variant `index`, -1: the one that the bench was opened with. All rows take the same time, so the time of some is scaled to all. */
  async measure(index: number, m: number, idle: "spin" | "sleep"): Promise<StageTimes> {
    const bench = (m <= STREAMING_TOKENS ? this.#streaming : this.#computing)!;
    const { init, compute } = await bench.measure(index, m, idle);
    return { init, compute: compute * (this.#problem.n / bench.rows) };
  }

  dispose(): void {
    this.#streaming?.dispose();
    this.#computing?.dispose();
  }
}

/** As in a model: matmul after matmul, each with weights that were not read recently. */
async function openStreaming(options: MatmulTimesOptions): Promise<RowsBench | undefined> {
  const { problem, tokens, streamBytes } = options;
  const few = Math.max(0, ...tokens.filter((m) => m <= STREAMING_TOKENS));
  if (few === 0) return undefined;
  const rows = Math.min(problem.n, rowsOfBytes(problem, streamBytes));
  const copies = copiesOf({ ...problem, n: rows }, streamBytes, MOST_COPIES);
  return await RowsBench.open(options, rows, copies, few);
}

async function openComputing(options: MatmulTimesOptions): Promise<RowsBench> {
  const { problem, tokens, whole } = options;
  const enough = Math.min(problem.n, rowsOfBytes(problem, COMPUTE_BYTES));
  const rows = whole ? problem.n : enough;
  const copies = copiesOf({ ...problem, n: rows }, COMPUTE_BYTES, MOST_COMPUTING_COPIES);
  return await RowsBench.open(options, rows, copies, Math.max(...tokens));
}

/** Ops that prepare activations. */
const initOps: readonly string[] = ["quantize", "quantize_experts", "round"];
/** Batches to run until one has all its records; more than one is rarely needed. */
const MOST_TRIES = 20;

/** Matmuls of some number of rows, one after the other; times are per matmul. */
class RowsBench {
  readonly rows: number;
  readonly #copies: number;
  readonly #backend: Backend;
  readonly #limits: { maxTokens: number; maxOutputs: number };
  readonly #batches = new Map<number, Batch>();
  /** Over experts: a router comes before it, which does not count. */
  readonly #isRouted: boolean;
  #init = -1;
  readonly #compute = new Set<number>();

  private constructor(
    backend: Backend,
    rows: number,
    copies: number,
    maxTokens: number,
    isRouted: boolean,
  ) {
    this.rows = rows;
    this.#isRouted = isRouted;
    this.#copies = copies;
    this.#backend = backend;
    this.#limits = { maxTokens, maxOutputs: maxTokens };
  }

  static async open(
    { problem, variants, threads, startThread, native }: MatmulTimesOptions,
    rows: number,
    copies: number,
    maxTokens: number,
  ): Promise<RowsBench> {
    const byTokens = new Array<number>(maxTokens + 1).fill(0);
    const isByRows = variants?.length === 0;
    const backend = backendByName("cpu")!.create({
      level: isByRows ? 2 : native ? 4 : 3,
      native,
      threads,
      startThread,
      profile: true,
      ...(variants && !isByRows && { choose: () => ({ variants, byTokens, notes: [] }) }),
    });
    const { k, experts } = problem;
    const bench = new RowsBench(backend, rows, copies, maxTokens, experts !== undefined);
    try {
      const dtype = dtypeByName(problem.dtype)!;
      const graph = experts
        ? expertsGraph(dtype, rows, k, experts, copies)
        : matmulGraph(dtype, rows, k, copies);
      await backend.prepare(makePlan(graph, bench.#limits), evenCapacity(1, floats));
      for (const weight of graph.weights) await uploadSample(backend, weight);
      const { parts } = backend.profile!()!;
      const measured = experts ? "matmul_id" : "matmul";
      for (const [part, { op }] of parts.entries()) if (op === measured) bench.#compute.add(part);
      bench.#init = parts.findIndex(({ op }) => initOps.includes(op));
      return bench;
    } catch (error) {
      backend.dispose();
      throw error;
    }
  }

  /** One batch of m tokens with variant `index`. */
  async measure(index: number, m: number, idle: "spin" | "sleep"): Promise<StageTimes> {
    const backend = this.#backend;
    if (index >= 0) backend.tuning!.setVariant(index);
    backend.tuning!.setIdle(idle);
    for (let tries = 1; ; tries++) {
      const started = performance.now();
      await backend.run(this.#batch(m));
      const ended = performance.now();
      const times = this.#stageTimes(started, ended);
      if (times) return times;
      if (tries === MOST_TRIES) {
        return { init: 0, compute: ((ended - started) * 1000) / this.#copies };
      }
    }
  }

  dispose(): void {
    this.#backend.dispose();
  }

  #batch(m: number): Batch {
    const batch = this.#batches.get(m) ?? matmulBatch(m, this.#limits, this.#isRouted);
    this.#batches.set(m, batch);
    return batch;
  }

  /**
   * The stage times of the batch between two times, on this thread's clock, which all records use. A thread writes
   * its record after its work, when the batch may already be over: undefined if a needed record is not there yet.
   */
  #stageTimes(started: number, ended: number): StageTimes | undefined {
    let first = Number.POSITIVE_INFINITY;
    let ready = 0;
    for (const { numbers } of this.#backend.profile!()!.events) {
      for (let at = numbers.length - EVENT_NUMBERS; at >= 0; at -= EVENT_NUMBERS) {
        const [part, start, end] = [numbers[at]!, numbers[at + 2]!, numbers[at + 3]!];
        if (start < started) break;
        if (part !== this.#init && !this.#compute.has(part)) continue;
        first = Math.min(first, start);
        if (part === this.#init) ready = Math.max(ready, end);
      }
    }
    const middle = this.#init >= 0 ? ready : first;
    if (middle === 0 || middle === Number.POSITIVE_INFINITY) return undefined;
    return { init: (middle - first) * 1000, compute: ((ended - middle) * 1000) / this.#copies };
  }
}

/** The number of rows that take about `bytes` bytes, in whole row panels. */
function rowsOfBytes({ dtype, k, experts }: TuneProblem, bytes: number): number {
  const rowBytes = bytesFor(dtypeByName(dtype)!, k) * (experts?.count ?? 1);
  return Math.max(16, Math.ceil(bytes / rowBytes / 16) * 16);
}

/**
 * Time for the JavaScript engine to optimize a kernel after the warm-up, on a background thread that measuring would
 * slow down. Without it a matmul is measured at half its speed.
 */
const COMPILE_MS = 1000;

export function untilCompiled(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, COMPILE_MS));
}

/** The number of copies of a matrix that take about `bytes` bytes. */
function copiesOf({ dtype, n, k, experts }: TuneProblem, bytes: number, most: number): number {
  const size = n * bytesFor(dtypeByName(dtype)!, k) * (experts?.count ?? 1);
  return Math.min(most, Math.max(1, Math.ceil(bytes / size)));
}
