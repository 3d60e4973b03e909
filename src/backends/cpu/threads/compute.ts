// A compute thread of the CPU backend: the job that it is sent once, and its main function.

import type { NativeAccess, ReadAt } from "../../../platform/platform.ts";
import { type ReaderJob, serveReader } from "../disk/reader.ts";
import type { Kernels } from "../executor.ts";
import type { GuardJob, guardCalls } from "../guard/guard-calls.ts";
import { arenaViews } from "../memory/arena.ts";
import { Memories } from "../memory/memories.ts";
import { type PackProgram, packExecutors } from "../memory/repack.ts";
import { type NativeJob, openNativeJob } from "../native/entry.ts";
import { makeExecutors, type Program } from "../ops/table.ts";
import { makeMember } from "./recorded-team.ts";
import { type RecordArea, RecordWriter } from "./records.ts";
import { TeamMember } from "./team.ts";

export interface ComputeJob {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  /** Memories that only machine code reads (memories.ts). */
  readonly far: readonly WebAssembly.Memory[];
  /** Machine code kernels; undefined: all kernels are in `module`. */
  readonly native: NativeJob | undefined;
  /** The program to run first, while weights are read; undefined: they are there already. */
  readonly packing: PackProgram | undefined;
  readonly program: Program;
  /** The memory in which times are recorded; undefined: none. */
  readonly records: RecordArea | undefined;
  /** Guard mode; undefined: it is off. */
  readonly guard: GuardJob | undefined;
  readonly thread: number;
  /** It reads weights on disk, and computes nothing; undefined: it computes. */
  readonly reads?: ReaderJob | undefined;
  /** The CPUs that the thread binds itself to; undefined: the system places it. */
  readonly cpus?: readonly number[] | undefined;
}

/**
 * Calls `onReady`, then works on the programs with the others until the team is stopped. `host` runs machine code, where the
 * job has any; `readAt` reads files; `watch` checks its kernels in guard mode.
 */
export function serveCompute(
  job: ComputeJob,
  host: NativeAccess,
  onReady: () => void,
  readAt?: ReadAt | undefined,
  watch?: typeof guardCalls,
): void {
  const { module, memory, far, native, packing, program, records, guard, thread, reads } = job;
  const { buffer } = memory;
  const views = arenaViews(buffer);
  const inWasm = instantiate(module, memory);
  const kernels = {
    ...(guard && watch ? watch(inWasm, guard, buffer, thread) : inWasm),
    ...(native && openNativeJob(native, host, buffer, thread)),
  };
  const memories = new Memories(views, far, host);
  if (reads) {
    onReady();
    serveReader(reads, memories, kernels, readAt!);
    return;
  }
  const executors = makeExecutors({ program, kernels, views, memories, thread, leader: undefined });
  const member = makeMember(
    { buffer, ...program, executors, thread },
    records && new RecordWriter(buffer, records, thread),
  );
  onReady();
  if (packing) {
    const { executors: packers } = packExecutors(packing, memories, kernels, thread, readAt);
    new TeamMember({ buffer, ...packing, thread }, packers).serve();
  }
  member.serve();
}

export function instantiate(module: WebAssembly.Module, memory: WebAssembly.Memory): Kernels {
  return new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Kernels;
}
