// Compute threads bound to CPUs: which ones are chosen, for machines that this one is not, and that the threads of a real
// model run on them.
// Held against: machines made up here, and the CPUs that the system reports.

import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { cpuListText, cpusIn, cpusOfMask } from "../../src/base/cpu-list.ts";
import { type CpuBinding, open, UsageError } from "../../src/index.ts";
import { threadCpus } from "../../src/machine/bind.ts";
import { inFlags } from "../../src/options/names.ts";
import { nodeCpuTopology } from "../../src/platform/node-cpus.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import type { NativeHost } from "../../src/platform/platform.ts";
import { skippedFor } from "../support/skips.ts";
import { tinyFile } from "../support/tiny-file.ts";

const host = { bind: () => undefined } as unknown as NativeHost;
const twoNodes = {
  allowed: [0, 1, 2, 3, 4, 5, 6, 7],
  nodes: [
    [0, 1, 2, 3],
    [4, 5, 6, 7],
  ],
  current: 5,
};
const oneNode = { allowed: [0, 1], nodes: [[0, 1]], current: 0 };

test("lists and masks of CPUs", () => {
  expect(cpusIn("0-3,8")).toEqual([0, 1, 2, 3, 8]);
  expect(["", "3-1", "a", "1,", "0-9999", "0-99999999"].map(cpusIn)).toEqual(
    Array(6).fill(undefined),
  );
  expect(cpusOfMask("0x5")).toEqual([0, 2]);
  expect(cpusOfMask("F0")).toEqual([4, 5, 6, 7]);
  expect(["", "0x", "0", "xyz", "f".repeat(1025)].map(cpusOfMask)).toEqual(
    Array(5).fill(undefined),
  );
  expect(cpuListText([0, 1, 2, 3, 8])).toBe("0-3,8");
});

const placed: [string, CpuBinding, number[][]][] = [
  [
    "every thread has the whole mask",
    { mask: "0xc" },
    [
      [2, 3],
      [2, 3],
    ],
  ],
  ["strict: one after the other", { mask: "0xc", strict: true }, [[2], [3], [2]]],
  ["mask and range together", { mask: "0x1", range: "6-7" }, [[0, 6, 7]]],
  ["a range without an end", { range: "6-" }, [[6, 7]]],
  ["a range without a beginning", { range: "-1" }, [[0, 1]]],
  ["strict alone: all CPUs of the process", { strict: true }, [[0], [1], [2]]],
  [
    "distribute: the nodes in turn",
    { numa: "distribute" },
    [
      [0, 1, 2, 3],
      [4, 5, 6, 7],
      [0, 1, 2, 3],
    ],
  ],
  [
    "isolate: the node of the thread that loads",
    { numa: "isolate" },
    [
      [4, 5, 6, 7],
      [4, 5, 6, 7],
    ],
  ],
  ["numactl: what the process was given", { numa: "numactl" }, [twoNodes.allowed]],
];
test.each(placed)("%s", (_, binding, cpus) => {
  const bound = threadCpus(binding, twoNodes, host)!;
  expect(cpus.map((_, thread) => bound.cpusOf(thread))).toEqual(cpus);
});

test("nothing asked for binds nothing", () => {
  expect(threadCpus(undefined, twoNodes, host)).toBeUndefined();
  expect(threadCpus({ strict: false }, "no Linux", "no machine code")).toBeUndefined();
});

test("a node whose CPUs the process may not use is left out", () => {
  const bound = threadCpus({ numa: "distribute" }, { ...twoNodes, allowed: [1, 2] }, host)!;
  expect([0, 1].map((thread) => bound.cpusOf(thread))).toEqual([
    [1, 2],
    [1, 2],
  ]);
});

test("what changes nothing is said", () => {
  const said = (binding: CpuBinding, threads: number) =>
    threadCpus(binding, oneNode, host)!.warnings(threads);
  expect(said({ numa: "distribute" }, 2)).toEqual([
    '`numa: "distribute"` changes nothing: this machine has one NUMA node',
  ]);
  expect(said({ mask: "1" }, 2)).toEqual(["2 threads share 1 CPU (0): fewer are faster"]);
  expect(said({ mask: "3" }, 2)).toEqual([]);
});

const refused: [CpuBinding, typeof oneNode | string, string][] = [
  [
    { mask: "0xg" },
    oneNode,
    '--cpu-mask: got "0xg", expected hexadecimal digits with a bit for each CPU: 0x5 is CPUs 0 and 2',
  ],
  [{ mask: "4" }, oneNode, "--cpu-mask: got CPUs 2, but this process may use only 0-1"],
  [{ range: "0-7" }, oneNode, "--cpu-range: got CPUs 0-7, but this process may use only 0-1"],
  [{ range: "-" }, oneNode, '--cpu-range: got "-", expected the first and the last CPU: 0-3'],
  [
    { numa: "isolate", strict: true },
    oneNode,
    "--numa isolate chooses the CPUs itself. Leave out --cpu-mask, --cpu-range and --cpu-strict, or --numa",
  ],
  [
    { mask: "1" },
    nodeCpuTopology("darwin") as string,
    "threads cannot be bound to CPUs here: threads are bound to CPUs on Linux only, this is darwin. Leave out --cpu-mask, --cpu-range, --cpu-strict and --numa",
  ],
];
test.each(refused)("%o is refused", (binding, topology, message) => {
  const bind = () => threadCpus(binding, topology, host);
  expect(bind).toThrow(UsageError);
  try {
    bind();
  } catch (error) {
    expect(inFlags((error as Error).message)).toBe(message);
  }
});

test("without machine code nothing can be bound, which is said", () => {
  expect(() => threadCpus({ numa: "numactl" }, oneNode, "this Node has no node:ffi")).toThrow(
    /cannot be bound to CPUs here: this Node has no node:ffi/,
  );
});

const native = nodeNative();
const topology = nodeCpuTopology();
const reason = [native, topology].find((answer) => typeof answer === "string");
const cpus = typeof topology === "string" ? [] : topology.allowed;
const why = reason ?? (cpus.length < 2 ? "this process may use one CPU only" : undefined);
if (why !== undefined) console.log(`binding.test.ts: skipped: ${String(why)}`);

/** How many threads of this process may run on exactly these CPUs. */
function threadsOn(list: string): number {
  const lists = readdirSync("/proc/self/task").map((task) => {
    try {
      const status = readFileSync(`/proc/self/task/${task}/status`, "latin1");
      return /^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1];
    } catch {
      return undefined; // it has ended
    }
  });
  return lists.filter((found) => found === list).length;
}

describe.skipIf(why !== undefined)(
  `the threads of a model${skippedFor(String(why), why !== undefined)}`,
  () => {
    const [first, second] = cpus as [number, number];

    async function counted(
      binding: CpuBinding,
      lists: string[],
    ): Promise<{ on: number[]; threads: number; notes: string[] }> {
      const file = await tinyFile();
      const before = lists.map(threadsOn);
      const options = { contextSize: 64, tuned: false, binding };
      await using model = await open(file.path, options).finally(() => file.remove());
      await model.generate("the", { temperature: 0, maxTokens: 2 }).result;
      const { threads, notes } = model.info.backend;
      return { on: lists.map((list, i) => threadsOn(list) - before[i]!), threads, notes };
    }

    test("strict: one CPU each", async () => {
      const mask = (2n ** BigInt(first) + 2n ** BigInt(second)).toString(16);
      const { on, threads, notes } = await counted({ mask, strict: true }, [
        `${first}`,
        `${second}`,
      ]);
      expect({ on, threads }).toEqual({ on: [1, 1], threads: 2 });
      expect(notes.join("\n")).toContain("threads are bound to one CPU each of ");
    });

    test("as many threads as the mask has CPUs", async () => {
      const { on, threads } = await counted({ range: `${second}-${second}` }, [`${second}`]);
      expect({ on, threads }).toEqual({ on: [1], threads: 1 });
    });
  },
);
