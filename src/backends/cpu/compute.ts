// A compute thread's part of the CPU backend: what it is sent, once, and what it does with it.

import { arenaViews } from "./arena.ts";
import { type Kernels, makeExecutors } from "./executors.ts";
import type { Program } from "./program.ts";
import { TeamMember } from "./team.ts";

export interface ComputeJob {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly program: Program;
  readonly thread: number;
}

/** Works on the program with the others, until the team is stopped. `onReady` is called before that. */
export function serveCompute(
  { module, memory, program, thread }: ComputeJob,
  onReady: () => void,
): void {
  const { buffer } = memory;
  const executors = makeExecutors({
    program,
    kernels: instantiate(module, memory),
    views: arenaViews(buffer),
    thread,
    leader: undefined,
  });
  const member = new TeamMember(buffer, program.control, executors, false);
  onReady();
  member.serve();
}

export function instantiate(module: WebAssembly.Module, memory: WebAssembly.Memory): Kernels {
  return new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Kernels;
}
