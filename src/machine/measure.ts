// Measures this machine: bytes read and operations computed per second, by number of threads. It knows no model;
// limits/ computes a model's limits from the numbers.
//
// Everything is measured in many short, alternating rounds, and the best round counts: a limit is the machine's best,
// and other programs can only slow it down. docs/use/machine.md explains it.

import type { CachedReads, MachineMeasurement, RatePoint } from "../api/rates.ts";
import type { NativeImage } from "../backends/cpu/native/entry.ts";
import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { largePages } from "../backends/cpu/native/pages.ts";
import { AbortedError, MemoryError, ModelError, WorkerError } from "../base/errors.ts";
import { takeRounds } from "../base/measure.ts";
import type { WasmMemory } from "../kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../kernels/features.ts";
import type { EngineThread } from "../platform/platform.ts";
import { loweringText } from "./file.ts";
import {
  f32Name,
  f32RoundOps,
  int8Name,
  int8RoundOps,
  int8TilesName,
  int8TilesRoundOps,
  measureImage,
  measureModule,
  readName,
  STREAM_COUNTS,
  STREAM_STEP,
} from "./kernels.ts";
import {
  blocksAt,
  controlBytes,
  type FillTask,
  type MeasureJob,
  type RoundReport,
  type RoundTask,
} from "./thread.ts";

/** The environment that the measurement needs. */
export interface MeasureEnvironment {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryBytes: number | undefined;
  /** Memory that is available; undefined if it is not known. */
  readonly availableBytes: number | undefined;
  /** Size of the largest cache; undefined if it is not known. */
  readonly cacheBytes?: number | undefined;
  startThread(): EngineThread;
  /** Makes machine code here; undefined: WebAssembly is measured. */
  readonly native?: NativeKernels | undefined;
  now(): number;
}

export interface MeasureOptions {
  /** Duration of the measurement, after the start; a minimum of rounds is always made. */
  readonly seconds: number;
  /** Within half a second, the start included: fewer subjects, and a smaller set for memory. */
  readonly quick?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called with the fraction that is done, 0 to 1. */
  readonly onProgress?: ((share: number) => void) | undefined;
}

const MIB = 2 ** 20;
const PAGE = 65536;
/** The set that stands for memory: larger than caches; smaller if there is little memory, or if its size is not known. */
const memorySet: number = 512 * MIB;
const largestMemorySet: number = 2048 * MIB;
/** A cache that holds a quarter of a set that is read in a circle keeps almost nothing of it until its next turn. */
const timesCache = 4;
const memorySetUnknown: number = 256 * MIB;
const memoryShare = 0.25;
const smallestMemorySet: number = 32 * MIB;
/** Sets that fit in caches, here or on other machines. */
const cachedSets: readonly number[] = [1 * MIB, 4 * MIB, 32 * MIB, 128 * MIB];
/** Size of the largest chunk that a thread takes. */
const largestChunk: number = 2 * MIB;
const smallestChunkShare = 16;
const computeRounds = 2000;
/** Length of a round. Short, so that some are not interrupted even while other programs run. */
const roundMs = 5;
/** Each subject is measured at least this often. */
const leastPasses = 3;

/** Fewer sets for a quick measurement. Starting threads and writing the set once take most of its time. */
const quickSets: readonly number[] = [4 * MIB, 32 * MIB];
const quickMemorySet: number = 128 * MIB;
const quickThreads = 16;
const quickMs = 400;
/** Twice, for the two ways of reading. */
const quickPasses = 2;

/** One subject to measure: the same work by some number of threads. */
interface Subject {
  readonly threads: number;
  /** Alternating ways to do the work. */
  readonly ways: readonly { readonly task: RoundTask; readonly perChunk: number }[];
  /** Chunks per second in a round: of all threads (together) or of each (apart). */
  readonly ratesOf: (reports: readonly RoundReport[]) => number[];
  /** The best of each of these, times the work of a chunk. */
  readonly best: number[];
  /** Chunks so far. A round continues where the last one ended, because the data of that one may still be in a cache. */
  chunks: number;
}

export async function measureMachine(
  environment: MeasureEnvironment,
  options: MeasureOptions,
): Promise<MachineMeasurement> {
  if (!detectWasmFeatures().simd) {
    throw new ModelError(
      "WebAssembly has no SIMD here, so only plain TypeScript can run, and there is nothing to measure",
    );
  }
  const { quick = false } = options;
  const startedMs = environment.now();
  const { cores } = environment;
  const all = detectWasmFeatures().threads ? cores : 1;
  const counts = quick ? quickCounts(all) : threadCounts(all);
  const crew = new Crew(environment, counts.at(-1)!, options);
  try {
    await crew.begin();
    const smaller = quick ? quickSets : cachedSets;
    const sets = [...smaller.filter((bytes) => bytes * 2 <= crew.setBytes), crew.setBytes];
    const reads = sets.map((bytes) => counts.map((threads) => readSubject(crew, threads, bytes)));
    const { width } = crew;
    const computing = (kernel: string, roundOps: number): Subject[] =>
      counts.map((threads) => computeSubject(crew, threads, kernel, roundOps));
    const f32 = computing(f32Name, f32RoundOps(width));
    const int8 = computing(int8Name, int8RoundOps(width));
    const tiles = crew.hasTiles ? computing(int8TilesName, int8TilesRoundOps()) : [];
    // Reading from memory limits decoding, and other programs disturb it most: it gets three measurements.
    const memory = reads.at(-1)!;
    const turns = quick
      ? [...reads.flat(), ...f32, ...int8, ...tiles]
      : [...reads.flat(), ...f32, ...memory, ...int8, ...tiles, ...memory];
    const spentMs = environment.now() - startedMs;
    const time = quick
      ? { wantedMs: Math.max(0, quickMs - spentMs), passes: 1, mostPasses: quickPasses }
      : { wantedMs: options.seconds * 1000, passes: leastPasses, mostPasses: Infinity };
    await measureInTurns(crew, turns, environment, time, options.onProgress);
    return {
      cpu: environment.cpu,
      cores,
      memoryBytes: environment.memoryBytes,
      lowering: crew.lowering,
      ...readRates(sets, reads, all),
      f32Ops: rates(f32, all),
      int8Ops: rates(int8, all),
      ...(crew.hasTiles && { int8TileOps: rates(tiles, all) }),
      measuredAt: new Date().toISOString(),
      ...(quick && { quick }),
    };
  } finally {
    await crew.end();
  }
}

/** 1, 2, 4, ... and all cores. */
export function threadCounts(cores: number): number[] {
  const counts: number[] = [];
  for (let threads = 1; threads < cores; threads *= 2) counts.push(threads);
  return [...counts, cores];
}

/** One thread, and all cores as far as that many threads can start in the time. */
function quickCounts(cores: number): number[] {
  return [...new Set([1, Math.min(cores, quickThreads)])];
}

/** The duration of a subject's measurement, and its least and greatest number of rounds. */
interface MeasureTime {
  readonly wantedMs: number;
  readonly passes: number;
  readonly mostPasses: number;
}

async function measureInTurns(
  crew: Crew,
  subjects: readonly Subject[],
  { now }: MeasureEnvironment,
  { wantedMs: wanted, passes: least, mostPasses }: MeasureTime,
  onProgress: MeasureOptions["onProgress"],
): Promise<void> {
  const started = now();
  // Each round measures one subject, so that the time is kept to within a pass over all of them.
  await takeRounds({
    rounds: (done) => {
      const passes = done / subjects.length;
      return passes >= mostPasses || (passes >= least && now() - started >= wanted);
    },
    measure: async (round) => {
      const subject = subjects[round % subjects.length]!;
      const pass = Math.floor(round / subjects.length);
      const { task, perChunk } = subject.ways[pass % subject.ways.length]!;
      const reports = await crew.round({ ...task, first: subject.chunks });
      for (const [at, rate] of subject.ratesOf(reports).entries()) {
        subject.best[at] = Math.max(subject.best[at] ?? 0, rate * perChunk);
      }
      subject.chunks = (subject.chunks + chunksOf(reports)) % task.chunks;
    },
    keep: (_, round) => {
      const passes = (round + 1) / subjects.length;
      const shareOfTime = wanted > 0 ? (now() - started) / wanted : 1;
      onProgress?.(Math.min(1, passes / least, Math.max(shareOfTime, passes / mostPasses)));
    },
  });
}

function chunksOf(reports: readonly RoundReport[]): number {
  return reports.reduce((sum, report) => sum + report.chunks, 0);
}

/** Threads share the memory, so their total in the same time counts. They end together, so the longest time is used. */
function together(reports: readonly RoundReport[]): number[] {
  return [(chunksOf(reports) * 1000) / Math.max(...reports.map(({ ms }) => ms))];
}

/** Threads share no arithmetic units, so each one's best counts: they need not all be undisturbed in the same round. */
function apart(reports: readonly RoundReport[]): number[] {
  return reports.map(({ chunks, ms }) => (chunks * 1000) / ms);
}

/** Sets up to this size may be in each core's own caches. */
const ownCacheBytes: number = 4 * MIB;

/**
 * The way to compute the rate of a round of reading. A small set, divided among the threads, may be in their own
 * caches, where they share nothing: then each thread's best counts, so that a busy machine does not get too low
 * a limit.
 */
export function readRatesOf(setBytes: number): (reports: readonly RoundReport[]) => number[] {
  return setBytes <= ownCacheBytes ? apart : together;
}

function readSubject(crew: Crew, threads: number, setBytes: number): Subject {
  const ways = STREAM_COUNTS.map((streams) => {
    const wanted = Math.min(largestChunk, setBytes / smallestChunkShare);
    // An odd number of cache lines apart: at powers of two, streams would evict each other from the cache.
    const lines = Math.floor(wanted / streams / STREAM_STEP - 1) | 1;
    const stride = lines * STREAM_STEP;
    const chunkBytes = streams * stride;
    const task: RoundTask = {
      kind: "round",
      kernel: readName(streams),
      threads,
      ms: roundMs,
      from: crew.setStart,
      chunkBytes,
      chunks: Math.floor(setBytes / chunkBytes),
      first: 0,
      rounds: lines,
      stride,
    };
    return { task, perChunk: chunkBytes };
  });
  return { threads, ways, ratesOf: readRatesOf(setBytes), best: [], chunks: 0 };
}

function computeSubject(crew: Crew, threads: number, kernel: string, roundOps: number): Subject {
  const task: RoundTask = {
    kind: "round",
    kernel,
    threads,
    ms: roundMs,
    from: crew.setStart,
    chunkBytes: 0,
    chunks: 1,
    first: 0,
    rounds: computeRounds,
    stride: 0,
  };
  const ways = [{ task, perChunk: computeRounds * roundOps }];
  return { threads, ways, ratesOf: apart, best: [], chunks: 0 };
}

/**
 * More threads reach at least the rate of fewer: the others need only sleep. Where fewer threads than `cores` were measured, each
 * of the others counts as much as those: a limit may be too high, never too low.
 */
function rates(subjects: readonly Subject[], cores: number): RatePoint[] {
  let most = 0;
  const points = subjects.map(({ threads, best }) => {
    most = Math.max(
      most,
      best.reduce((sum, rate) => sum + rate, 0),
    );
    return { threads, perSecond: most };
  });
  const { threads } = points.at(-1)!;
  if (threads === cores) return points;
  return [...points, { threads: cores, perSecond: (most * cores) / threads }];
}

/** And a small set can be read at least as fast as a large one. */
function readRates(
  sets: readonly number[],
  subjects: readonly (readonly Subject[])[],
  cores: number,
): Pick<MachineMeasurement, "readBytes" | "cachedReads"> {
  const readBytes = rates(subjects.at(-1)!, cores);
  const cachedReads: CachedReads[] = [];
  let larger = readBytes;
  for (let i = sets.length - 2; i >= 0; i--) {
    larger = rates(subjects[i]!, cores).map(({ threads, perSecond }, at) => ({
      threads,
      perSecond: Math.max(perSecond, larger[at]!.perSecond),
    }));
    cachedReads.unshift({ setBytes: sets[i]!, readBytes: larger });
  }
  return { readBytes, cachedReads };
}

/** The measuring threads, from the side that controls them. */
class Crew {
  /** The memory to read: its start and size. */
  readonly setStart: number;
  readonly setBytes: number;
  readonly #environment: MeasureEnvironment;
  readonly #signal: AbortSignal | undefined;
  readonly #size: number;
  readonly #image: NativeImage | undefined;
  #threads: EngineThread[] = [];
  #receivers: ((report: RoundReport) => void)[] = [];
  readonly #failure: PromiseWithResolvers<never> = Promise.withResolvers();
  readonly #abort = (): void => this.#failure.reject(new AbortedError("measuring this machine"));

  constructor(
    environment: MeasureEnvironment,
    size: number,
    { signal, quick = false }: MeasureOptions,
  ) {
    this.#environment = environment;
    this.#size = size;
    this.#signal = signal;
    this.#image = environment.native && measureImage(environment.native);
    this.setStart = Math.ceil(controlBytes(size) / PAGE) * PAGE;
    this.setBytes = memorySetFor(environment, quick);
    this.#failure.promise.catch(() => {}); // the error reaches those who wait for a round
  }

  /** The lowering of the kernels, for messages. */
  get lowering(): string {
    return loweringText(this.#image && this.#environment.native!.target.name);
  }

  /** Bytes of a vector. */
  get width(): number {
    return this.#image ? this.#environment.native!.target.width : 16;
  }

  get hasTiles(): boolean {
    return this.#image !== undefined && this.#environment.native!.target.amx === true;
  }

  async begin(): Promise<void> {
    if (this.#signal?.aborted) this.#abort();
    this.#signal?.addEventListener("abort", this.#abort);
    const shared = detectWasmFeatures().threads;
    const pages = (this.setStart + this.setBytes) / PAGE;
    const limits: WasmMemory = { initial: pages, maximum: pages, shared, memory64: false };
    const memory = shared ? newMemory(limits) : undefined;
    // In the same kind of pages as the engine's memory, before anything is written there.
    const { native: kernels } = this.#environment;
    if (memory && kernels) largePages(kernels.host, [memory]);
    const module = measureModule(limits);
    this.#threads = Array.from({ length: this.#size }, (_, index) => this.#start(index));
    const native = this.#image && { image: this.#image, blocks: blocksAt(this.#size) };
    await this.#tell(
      (thread): MeasureJob => ({ kind: "job", module, memory, limits, native, thread }),
      this.#size,
    );
    const share = Math.ceil(this.setBytes / this.#size / PAGE) * PAGE;
    await this.#tell((thread): FillTask => {
      const from = this.setStart + thread * share;
      const end = Math.min(from + share, this.setStart + this.setBytes);
      return { kind: "fill", from, bytes: Math.max(0, end - from) };
    }, this.#size);
  }

  /** The result of each thread. */
  async round(task: RoundTask): Promise<RoundReport[]> {
    return await this.#tell(() => task, task.threads);
  }

  async end(): Promise<void> {
    this.#signal?.removeEventListener("abort", this.#abort);
    const threads = this.#threads.splice(0);
    await Promise.all(threads.map((thread) => thread.terminate()));
  }

  #start(index: number): EngineThread {
    const thread = this.#environment.startThread();
    thread.onMessage((report) => this.#receivers[index]!(report as RoundReport));
    thread.onFailure((cause) =>
      this.#failure.reject(
        new WorkerError(`a measuring thread failed (${cause.message})`, { cause }),
      ),
    );
    return thread;
  }

  /** Sends a message to the first `count` threads and waits for their replies. */
  async #tell(messageFor: (thread: number) => unknown, count: number): Promise<RoundReport[]> {
    const answers = this.#threads.slice(0, count).map((thread, index) => {
      const { promise, resolve } = Promise.withResolvers<RoundReport>();
      this.#receivers[index] = resolve;
      thread.post(messageFor(index));
      return promise;
    });
    return await Promise.race([Promise.all(answers), this.#failure.promise]);
  }
}

function memorySetFor(
  { availableBytes, cacheBytes = 0 }: MeasureEnvironment,
  quick: boolean,
): number {
  if (availableBytes === undefined) return quick ? quickMemorySet : memorySetUnknown;
  const large = Math.min(largestMemorySet, Math.max(memorySet, timesCache * cacheBytes));
  const wanted = quick ? quickMemorySet : large;
  const most = Math.min(wanted, availableBytes * memoryShare);
  return Math.max(smallestMemorySet, Math.floor(most / largestChunk) * largestChunk);
}

function newMemory(limits: WasmMemory): WebAssembly.Memory {
  try {
    return new WebAssembly.Memory(limits);
  } catch (cause) {
    const mib = (limits.initial * PAGE) / MIB;
    throw new MemoryError(
      `measuring this machine needs ${Math.round(mib)} MiB of memory, which is not free. Close other programs`,
      { cause },
    );
  }
}
