// The leader's account of recorded times: what the threads wrote (records.ts), summed up by phase, thread and
// instruction. Everything is allocated once.
//
// Records are added up at the beginning of the next step, not at the end of their own: a thread writes its last record when
// it has left the instruction, and by then the others may be done with the step.

import type { GraphNode } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import type { Step } from "../../graph/step.ts";
import type { PhaseTimes, ProfiledPart, RecordedEvents, StepPhase } from "../backend.ts";
import type { Compiled } from "./compile.ts";
import type { Executor } from "./executor.ts";
import { type RecordArea, RecordReader } from "./records.ts";

interface SizeSum {
  readonly tokens: number;
  readonly outputs: number;
  steps: number;
  /** Sum over steps of the average context. */
  contexts: number;
}

/** Steps of generation that are shorter than this are not all recorded, but one of so many after the first few. */
const SHORT_MS = 8;
const SAMPLED = 16;
const FIRST_STEPS = 16;

interface PhaseSums {
  stepMs: number;
  /** Of the steps that were recorded. */
  recordedMs: number;
  steps: number;
  readonly sizes: Map<number, SizeSum>;
  /** [thread][part] */
  readonly busyMs: readonly Float64Array[];
}

export class StepRecords {
  readonly #readers: readonly RecordReader[];
  readonly #phases: Readonly<Record<StepPhase, PhaseSums>>;
  readonly #flag: Int32Array;
  #started = 0;
  #current: PhaseSums;
  #isOn = true;

  constructor(buffer: ArrayBufferLike, area: RecordArea, threads: number, instructions: number) {
    this.#readers = Array.from({ length: threads }, (_, i) => new RecordReader(buffer, area, i));
    this.#flag = new Int32Array(buffer, area.isOn, 1);
    const sums = (): PhaseSums => ({
      stepMs: 0,
      recordedMs: 0,
      steps: 0,
      sizes: new Map(),
      busyMs: this.#readers.map(() => new Float64Array(instructions)),
    });
    this.#phases = { prompt: sums(), generation: sums() };
    this.#current = this.#phases.prompt;
  }

  begin(step: Step, phase: StepPhase): void {
    this.#addRecords();
    this.#current = this.#phases[phase];
    const size = this.#sizeOf(step);
    let positions = 0;
    for (let t = 0; t < step.tokenCount; t++) positions += step.positions[t]! + 1;
    size.steps++;
    size.contexts += positions / Math.max(1, step.tokenCount);
    this.#isOn = phase === "prompt" || this.#isSampled();
    Atomics.store(this.#flag, 0, this.#isOn ? 1 : 0);
    this.#started = performance.now();
  }

  end(): void {
    const ms = performance.now() - this.#started;
    this.#current.stepMs += ms;
    this.#current.steps++;
    if (this.#isOn) this.#current.recordedMs += ms;
  }

  /** Of generation: all long steps, the first short ones, and then some. */
  #isSampled(): boolean {
    const { steps, stepMs } = this.#current;
    return steps < FIRST_STEPS || steps % SAMPLED === 0 || stepMs / steps >= SHORT_MS;
  }

  /** As in the beginning. */
  reset(): void {
    this.#addRecords(); // so that none of them comes later
    for (const sums of Object.values(this.#phases)) {
      sums.stepMs = 0;
      sums.recordedMs = 0;
      sums.steps = 0;
      sums.sizes.clear();
      for (const times of sums.busyMs) times.fill(0);
    }
    for (const reader of this.#readers) reader.forget();
  }

  phases(): Record<StepPhase, PhaseTimes> {
    this.#addRecords();
    return { prompt: timesOf(this.#phases.prompt), generation: timesOf(this.#phases.generation) };
  }

  /** The last events of each thread. */
  events(): RecordedEvents[] {
    return this.#readers.map((reader) => reader.last());
  }

  #sizeOf({ tokenCount, outputCount }: Step): SizeSum {
    const key = tokenCount * 65536 + outputCount;
    let size = this.#current.sizes.get(key);
    if (!size) {
      size = { tokens: tokenCount, outputs: outputCount, steps: 0, contexts: 0 };
      this.#current.sizes.set(key, size);
    }
    return size;
  }

  #addRecords(): void {
    const { busyMs } = this.#current;
    for (let i = 0; i < this.#readers.length; i++) this.#readers[i]!.addTo(busyMs[i]!);
  }
}

/** What was recorded stands for all steps. */
function timesOf({ stepMs, recordedMs, sizes, busyMs }: PhaseSums): PhaseTimes {
  const factor = recordedMs > 0 ? stepMs / recordedMs : 1;
  return {
    stepMs,
    sizes: [...sizes.values()].map(({ tokens, outputs, steps, contexts }) => ({
      tokens,
      outputs,
      steps,
      context: contexts / steps,
    })),
    busyMs: busyMs.map((times) => times.map((ms) => ms * factor)),
  };
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
