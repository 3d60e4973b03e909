// A reporter for CI, and what is made of its records: how many tests of a tier passed, failed and were not run, and why; which files are
// run once more, alone; and which failures were races. scripts/ci-tests.ts runs the tiers with it; test/rules/tally.test.ts holds it.

import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Reporter, SerializedError, TestCase, TestModule, TestSuite } from "vitest/node";

const root = fileURLToPath(new URL("../../", import.meta.url));

export interface TestRecord {
  /** From the repository's root. */
  readonly file: string;
  /** With its project, where the tier has several. */
  readonly name: string;
  readonly state: "passed" | "failed" | "skipped";
  /** The first failure's message, or why it was skipped; "" where nothing was said. */
  readonly why: string;
}

export interface Tally {
  readonly tests: readonly TestRecord[];
  /** Files that could not be loaded, with the error. */
  readonly broken: readonly { readonly file: string; readonly why: string }[];
  /** Errors outside of every test: processes that ended, rejections that nothing handled. */
  readonly unhandled: readonly string[];
}

/** Writes a Tally to the file that LANTERN_TALLY names. */
export class TallyReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const path = process.env.LANTERN_TALLY;
    if (path === undefined) throw new Error("LANTERN_TALLY names no file for the tally.");
    const isBroken = (module: TestModule) =>
      module.errors().length > 0 && [...module.children.allTests()].length === 0;
    const tally: Tally = {
      tests: modules.filter((module) => !isBroken(module)).flatMap(testsOf),
      broken: modules.filter(isBroken).map((module) => {
        return { file: fileOf(module), why: messageOf(module.errors()) };
      }),
      unhandled: unhandled.map((error) => messageOf([error])),
    };
    writeFileSync(path, JSON.stringify(tally));
  }
}

/** Why a test failed that has neither a result nor an error. */
export const didNotEnd = "it did not end";

const fileOf = (module: TestModule): string => module.moduleId.replace(root, "");

const messageOf = (errors: readonly SerializedError[] = []): string =>
  [errors[0]?.name, errors[0]?.message].filter(Boolean).join(": ");

function testsOf(module: TestModule): TestRecord[] {
  const file = fileOf(module);
  const titled = (name: string) =>
    module.project.name ? `${name} (${module.project.name})` : name;
  const hooks = [module, ...module.children.allSuites()].flatMap(
    (suite: TestModule | TestSuite) => {
      const name = suite.type === "module" ? "the file" : suite.fullName;
      const record = { file, name: titled(`what is set up for ${name}`), state: "failed" as const };
      return suite.errors().length > 0 ? [{ ...record, why: messageOf(suite.errors()) }] : [];
    },
  );
  return [...hooks, ...[...module.children.allTests()].map((each) => recordOf(each, file, titled))];
}

function recordOf(each: TestCase, file: string, titled: (name: string) => string): TestRecord {
  const result = each.result();
  const name = titled(each.fullName);
  if (result.state === "passed") return { file, name, state: "passed", why: "" };
  if (result.state !== "skipped") {
    return { file, name, state: "failed", why: messageOf(result.errors) || didNotEnd };
  }
  return { file, name, state: "skipped", why: result.note ?? reasonIn(each.fullName) };
}

/** The reason that a title gives: "kernels [skipped: no GPU]", of the test or of what it is in. */
export function reasonIn(title: string): string {
  return /.*\[(?:skipped: )?([^\]]+)\]/s.exec(title)?.[1] ?? "";
}

/** vitest gives a process a minute to come up; where others have the processors, one may take longer. None of its tests has run. */
const late = /Failed to start [a-z]+ worker for test files (.*)\.$/s;

/** Files that are run once more, alone: a test of theirs failed, or their process did not come up in time. */
export function runAgain({ tests, unhandled }: Tally): string[] {
  const failed = tests.filter(({ state }) => state === "failed").map(({ file }) => file);
  const absent = unhandled.flatMap((error) => {
    return late.exec(error)?.[1]?.replaceAll(root, "").split(", ") ?? [];
  });
  return [...new Set([...failed, ...absent])].sort();
}

/** What counts when `file` was run again: its tests are those of the second run. */
export function withSecond(first: Tally, file: string, second: Tally): Tally {
  const isOther = (each: { readonly file: string }) => each.file !== file;
  return {
    tests: [...first.tests.filter(isOther), ...second.tests],
    broken: [...first.broken.filter(isOther), ...second.broken],
    unhandled: [...first.unhandled.filter((error) => !late.test(error)), ...second.unhandled],
  };
}

/** Tests that failed, and passed when their file was run again. */
export function racesOf(first: Tally, last: Tally): TestRecord[] {
  const keyOf = ({ file, name }: TestRecord) => `${file} ${name}`;
  const failed = new Set(last.tests.filter(({ state }) => state === "failed").map(keyOf));
  const has = new Set(last.tests.map(({ file }) => file));
  return first.tests.filter((each) => {
    return each.state === "failed" && has.has(each.file) && !failed.has(keyOf(each));
  });
}

/** What is wrong in the end, a sentence each; nothing: the tier passed. `files` are all that belong to it. */
export function wrongIn({ tests, broken, unhandled }: Tally, files: readonly string[]): string[] {
  const ran = new Set(tests.map(({ file }) => file));
  const named = new Set(broken.map(({ file }) => file));
  const of = (state: TestRecord["state"]) => tests.filter((each) => each.state === state);
  return [
    ...of("failed").map(({ file, name, why }) => `failed: ${file} > ${name}: ${firstLine(why)}`),
    ...broken.map(({ file, why }) => `could not be loaded: ${file}: ${firstLine(why)}`),
    ...unhandled.map((error) => `outside of every test: ${firstLine(error)}`),
    ...files
      .filter((file) => !ran.has(file) && !named.has(file))
      .map((file) => `not run, without a reason: ${file}`),
    ...of("skipped")
      .filter(({ why }) => why === "")
      .map(({ file, name }) => `skipped without a reason: ${file} > ${name}`),
  ];
}

export const firstLine = (text: string): string => text.split("\n")[0]!.slice(0, 300);

/** "long: 3 passed, 0 failed, 2 not run", and for each reason how many. */
export function linesOf(tier: string, { tests, broken }: Tally): string[] {
  const count = (state: TestRecord["state"]) => tests.filter((each) => each.state === state).length;
  const reasons = Map.groupBy(
    tests.filter(({ state }) => state === "skipped"),
    ({ why }) => why || "no reason is given",
  );
  const files = new Set(tests.map(({ file }) => file)).size;
  const failed = count("failed") + broken.length;
  return [
    `${tier}: ${count("passed")} passed, ${failed} failed, ${count("skipped")} not run, in ${files} files`,
    ...[...reasons].map(([why, list]) => `  not run, ${list.length}: ${firstLine(why)}`),
  ];
}
