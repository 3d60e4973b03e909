// Tests that go through everything of a kind go through some of it, unless all is asked for: LANTERN_TEST_ALL=1. On a GPU that
// the processor plays, a case takes ten seconds, most of them for compiling shaders. What is left out is skipped, and says so.

import { test } from "vitest";

const isAll = process.env.LANTERN_TEST_ALL === "1";

/** Why a test is left out; undefined: all are asked for. */
export const leftOut: string | undefined = isAll ? undefined : "LANTERN_TEST_ALL=1 runs it";

/** Whether these tests run on one driver, with fewer cases on a second one (test/tiers/gpu.config.ts). */
const isSecond = process.env.LANTERN_TEST_SECOND === "1" && !isAll;

/** Why a test is left out on a second driver; undefined: it is not. */
export const leftOutOnSecond: string | undefined = isSecond ? "the first driver has it" : undefined;

/** All, or on a second driver those that stand for the others: host and shader are the same, and the first driver has them all. */
export function someOnSecond<T>(what: string, all: readonly T[], few: readonly T[]): readonly T[] {
  if (!isSecond || few.length >= all.length) return all;
  test.skip(`${all.length - few.length} more ${what} [skipped: ${leftOutOnSecond}]`, () => {});
  return few;
}

/** All, or those that stand for the others. */
export function someOf<T>(what: string, all: readonly T[], few: readonly T[]): readonly T[] {
  if (isAll) return all;
  test.skip(`${all.length - few.length} more ${what} [skipped: LANTERN_TEST_ALL=1 runs them]`, () => {});
  return few;
}
