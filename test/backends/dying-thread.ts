// A compute thread that ends in the middle of the first chunk it takes: for threads.test.ts.

import { parentPort } from "node:worker_threads";
import { arenaViews } from "../../src/backends/cpu/arena.ts";
import { type ComputeJob, instantiate } from "../../src/backends/cpu/compute.ts";
import { makeExecutors } from "../../src/backends/cpu/executors.ts";
import { TeamMember } from "../../src/backends/cpu/team.ts";

parentPort!.once("message", ({ module, memory, program, thread }: ComputeJob) => {
  const executors = makeExecutors({
    program,
    kernels: instantiate(module, memory),
    views: arenaViews(memory.buffer),
    thread,
    leader: undefined,
  }).map((executor) => ({ ...executor, run: () => process.exit(7) }));
  const member = new TeamMember(memory.buffer, program.control, executors, false);
  parentPort!.postMessage("ready");
  member.serve();
});
