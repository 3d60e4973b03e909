// A member of the team that records what it works on and when. It takes the place of a TeamMember when a profile was
// asked for; otherwise nothing of this file runs.
//
// The clock is read once when a thread leaves an instruction, and once more only if it had to wait for the next one. What
// lies between two records is waiting: spinning, sleeping, being woken.

import type { Executor } from "./executor.ts";
import type { RecordWriter } from "./records.ts";
import { TeamMember } from "./team.ts";

export interface MemberOptions {
  readonly buffer: ArrayBufferLike;
  readonly control: number;
  readonly executors: readonly Executor[];
  readonly isLeader: boolean;
  readonly lostMs?: number | undefined;
}

export function makeMember(options: MemberOptions, writer: RecordWriter | undefined): TeamMember {
  const { buffer, control, executors, isLeader, lostMs } = options;
  if (!writer) return new TeamMember(buffer, control, executors, isLeader, lostMs);
  return new RecordedMember(options, writer);
}

class RecordedMember extends TeamMember {
  readonly #writer: RecordWriter;
  /** When it began to look for chunks of the open instruction. */
  #start = 0;
  /** It took some, so that the end of its work is #start of the next. */
  #hasWorked = false;

  constructor(options: MemberOptions, writer: RecordWriter) {
    const { buffer, control, executors, isLeader, lostMs } = options;
    super(buffer, control, executors, isLeader, lostMs);
    this.#writer = writer;
  }

  override runStep(stop?: () => boolean): boolean {
    this.#start = this.#writer.now();
    return super.runStep(stop);
  }

  override serve(): void {
    this.#start = this.#writer.now(); // a step may be under way already
    super.serve();
  }

  protected override work(now: number): number {
    const taken = super.work(now);
    this.#hasWorked = taken > 0;
    if (taken > 0) {
      const end = this.#writer.now();
      this.#writer.write(this.indexOf(now), taken, this.#start, end);
      this.#start = end;
    }
    return taken;
  }

  protected override waitPast(now: number, expectsProgress: boolean): number {
    if (this.#hasWorked) {
      const seen = this.ready;
      if (seen !== now) return seen;
    }
    const seen = super.waitPast(now, expectsProgress);
    this.#start = this.#writer.now();
    return seen;
  }
}
