// Chooses the CPUs for each compute thread: llama.cpp's --cpu-mask, --cpu-range, --cpu-strict and --numa. This file
// decides; each thread binds itself: the engine's, which is the leader, before it loads a model, a compute thread when it
// gets its job. Threads inherit the binding of the thread that starts them, so each one has to.

import type { CpuBinding } from "../api/api.ts";
import { cpuListText, cpusIn, cpusOfMask } from "../base/cpu-list.ts";
import { OptionError, UsageError, WorkerError } from "../base/errors.ts";
import { plural } from "../base/plural.ts";
import type { CpuTopology, NativeAccess } from "../platform/platform.ts";

export interface ThreadCpus {
  /** The number of CPUs that the threads share: the default number of threads. */
  readonly count: number;
  /** The CPUs of a thread. */
  cpusOf(thread: number): readonly number[];
  /** For --explain. */
  readonly note: string;
  /** Why it changes nothing, or less than expected. */
  warnings(threads: number): string[];
}

/** undefined: nothing was asked for. Throws if threads cannot be bound: a request is never ignored. */
export function threadCpus(
  binding: CpuBinding | undefined,
  topology: CpuTopology | string,
  native: NativeAccess,
): ThreadCpus | undefined {
  if (!binding || Object.values(binding).every((value) => value === undefined || value === false)) {
    return undefined;
  }
  const refused = [topology, native].find((answer) => typeof answer === "string");
  if (refused !== undefined || typeof topology === "string") {
    throw new UsageError(
      `threads cannot be bound to CPUs here: ${refused as string}. Leave out \`mask\`, \`range\`, \`strict\` and \`numa\``,
    );
  }
  const { mask, range, strict = false, numa } = binding;
  if (numa === undefined) return byMask(asked(mask, range, topology), strict);
  if (mask !== undefined || range !== undefined || strict) {
    throw new UsageError(
      `\`numa: "${numa}"\` chooses the CPUs itself. Leave out \`mask\`, \`range\` and \`strict\`, or \`numa\``,
    );
  }
  return byNode(numa, topology);
}

/** Binds the calling thread. */
export function bindThread(native: NativeAccess, cpus: readonly number[]): void {
  const refused = typeof native === "string" ? native : native.bind(cpus);
  if (refused === undefined) return;
  throw new WorkerError(
    `a thread could not be bound to CPUs ${cpuListText(cpus)}: ${refused}. Leave out \`mask\`, \`range\`, \`strict\` and \`numa\``,
  );
}

function byMask(cpus: readonly number[], strict: boolean): ThreadCpus {
  const list = cpuListText(cpus);
  return {
    count: cpus.length,
    cpusOf: (thread) => (strict ? [cpus[thread % cpus.length]!] : cpus),
    note: `threads are bound to ${strict ? "one CPU each of " : "CPUs "}${list}`,
    warnings: (threads) =>
      threads > cpus.length
        ? [`${threads} threads share ${plural(cpus.length, "CPU")} (${list}): fewer are faster`]
        : [],
  };
}

/** Placements of each kind of --numa: the CPUs of thread 0, 1, ..., repeated for more threads. */
const placements: Readonly<
  Record<NonNullable<CpuBinding["numa"]>, (topology: CpuTopology) => readonly (readonly number[])[]>
> = {
  distribute: usableNodes,
  isolate: (topology) => {
    const { current = topology.allowed[0]! } = topology;
    const nodes = usableNodes(topology);
    return [nodes.find((cpus) => cpus.includes(current)) ?? nodes[0]!];
  },
  numactl: ({ allowed }) => [allowed],
};

export const numaKinds: readonly string[] = Object.keys(placements);

function byNode(numa: NonNullable<CpuBinding["numa"]>, topology: CpuTopology): ThreadCpus {
  const sets = placements[numa](topology);
  const isPlain = topology.nodes.length === 1;
  return {
    count: new Set(sets.flat()).size,
    cpusOf: (thread) => sets[thread % sets.length]!,
    note: `numa ${numa}: threads are bound to CPUs ${sets.map(cpuListText).join(" and ")}`,
    warnings: () =>
      isPlain ? [`\`numa: "${numa}"\` changes nothing: this machine has one NUMA node`] : [],
  };
}

/** The CPUs of each node that this process may use. */
function usableNodes({ nodes, allowed }: CpuTopology): number[][] {
  const may = new Set(allowed);
  const usable = nodes.map((cpus) => cpus.filter((cpu) => may.has(cpu)));
  return usable.filter((cpus) => cpus.length > 0);
}

/** The CPUs of mask and range together; all that this process may use if neither is given. */
function asked(
  mask: string | undefined,
  range: string | undefined,
  { allowed }: CpuTopology,
): readonly number[] {
  if (mask === undefined && range === undefined) return allowed;
  const cpus = [
    ...(mask === undefined ? [] : maskCpus(mask)),
    ...(range === undefined ? [] : rangeCpus(range, allowed)),
  ];
  const may = new Set(allowed);
  const others = cpus.filter((cpu) => !may.has(cpu));
  if (others.length > 0) {
    throw new UsageError(
      `${mask === undefined ? "range" : "mask"}: got CPUs ${cpuListText(sorted(cpus))}, but this process may use only ${cpuListText(allowed)}`,
    );
  }
  return sorted(cpus);
}

function maskCpus(mask: string): number[] {
  const cpus = cpusOfMask(mask);
  if (cpus) return cpus;
  throw new OptionError(
    "mask",
    mask,
    "hexadecimal digits with a bit for each CPU: 0x5 is CPUs 0 and 2",
  );
}

/** llama.cpp's form, in which either end may be missing: "2-5", "2-", "-5". */
function rangeCpus(range: string, allowed: readonly number[]): number[] {
  const [, first, last] = /^(\d*)-(\d*)$/.exec(range) ?? [];
  const isRange = first !== undefined && (first !== "" || last !== "");
  const cpus = isRange ? cpusIn(`${first || allowed[0]}-${last || allowed.at(-1)}`) : undefined;
  if (cpus) return cpus;
  throw new OptionError("range", range, "the first and the last CPU: 0-3");
}

function sorted(cpus: readonly number[]): number[] {
  return [...new Set(cpus)].sort((a, b) => a - b);
}
