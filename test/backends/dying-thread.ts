// A compute thread that ends in the middle of the first chunk it takes, or hangs there: for threads.test.ts.

import { parentPort, workerData } from "node:worker_threads";
import { arenaViews } from "../../src/backends/cpu/memory/arena.ts";
import { Memories } from "../../src/backends/cpu/memory/memories.ts";
import { makeExecutors } from "../../src/backends/cpu/ops/table.ts";
import { type ComputeJob, instantiate } from "../../src/backends/cpu/threads/compute.ts";
import { makeMember } from "../../src/backends/cpu/threads/recorded-team.ts";

const end =
  workerData === "hangs"
    ? () => {
        for (;;);
      }
    : () => process.exit(7);

parentPort!.once("message", ({ module, memory, program, thread }: ComputeJob) => {
  const views = arenaViews(memory.buffer);
  const executors = makeExecutors({
    program,
    kernels: instantiate(module, memory),
    views,
    memories: new Memories(views),
    thread,
    leader: undefined,
  }).map((executor) => ({
    ...executor,
    run: end,
    ...(executor.row && { row: { ...executor.row, run: end } }),
  }));
  const member = makeMember({ buffer: memory.buffer, ...program, executors, thread }, undefined);
  parentPort!.postMessage("ready");
  member.serve();
});
