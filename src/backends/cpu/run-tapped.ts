// A batch on one thread, instruction by instruction, with a look at every value: for comparing backends and for importance matrices.

import type { Batch } from "../../graph/batch.ts";
import { sectionsOf } from "../../graph/graph.ts";
import type { Plan } from "../../graph/plan.ts";
import type { ReferenceMemory } from "../../graph/reference-memory.ts";
import type { RunOptions, Tap } from "../backend.ts";
import type { Compiled } from "./compile.ts";
import type { Executor } from "./executor.ts";

export interface TappedProgram {
  readonly plan: Plan;
  readonly executors: readonly Executor[];
  readonly compiled: Pick<Compiled, "lastInstruction">;
  readonly reference: ReferenceMemory;
}

/** Runs one instruction after the other of a section on this thread, and calls the tap right after each node. */
export function runTapped(
  batch: Batch,
  { plan, executors, compiled, reference }: TappedProgram,
  tap: Tap,
  { replace, section = 0 }: RunOptions,
): void {
  const { lastInstruction } = compiled;
  const { nodes } = plan.graph;
  const { from, to } = sectionsOf(plan.graph)[section]!;
  let next = from === 0 ? 0 : lastInstruction.get(nodes[from - 1]!)! + 1;
  for (const node of nodes.slice(from, to)) {
    for (; next <= lastInstruction.get(node)!; next++) {
      const executor = executors[next]!;
      const chunks = executor.chunks();
      for (let chunk = 0; chunk < chunks; chunk++) executor.run(chunk);
    }
    if (!node.out) continue;
    const rows = batch.count(node.out.rows);
    tap(node.out, reference.value(node.out).subarray(0, rows * node.out.cols));
    const instead = replace?.(node.out);
    if (instead) reference.value(node.out).set(instead);
  }
}
