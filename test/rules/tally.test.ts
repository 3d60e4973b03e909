// The tally of CI (test/tiers/tally.ts) held against a run of vitest whose outcome is known: what passed, failed, was left out and why, and
// what could not be loaded; and what follows from two runs of a file.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import {
  linesOf,
  racesOf,
  reasonIn,
  runAgain,
  type Tally,
  type TestRecord,
  withSecond,
  wrongIn,
} from "../tiers/tally.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

const record = (file: string, name: string, state: TestRecord["state"], why = ""): TestRecord => {
  return { file, name, state, why };
};
const tallyOf = (tests: TestRecord[], rest: Partial<Tally> = {}): Tally => {
  return { tests, broken: [], unhandled: [], ...rest };
};

test("a run of vitest: every outcome is in its tally", () => {
  const cache = join(root, "node_modules", ".cache");
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, "tally-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const write = (name: string, text: string) =>
    writeFileSync(
      join(folder, name),
      `import { beforeAll, describe, expect, test } from "vitest";\n${text}`,
    );
  write(
    "one.test.ts",
    `test("holds", () => {});
    test("does not", () => expect(1).toBe(2));
    test.skip("later [skipped: no disk]", () => {});
    test("looks first", ({ skip }) => skip("no tape"));
    test.skip("silent", () => {});`,
  );
  write("broken.test.ts", `throw new Error("no such thing");`);
  write(
    "hook.test.ts",
    `describe("s", () => { beforeAll(() => { throw new Error("hm"); }); test("t", () => {}); });`,
  );
  write(
    "left.test.ts",
    `test("x", () => { setTimeout(() => { throw new Error("late"); }); return new Promise((end) => setTimeout(end, 20)); });`,
  );
  const out = join(folder, "tally.json");
  spawnSync(
    process.execPath,
    [
      ...[join(root, "node_modules/vitest/vitest.mjs"), "run", "--root", folder],
      `--reporter=${join(root, "test/tiers/tally.config.ts")}`,
    ],
    { env: { ...process.env, LANTERN_TALLY: out } },
  );
  const { tests, broken, unhandled }: Tally = JSON.parse(readFileSync(out, "utf8"));
  const outcomes = tests.map(({ file, name, state, why }) => [
    file.split("/").at(-1),
    name.replace(" > ", " "),
    state,
    why.split(" //")[0],
  ]);
  expect(outcomes.sort()).toEqual([
    ["hook.test.ts", "s t", "skipped", ""],
    ["hook.test.ts", "what is set up for s", "failed", "Error: hm"],
    ["left.test.ts", "x", "passed", ""],
    ["one.test.ts", "does not", "failed", expect.stringContaining("expected 1 to be 2")],
    ["one.test.ts", "holds", "passed", ""],
    ["one.test.ts", "later [skipped: no disk]", "skipped", "no disk"],
    ["one.test.ts", "looks first", "skipped", "no tape"],
    ["one.test.ts", "silent", "skipped", ""],
  ]);
  expect(broken.map(({ file, why }) => [file.split("/").at(-1), why])).toEqual([
    ["broken.test.ts", "Error: no such thing"],
  ]);
  expect(unhandled).toEqual(["Error: late"]);
});

test("a failure that passes alone is a race; one that fails again fails the run", () => {
  const first = tallyOf([
    record("a", "1", "passed"),
    record("b", "1", "failed", "Error: b1"),
    record("b", "2", "failed", "Error: b2"),
    record("b", "3", "passed"),
  ]);
  expect(runAgain(first)).toEqual(["b"]);
  const alone = tallyOf([
    record("b", "1", "passed"),
    record("b", "2", "failed", "Error: again"),
    record("b", "3", "failed", "Error: new"),
  ]);
  const last = withSecond(first, "b", alone);
  expect(racesOf(first, last)).toEqual([record("b", "1", "failed", "Error: b1")]);
  expect(wrongIn(last, ["a", "b"])).toEqual([
    "failed: b > 2: Error: again",
    "failed: b > 3: Error: new",
  ]);
  const good = withSecond(
    first,
    "b",
    tallyOf(alone.tests.map((each) => ({ ...each, state: "passed" }))),
  );
  expect(wrongIn(good, ["a", "b"])).toEqual([]);
  expect(racesOf(first, good)).toHaveLength(2);
});

test("a crash, a file that could not be loaded and a file that did not run are no races", () => {
  const first = tallyOf([record("a", "1", "passed")], {
    broken: [{ file: "b", why: "SyntaxError: x" }],
    unhandled: ["Error: Worker exited unexpectedly"],
  });
  expect(runAgain(first)).toEqual([]);
  expect(wrongIn(first, ["a", "b", "c"])).toEqual([
    "could not be loaded: b: SyntaxError: x",
    "outside of every test: Error: Worker exited unexpectedly",
    "not run, without a reason: c",
  ]);
});

test("a process that did not come up in time has run nothing: its files are run again", () => {
  const first = tallyOf([record("a", "1", "passed")], {
    unhandled: [`Error: [vitest-pool]: Failed to start forks worker for test files ${root}b.`],
  });
  expect(runAgain(first)).toEqual(["b"]);
  const last = withSecond(first, "b", tallyOf([record("b", "1", "passed")]));
  expect(wrongIn(last, ["a", "b"])).toEqual([]);
});

test("what was not run is counted by its reason, and needs one", () => {
  const tally = tallyOf([
    record("a", "1", "skipped", "no GPU"),
    record("a", "2", "skipped", "no GPU"),
    record("a", "3", "skipped"),
  ]);
  expect(linesOf("long", tally)).toEqual([
    "long: 0 passed, 0 failed, 3 not run, in 1 files",
    "  not run, 2: no GPU",
    "  not run, 1: no reason is given",
  ]);
  expect(wrongIn(tally, ["a"])).toEqual(["skipped without a reason: a > 3"]);
  expect(reasonIn("models [a] > b [skipped: no disk]")).toBe("no disk");
  expect(reasonIn("amx [this processor lacks amx] > adds")).toBe("this processor lacks amx");
});
