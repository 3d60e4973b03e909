// The leader's sums of recorded times (records.ts), by phase, thread and instruction. Everything is allocated once.
//
// Records are summed at the beginning of the next batch, not at the end of their own: a thread writes its last record after
// it has left the instruction, when the batch may be over already.

import { CallTable } from "../../../base/call-table.ts";
import type { Batch } from "../../../graph/batch.ts";
import type { GraphNode } from "../../../graph/graph.ts";
import type { Plan } from "../../../graph/plan.ts";
import type { BatchPhase, PhaseTimes, ProfiledPart, RecordedEvents } from "../../backend.ts";
import { BatchSums } from "../../batch-sums.ts";
import type { Compiled } from "../compile.ts";
import type { Executor } from "../executor.ts";
import { type RecordArea, RecordReader } from "./records.ts";

/** The sums of a phase: [thread][part]. */
interface PhaseSums {
  readonly sums: BatchSums;
  readonly busyMs: readonly Float64Array[];
}

export class BatchRecords {
  readonly #readers: readonly RecordReader[];
  readonly #phases: Readonly<Record<BatchPhase, PhaseSums>>;
  readonly #flag: Int32Array;
  /** Waits and wakes of the threads, and pieces that were packed. */
  readonly calls: CallTable = new CallTable();
  #started = 0;
  /** The time at which the other part of a split graph began, and the time of its sections in this batch. */
  #paused = 0;
  #elsewhereMs = 0;
  #current: PhaseSums;
  #isOn = true;

  constructor(buffer: ArrayBufferLike, area: RecordArea, threads: number, instructions: number) {
    this.#readers = Array.from({ length: threads }, (_, i) => new RecordReader(buffer, area, i));
    this.#flag = new Int32Array(buffer, area.isOn, 1);
    const empty = (): PhaseSums => ({
      sums: new BatchSums(),
      busyMs: this.#readers.map(() => new Float64Array(instructions)),
    });
    this.#phases = { prompt: empty(), generation: empty() };
    this.#current = this.#phases.prompt;
  }

  begin(batch: Batch, phase: BatchPhase): void {
    this.#addRecords();
    this.calls.startRun();
    this.#current = this.#phases[phase];
    const { sums } = this.#current;
    sums.begin(batch);
    this.#isOn = phase === "prompt" || sums.isSampled;
    Atomics.store(this.#flag, 0, this.#isOn ? 1 : 0);
    this.#elsewhereMs = 0;
    this.#started = performance.now();
  }

  /** The other part of a split graph computes from now on, until resume(). */
  pause(): void {
    this.#paused = performance.now();
  }

  resume(): void {
    this.#elsewhereMs += performance.now() - this.#paused;
  }

  end(): void {
    const ms = performance.now() - this.#started - this.#elsewhereMs;
    this.#current.sums.end(ms, this.#isOn);
  }

  /** Drops all sums. */
  reset(): void {
    this.#addRecords(); // records until now must not be added later
    for (const { sums, busyMs } of Object.values(this.#phases)) {
      sums.reset();
      for (const times of busyMs) times.fill(0);
    }
    this.calls.reset();
    for (const reader of this.#readers) reader.forget();
  }

  phases(): Record<BatchPhase, PhaseTimes> {
    this.#addRecords();
    const { prompt, generation } = this.#phases;
    return {
      prompt: prompt.sums.times(prompt.busyMs),
      generation: generation.sums.times(generation.busyMs),
    };
  }

  /** The number of batches that `calls` belong to; sentences without a full stop. */
  notes(): string[] {
    const { prompt, generation } = this.#phases;
    const recorded = prompt.sums.recordedBatches + generation.sums.recordedBatches;
    const all = prompt.sums.batches + generation.sums.batches;
    return recorded < all
      ? [
          `waits and wakes of threads are those of ${recorded} of ${all} batches, which were recorded`,
        ]
      : [];
  }

  /** The last events of each thread. */
  events(): RecordedEvents[] {
    return this.#readers.map((reader) => reader.last());
  }

  #addRecords(): void {
    const { busyMs } = this.#current;
    for (let i = 0; i < this.#readers.length; i++) {
      this.#readers[i]!.addTo(busyMs[i]!, this.#started, this.calls);
    }
  }
}

/** The part of each instruction: the node that it completes, or a preparation of the next one. */
export function partsOf(
  { graph }: Plan,
  { program, lastInstruction }: Pick<Compiled, "program" | "lastInstruction">,
  executors: readonly Executor[],
): ProfiledPart[] {
  const ending = new Map<number, GraphNode[]>();
  for (const node of graph.nodes) {
    const last = lastInstruction.get(node)!;
    ending.set(last, [...(ending.get(last) ?? []), node]);
  }
  const parts: ProfiledPart[] = [];
  // Instructions after the last node (disk_wait) are named after it.
  let node = graph.nodes.at(-1)!;
  for (let i = program.instructions.length - 1; i >= 0; i--) {
    const nodes = ending.get(i) ?? [];
    node = nodes.at(-1) ?? node;
    const { op } = program.instructions[i]!;
    // A preparation on the leader (the table of a rotary embedding) has no name of its own.
    const ownName = nodes.length === 0 && op !== "leader" ? op : node.op;
    const isAlone = executors[i]!.leaderOnly === true;
    const rows = node.out?.rows ?? "tokens";
    parts.unshift({ op: ownName, name: node.name, nodes, rows, isAlone });
  }
  return parts;
}
