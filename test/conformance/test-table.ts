// The conformance table for the test runner: one test for each case on a target. What is left out is skipped, and its title
// says why.

import { describe, expect, test } from "vitest";
import type { Backend } from "../../src/backends/backend.ts";
import { type Batches, firstDifference, type Tolerance } from "./run-case.ts";
import { cases, skipReason, type TableCase } from "./table.ts";
import type { TargetName } from "./targets.ts";

export interface TableRun {
  readonly target: TargetName;
  create(): Backend | Promise<Backend>;
  /** How many of a case's batches are run; default: all. */
  readonly batches?: number;
  /** The least that values may differ by, where a device rounds otherwise. */
  readonly least?: number;
  /** Why a case is left out. */
  leavesOut?(each: TableCase): string | undefined;
  /** What else is to be asked of the backend, before it is disposed of. */
  after?(each: TableCase, backend: Backend): void | Promise<void>;
}

/** describe() of the whole table on a target, unless the target is not to be had. */
export function testTable(run: TableRun, lacks?: string): void {
  if (lacks !== undefined) {
    test.skip(`${run.target} [skipped: ${lacks}]`, () => {});
    return;
  }
  describe(run.target, () => {
    for (const each of cases) {
      const reason = skipReason(run.target, each) ?? run.leavesOut?.(each);
      if (reason !== undefined) test.skip(`${each.name} [skipped: ${reason}]`, () => {});
      else test(each.name, () => runTableCase(run, each));
    }
  });
}

async function runTableCase(run: TableRun, each: TableCase): Promise<void> {
  const { create, batches, least = 0, after } = run;
  const backend = await create();
  const tolerance = atLeast(each.tolerance, least);
  // Not bit for bit, where the device does not round so.
  const exact = least > 0 ? [] : each.exact;
  const used = firstOf(each.batches, batches);
  const compared = exact ? { tolerance, exact } : { tolerance };
  try {
    expect(await firstDifference(backend, each.make(), compared, used)).toBeUndefined();
    await after?.(each, backend);
  } finally {
    backend.dispose();
  }
}

/** Nothing took the place of kernels: they compute all ops whose columns fill vectors. */
export function expectKernels(each: TableCase, backend: Backend): void {
  const byReference = (backend.explain?.() ?? []).filter((line) => line.includes(": reference ("));
  expect(byReference.filter((line) => line.includes("@64: "))).toEqual([]);
  if (each.name === "op add") expect(byReference.join("\n")).toContain("@45: ");
}

function atLeast(tolerance: Tolerance, least: number): Tolerance {
  if (typeof tolerance === "number") return Math.max(tolerance, least);
  return { ...tolerance, usual: Math.max(tolerance.usual, least) };
}

/** The same array for the same question, so that the reference need not compute it again. */
const beginnings = new Map<Batches, Map<number, Batches>>();

export function firstOf(batches: Batches, count: number = batches.length): Batches {
  const known = beginnings.get(batches) ?? new Map<number, Batches>();
  beginnings.set(batches, known);
  const made = known.get(count) ?? batches.slice(0, count);
  known.set(count, made);
  return made;
}
