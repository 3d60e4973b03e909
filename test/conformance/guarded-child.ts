// The conformance table in guard mode, in a process of its own: machine code that leaves its buffers ends it. Each case is
// announced before it runs, and the kernel that is running is noted in a file, so that whoever started this knows what died.
//
//   guarded-child.ts NOTES-FILE TARGET     TARGET: a name of targets.ts, or "interpreted": WebAssembly's kernels, interpreted

import { openSync, writeSync } from "node:fs";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { guardMode } from "../../src/backends/cpu/guard/guard.ts";
import { firstDifference } from "./run-case.ts";
import { cases, skipReason } from "./table.ts";
import { cpuTargets, guardedName } from "./targets.ts";

const [notesFile, name] = process.argv.slice(2);
const notes = openSync(notesFile!, "w");
const note = (kernel: string, args: readonly number[]) =>
  void writeSync(notes, `${kernel}(${args.join(", ")})`.padEnd(200), 0);

const interpret = name === "interpreted";
const target = cpuTargets.find((one) => one.name === (interpret ? "wasm" : name))!;
/** Fewer than elsewhere: what is watched is slow, and what is interpreted is slower. */
const batches = interpret ? 2 : 4;

for (const each of cases) {
  if (skipReason(guardedName(name!), each) !== undefined) continue;
  console.log(`case ${name}: ${each.name}`);
  const options = target.options();
  const guard = guardMode({ interpret, ...(options.native && { onCall: note }) });
  const backend = new CpuBackend({ ...options, guard });
  const used = each.batches.slice(0, batches);
  const wrong = await firstDifference(backend, each.make(), each, used);
  backend.dispose();
  if (wrong !== undefined) {
    console.log(`wrong ${wrong}`);
    process.exitCode = 1;
  }
}
console.log("done");
