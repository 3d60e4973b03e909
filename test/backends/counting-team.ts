// A team whose work is counting: each chunk of each instruction adds one to a word of its own. For team.test.ts, on the
// leader's thread and as the worker that the others are.

import { parentPort, workerData } from "node:worker_threads";
import type { Executor } from "../../src/backends/cpu/executor.ts";
import { controlWords, TeamMember } from "../../src/backends/cpu/threads/team.ts";

export const MOST_CHUNKS = 64;
export const INSTRUCTIONS = 7;

export interface CountingTeam {
  readonly buffer: SharedArrayBuffer;
  readonly threads: number;
  /** i32 addresses: chunks of each instruction in this batch; how often each chunk was done: [instruction][chunk]. */
  readonly chunks: number;
  readonly counts: number;
}

export function countingTeam(threads: number): CountingTeam {
  const chunks = controlWords(threads);
  const counts = chunks + INSTRUCTIONS;
  const buffer = new SharedArrayBuffer(4 * (counts + INSTRUCTIONS * MOST_CHUNKS));
  return { buffer, threads, chunks, counts };
}

export function countingMember(team: CountingTeam, thread: number): TeamMember {
  const words = new Int32Array(team.buffer);
  const executors = Array.from(
    { length: INSTRUCTIONS },
    (_, i): Executor => ({
      chunks: () => words[team.chunks + i]!,
      run: (chunk) => {
        Atomics.add(words, team.counts + i * MOST_CHUNKS + chunk, 1);
        // Some take longer than others.
        for (let spin = 0; spin < (chunk % 5) * 200; spin++) Atomics.load(words, team.chunks + i);
      },
      leaderOnly: i === 3,
    }),
  );
  return new TeamMember({ ...team, control: 0, thread }, executors);
}

if (parentPort) {
  const { team, thread } = workerData as { team: CountingTeam; thread: number };
  parentPort.postMessage("ready");
  countingMember(team, thread).serve();
}
