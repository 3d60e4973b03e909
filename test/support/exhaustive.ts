// Tests that go through everything of a kind go through some of it, unless all is asked for: LANTERN_TEST_ALL=1. On a GPU that
// the processor plays, a case takes ten seconds, most of them for compiling shaders.

const isAll = process.env.LANTERN_TEST_ALL === "1";

/** All, or those that stand for the others. */
export function someOf<T>(all: readonly T[], few: readonly T[]): readonly T[] {
  return isAll ? all : few;
}
