// A member of the team that records its work and the times of it. It replaces TeamMember if a profile is wanted; otherwise
// nothing of this file runs.
//
// The clock is read once when a thread leaves an instruction, and again only if it had to wait for the next one. The time
// between two records is waiting: spinning, sleeping, waking up. Only some short batches are recorded (batch-sums.ts), since
// hundreds of clock reads take more than 1 % of their time.

import type { Executor } from "../executor.ts";
import type { Stage } from "../program.ts";
import type { RecordWriter } from "./records.ts";
import { type StageExecutor, stageExecutors } from "./stages.ts";
import { type BatchEnd, TeamMember, type TeamPlace } from "./team.ts";

export interface MemberOptions extends TeamPlace {
  /** The executors of the instructions. */
  readonly executors: readonly Executor[];
  readonly stages: readonly Stage[];
}

export function makeMember(options: MemberOptions, writer: RecordWriter | undefined): TeamMember {
  const { executors, stages, threads } = options;
  if (writer) return new RecordedMember(options, writer);
  return new TeamMember(options, stageExecutors(stages, executors, threads, undefined));
}

class RecordedMember extends TeamMember {
  readonly #writer: RecordWriter;
  readonly #stages: readonly Stage[];
  readonly #executors: readonly StageExecutor[];
  /** When it began to look for chunks of the open instruction. */
  #start = 0;
  /** It took chunks and recorded them, so that the end of its work is #start of the next. */
  #hasWorked = false;

  constructor(options: MemberOptions, writer: RecordWriter) {
    const { executors, stages, threads } = options;
    const ofStages = stageExecutors(stages, executors, threads, writer);
    super(options, ofStages);
    this.#writer = writer;
    this.#stages = stages;
    this.#executors = ofStages;
  }

  override runBatch(stop?: () => boolean, _meanwhile?: () => void, isResumed?: boolean): BatchEnd {
    this.#start = this.#writer.now();
    return super.runBatch(stop, undefined, isResumed);
  }

  override serve(): void {
    this.#start = this.#writer.now(); // a batch may be running already
    super.serve();
  }

  protected override takeChunks(now: number, executor: Executor): number {
    const { isOn } = this.#writer;
    const taken = super.takeChunks(now, executor);
    this.#hasWorked = isOn && taken > 0;
    if (this.#hasWorked) this.#worked(this.indexOf(now), taken);
    return taken;
  }

  protected override workAlone(index: number): void {
    const { isOn } = this.#writer;
    super.workAlone(index);
    if (isOn) this.#worked(index, 1);
  }

  /** Records the work of a stage until now. */
  #worked(stage: number, taken: number): void {
    const end = this.#writer.now();
    this.#write(stage, taken, this.#start, end);
    this.#start = end;
  }

  /** Records the instructions of a stage one after the other, though their chunks may have been interleaved. */
  #write(stage: number, taken: number, start: number, end: number): void {
    const { spent } = this.#executors[stage]!;
    const { instructions } = this.#stages[stage]!;
    if (!spent) {
      this.#writer.write(instructions[0]!, taken, start, end);
      return;
    }
    let at = start;
    for (let i = 0; i < instructions.length; i++) {
      const { ms, chunks } = spent[i]!;
      spent[i]!.ms = 0;
      spent[i]!.chunks = 0;
      if (chunks > 0) this.#writer.write(instructions[i]!, chunks, at, at + ms);
      at += ms;
    }
  }

  protected override waitPast(now: number, isLeader: boolean): number {
    if (this.#hasWorked) {
      const seen = this.ready;
      if (seen !== now) return seen;
    }
    const seen = super.waitPast(now, isLeader);
    if (this.#writer.isOn) this.#start = this.#writer.now();
    return seen;
  }
}
