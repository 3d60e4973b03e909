// The leader's account of recorded times: what the threads wrote (records.ts), summed up by phase, thread and
// instruction. Everything is allocated once.
//
// Records are added up at the beginning of the next batch, not at the end of their own: a thread writes its last record when
// it has left the instruction, and by then the others may be done with the batch.

import type { Batch } from "../../../graph/batch.ts";
import type { GraphNode } from "../../../graph/graph.ts";
import type { Plan } from "../../../graph/plan.ts";
import type { BatchPhase, PhaseTimes, ProfiledPart, RecordedEvents } from "../../backend.ts";
import { BatchSums } from "../../batch-sums.ts";
import type { Compiled } from "../compile.ts";
import type { Executor } from "../executor.ts";
import { type RecordArea, RecordReader } from "./records.ts";

/** A phase of the account. [thread][part] */
interface PhaseSums {
  readonly sums: BatchSums;
  readonly busyMs: readonly Float64Array[];
}

export class BatchRecords {
  readonly #readers: readonly RecordReader[];
  readonly #phases: Readonly<Record<BatchPhase, PhaseSums>>;
  readonly #flag: Int32Array;
  #started = 0;
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
    this.#current = this.#phases[phase];
    const { sums } = this.#current;
    sums.begin(batch);
    this.#isOn = phase === "prompt" || sums.isSampled;
    Atomics.store(this.#flag, 0, this.#isOn ? 1 : 0);
    this.#started = performance.now();
  }

  end(): void {
    this.#current.sums.end(performance.now() - this.#started, this.#isOn);
  }

  /** As in the beginning. */
  reset(): void {
    this.#addRecords(); // so that none of them comes later
    for (const { sums, busyMs } of Object.values(this.#phases)) {
      sums.reset();
      for (const times of busyMs) times.fill(0);
    }
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

  /** The last events of each thread. */
  events(): RecordedEvents[] {
    return this.#readers.map((reader) => reader.last());
  }

  #addRecords(): void {
    const { busyMs } = this.#current;
    for (let i = 0; i < this.#readers.length; i++) this.#readers[i]!.addTo(busyMs[i]!);
  }
}

/** What each instruction is: the node that it ends, or a preparation of the next node that ends. */
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
  let node: GraphNode | undefined;
  for (let i = program.instructions.length - 1; i >= 0; i--) {
    const nodes = ending.get(i) ?? [];
    node = nodes.at(-1) ?? node!;
    const { op } = program.instructions[i]!;
    // A leader's preparation (the tables of a rotary embedding) has no name of its own.
    const ownName = nodes.length === 0 && op !== "leader" ? op : node.op;
    const isAlone = executors[i]!.leaderOnly === true;
    const rows = node.out?.rows ?? "tokens";
    parts.unshift({ op: ownName, name: node.name, nodes, rows, isAlone });
  }
  return parts;
}
