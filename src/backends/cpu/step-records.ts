// The leader's account of recorded times: what the threads wrote (records.ts), summed up by phase, thread and
// instruction, and the last events as they were, for a trace. Everything is allocated once.
//
// Records are taken at the beginning of the next step, not at the end of their own: a thread writes its last record when
// it has left the instruction, and by then the others may be done with the step.

import type { GraphNode } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import type { Step } from "../../graph/step.ts";
import {
  EVENT_NUMBERS,
  type PhaseTimes,
  type ProfiledPart,
  type RecordedEvents,
  type StepPhase,
} from "../backend.ts";
import type { Compiled } from "./compile.ts";
import type { Executor } from "./executor.ts";
import { type RecordArea, RecordReader } from "./records.ts";

/** Events that are kept: about 200 tokens of a model with 22 layers, on two threads. 5 MB. */
const EVENTS = 2 ** 17;

interface SizeSum {
  readonly tokens: number;
  readonly outputs: number;
  steps: number;
  /** Sum over steps of the average context. */
  contexts: number;
}

interface PhaseSums {
  stepMs: number;
  readonly sizes: Map<number, SizeSum>;
  /** [thread][part] */
  readonly busyMs: readonly Float64Array[];
  readonly calls: Uint32Array;
}

export class StepRecords {
  readonly #readers: readonly RecordReader[];
  readonly #phases: Readonly<Record<StepPhase, PhaseSums>>;
  readonly #events: Float64Array = new Float64Array(EVENTS * EVENT_NUMBERS);
  #eventCount = 0;
  /** The step in which each part was last seen, to count calls. */
  readonly #seenIn: Int32Array;
  #stepNumber = 0;
  #started = 0;
  #current: PhaseSums;
  #thread = 0;

  constructor(buffer: ArrayBufferLike, area: RecordArea, threads: number, instructions: number) {
    this.#readers = Array.from({ length: threads }, (_, i) => new RecordReader(buffer, area, i));
    const sums = (): PhaseSums => ({
      stepMs: 0,
      sizes: new Map(),
      busyMs: this.#readers.map(() => new Float64Array(instructions)),
      calls: new Uint32Array(instructions),
    });
    this.#phases = { prompt: sums(), generation: sums() };
    this.#current = this.#phases.prompt;
    this.#seenIn = new Int32Array(instructions);
  }

  begin(step: Step, phase: StepPhase): void {
    this.#takeRecords();
    this.#current = this.#phases[phase];
    this.#stepNumber++;
    const size = this.#sizeOf(step);
    let positions = 0;
    for (let t = 0; t < step.tokenCount; t++) positions += step.positions[t]! + 1;
    size.steps++;
    size.contexts += positions / Math.max(1, step.tokenCount);
    this.#started = performance.now();
  }

  end(): void {
    this.#current.stepMs += performance.now() - this.#started;
  }

  phases(): Record<StepPhase, PhaseTimes> {
    this.#takeRecords();
    return { prompt: timesOf(this.#phases.prompt), generation: timesOf(this.#phases.generation) };
  }

  /** The last events, oldest first. */
  events(): RecordedEvents {
    this.#takeRecords();
    const count = this.#eventCount;
    if (count <= EVENTS)
      return { numbers: this.#events.slice(0, count * EVENT_NUMBERS), dropped: 0 };
    const oldest = (count % EVENTS) * EVENT_NUMBERS;
    const numbers = new Float64Array(this.#events.length);
    numbers.set(this.#events.subarray(oldest));
    numbers.set(this.#events.subarray(0, oldest), this.#events.length - oldest);
    return { numbers, dropped: count - EVENTS };
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

  #takeRecords(): void {
    for (let thread = 0; thread < this.#readers.length; thread++) {
      this.#thread = thread;
      this.#readers[thread]!.take(this.#see);
    }
  }

  readonly #see = (part: number, chunks: number, start: number, end: number): void => {
    const { busyMs, calls } = this.#current;
    busyMs[this.#thread]![part]! += end - start;
    if (this.#seenIn[part] !== this.#stepNumber) {
      this.#seenIn[part] = this.#stepNumber;
      calls[part]!++;
    }
    const at = (this.#eventCount++ % EVENTS) * EVENT_NUMBERS;
    const events = this.#events;
    events[at] = part;
    events[at + 1] = this.#thread;
    events[at + 2] = chunks;
    events[at + 3] = start;
    events[at + 4] = end;
  };
}

function timesOf({ stepMs, sizes, busyMs, calls }: PhaseSums): PhaseTimes {
  return {
    stepMs,
    sizes: [...sizes.values()].map(({ tokens, outputs, steps, contexts }) => ({
      tokens,
      outputs,
      steps,
      context: contexts / steps,
    })),
    busyMs: busyMs.map((times) => times.slice()),
    calls: calls.slice(),
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
    parts.unshift({ op: ownName, name: node.name, nodes, isAlone });
  }
  return parts;
}
