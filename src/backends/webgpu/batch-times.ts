// Times of batches on the GPU, for a profile: timestamp queries around every fused op, each in a compute pass of its own,
// summed by phase. Nothing of this file runs where no profile is wanted.
//
// Passes cost time, so not every batch is recorded: all of a prompt; of generation, the first ones and some of the others. The
// recorded ones stand for all. A GPU without timestamp queries only has the times of whole batches.

import { CallTable } from "../../base/call-table.ts";
import type { Batch, RowCounts } from "../../graph/batch.ts";
import {
  type BackendProfile,
  type BatchPhase,
  EVENT_NUMBERS,
  type PhaseTimes,
  type ProfiledPart,
} from "../backend.ts";
import { BatchSums } from "../batch-sums.ts";
import type { GpuDevice } from "./device.ts";
import { encodePart, type Program, type ProgramPart, runsIn } from "./program.ts";
import { PROFILER_LABEL } from "./record-calls.ts";
import { MAP_READ, usage } from "./usage.ts";

/** The most parts of a query set, with two queries each. */
const MOST_PARTS = 2048;
/** Events that are kept for a trace. */
const EVENTS = 2 ** 15;
interface PhaseSums {
  readonly sums: BatchSums;
  /** By part. */
  readonly busyMs: Float64Array;
}

interface Queries {
  readonly set: GPUQuerySet;
  readonly resolved: GPUBuffer;
  readonly read: GPUBuffer;
}

export class BatchTimes {
  readonly #gpu: GpuDevice;
  readonly #calls: CallTable;
  #program: Program;
  readonly #parts: readonly ProfiledPart[];
  readonly #queries: Queries | undefined;
  #phases: Record<BatchPhase, PhaseSums>;
  readonly #events: Float64Array = new Float64Array(EVENTS * EVENT_NUMBERS);
  #eventCount = 0;
  #phase: BatchPhase = "prompt";
  #started = 0;
  /** The parts of the running batch that are timed, in the order of their queries. */
  #asked: number[] = [];
  #isRecorded = false;
  /** The time at which the other part of a split graph began, and the time of its sections in this batch. */
  #paused = 0;
  #elsewhereMs = 0;

  constructor(gpu: GpuDevice, program: Program, calls: CallTable = new CallTable()) {
    this.#gpu = gpu;
    this.#calls = calls;
    this.#program = program;
    const hasQueries = gpu.facts.timestampQueries && program.parts.length <= MOST_PARTS;
    this.#queries = hasQueries ? makeQueries(gpu.device, program.parts.length) : undefined;
    this.#parts = this.#queries ? program.parts.map(profiledPart) : [];
    this.#phases = this.#empty();
  }

  /** Continues with the same program over other buffers; records stay. */
  follow(program: Program): void {
    this.#program = program;
  }

  /** Begins a section of a batch, the first of which begins the batch; true: it is recorded. */
  begin(batch: Batch, phase: BatchPhase, section: number): boolean {
    if (section > 0) {
      this.#elsewhereMs += performance.now() - this.#paused;
      return this.#isRecorded;
    }
    this.#phase = phase;
    this.#calls.startRun();
    const { sums } = this.#phases[phase];
    sums.begin(batch);
    this.#asked = [];
    this.#elsewhereMs = 0;
    this.#started = performance.now();
    this.#isRecorded = this.#queries !== undefined && (phase === "prompt" || sums.isSampled);
    return this.#isRecorded;
  }

  /**
   * Encodes every part of a section in a pass of its own, between two queries; after the last one, the copy of the times to the
   * host.
   */
  encode(commands: GPUCommandEncoder, counts: RowCounts, section: number): void {
    const { set, resolved, read } = this.#queries!;
    const { parts, ends } = this.#program;
    for (let index = ends[section - 1] ?? 0; index < ends[section]!; index++) {
      if (!runs(parts[index]!, counts)) continue;
      const i = this.#asked.push(index) - 1;
      const timestampWrites = {
        querySet: set,
        beginningOfPassWriteIndex: 2 * i,
        endOfPassWriteIndex: 2 * i + 1,
      };
      const pass = commands.beginComputePass({ timestampWrites });
      encodePart(pass, parts[index]!.dispatches, counts);
      pass.end();
    }
    const queries = 2 * this.#asked.length;
    if (queries === 0 || section < ends.length - 1) return;
    commands.resolveQuerySet(set, 0, queries, resolved, 0);
    commands.copyBufferToBuffer(resolved, 0, read, 0, queries * 8);
  }

  /** Called after a section has been waited for. After the last it fetches the times, which then cost the batch nothing. */
  async end(section: number): Promise<void> {
    const endMs = performance.now();
    this.#paused = endMs;
    if (section < this.#program.ends.length - 1) return;
    const { sums, busyMs } = this.#phases[this.#phase];
    const isRecorded = this.#asked.length > 0;
    sums.end(endMs - this.#started - this.#elsewhereMs, isRecorded);
    if (!isRecorded) return;
    const times = await this.#fetch();
    // The GPU has its own clock: the last end is taken as the time at which the host saw it.
    const last = times.at(-1)!;
    const onHost = (time: bigint): number => endMs - Number(last - time) / 1e6;
    this.#asked.forEach((index, i) => {
      const [from, to] = [times[2 * i]!, times[2 * i + 1]!];
      if (to < from) return; // the clock was reset in between
      busyMs[index]! += Number(to - from) / 1e6;
      const at = (this.#eventCount++ % EVENTS) * EVENT_NUMBERS;
      this.#events.set([index, 1, onHost(from), onHost(to)], at);
    });
  }

  reset(): void {
    this.#calls.reset();
    this.#phases = this.#empty();
    this.#eventCount = 0;
  }

  profile(): BackendProfile {
    const { prompt, generation } = this.#phases;
    return {
      parts: this.#parts,
      phases: { prompt: this.#timesOf(prompt), generation: this.#timesOf(generation) },
      events: this.#queries ? [this.#lastEvents()] : [],
      packMs: 0,
      worker: "GPU",
      log: this.#calls.logged(),
      calls: this.#calls.records().map((call) => ({ ...call, by: "webgpu" })),
      notes: this.#notes(),
    };
  }

  #notes(): string[] {
    const { name, timestampQueries } = this.#gpu.facts;
    if (!timestampQueries) {
      return [`the GPU "${name}" has no timestamp queries: what a batch consists of is not known`];
    }
    if (!this.#queries) {
      return [`a batch has more than ${MOST_PARTS} parts: what it consists of was not recorded`];
    }
    const { batches, batchMs, recordedBatches, recordedMs } = this.#phases.generation.sums;
    const how = "times of ops are the GPU's own, by timestamp queries";
    if (recordedBatches === 0 || recordedBatches === batches) return [how];
    const others = (batchMs - recordedMs) / (batches - recordedBatches);
    const price = (recordedMs / recordedBatches / others).toFixed(2);
    return [
      `${how}: ${recordedBatches} of ${batches} batches of generation were recorded, which took ${price} times as long as the others`,
    ];
  }

  #lastEvents(): BackendProfile["events"][number] {
    const kept = Math.min(this.#eventCount, EVENTS);
    const first = (this.#eventCount % EVENTS) * EVENT_NUMBERS;
    const numbers = this.#events.slice(0, kept * EVENT_NUMBERS);
    if (this.#eventCount > EVENTS) {
      // A ring buffer: the oldest event follows the newest.
      numbers.set(this.#events.subarray(first), 0);
      numbers.set(this.#events.subarray(0, first), this.#events.length - first);
    }
    return { numbers, dropped: this.#eventCount - kept };
  }

  async #fetch(): Promise<BigUint64Array> {
    const { read } = this.#queries!;
    const bytes = this.#asked.length * 16;
    await this.#gpu.wait(read.mapAsync(MAP_READ, 0, bytes));
    const times = new BigUint64Array(read.getMappedRange(0, bytes).slice(0));
    read.unmap();
    return times;
  }

  #timesOf({ sums, busyMs }: PhaseSums): PhaseTimes {
    return sums.times(this.#queries ? [busyMs] : []);
  }

  #empty(): Record<BatchPhase, PhaseSums> {
    const empty = (): PhaseSums => ({
      sums: new BatchSums(),
      busyMs: new Float64Array(this.#parts.length),
    });
    return { prompt: empty(), generation: empty() };
  }
}

function makeQueries(device: GPUDevice, parts: number): Queries {
  const size = parts * 16;
  return {
    set: device.createQuerySet({ type: "timestamp", count: parts * 2 }),
    resolved: device.createBuffer({
      label: PROFILER_LABEL,
      size,
      usage: usage.queryResolve | usage.copySource,
    }),
    read: device.createBuffer({
      label: PROFILER_LABEL,
      size,
      usage: usage.mapRead | usage.copyTarget,
    }),
  };
}

function runs({ dispatches }: ProgramPart, counts: RowCounts): boolean {
  return dispatches.some(({ kernel }) => runsIn(kernel, counts));
}

/** "norm + matmul", "blk.3.attn_norm + attn_q": a fused op has one time. */
function profiledPart({ nodes, dispatches }: ProgramPart): ProfiledPart {
  const first = nodes[0]!;
  const layer = /^blk\.\d+\./.exec(first.name)?.[0] ?? "";
  const others = nodes.slice(1).map(({ name }) => name.replace(layer, ""));
  return {
    op: [...new Set(nodes.map(({ op }) => op))].join(" + "),
    name: [first.name, ...others].join(" + "),
    nodes,
    rows: dispatches[0]?.kernel.rows ?? "tokens",
    isAlone: false,
  };
}
