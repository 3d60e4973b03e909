// The conformance suite in guard mode, in a process of its own: machine code that leaves its buffers ends it. Each case is
// announced before it runs, and the kernel that is running is noted in a file, so that whoever started this knows what died.
//
//   guarded-child.ts NOTES-FILE WAY [WAY...]     WAY: "level 2", "level 3" (WebAssembly), "interpreted", or a target's name

import { openSync, writeSync } from "node:fs";
import { CpuBackend, type CpuOptions } from "../../src/backends/cpu/cpu.ts";
import { guardMode } from "../../src/backends/cpu/guard/guard.ts";
import { nativeHere } from "../support/native.ts";
import { conformanceCases } from "./cases.ts";
import { firstDifference, type Steps } from "./compare-values.ts";

const [notesFile, ...ways] = process.argv.slice(2);
const notes = openSync(notesFile!, "w");
const note = (kernel: string, args: readonly number[]) =>
  void writeSync(notes, `${kernel}(${args.join(", ")})`.padEnd(200), 0);

/** Fewer than in backends.test.ts, of every kind: what is watched is slow, and what is interpreted is slower. */
const steps: Steps = [
  [1, 0],
  [3, 2],
  [12, 0],
  [9, 3],
];
const fewSteps: Steps = [
  [1, 0],
  [3, 2],
  [5, 0],
];

const plain = { threads: 1, startThread: undefined } as const;

function optionsOf(way: string): CpuOptions {
  if (way === "level 2") return { level: 2, ...plain };
  if (way === "level 3" || way === "interpreted") return { level: 3, ...plain };
  const { native } = nativeHere.find(({ name }) => name === way)!;
  return { level: 3, ...plain, native };
}

for (const way of ways) {
  for (const { name, options, tolerance } of conformanceCases) {
    console.log(`case ${way}: ${name}`);
    const made = optionsOf(way);
    const backend = new CpuBackend({
      ...made,
      guard: guardMode({
        interpret: way === "interpreted",
        ...(made.native && { onCall: note }),
      }),
    });
    const wrong = await firstDifference(
      backend,
      options,
      tolerance,
      way === "interpreted" ? fewSteps : steps,
    );
    if (wrong !== undefined) {
      console.log(`wrong ${wrong}`);
      process.exitCode = 1;
    }
  }
}
console.log("done");
