// What the fuzzers found, again: every file in regressions/ must run without a finding. A new finding of `npm run fuzz` lies
// there and fails here until it is repaired.
//
// Inputs run in this process, so one that hangs ends with the test's time limit.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { FuzzTarget, Json } from "./target.ts";
import { fuzzTargets } from "./targets/table.ts";

interface Regression {
  target: string;
  kind: string;
  found: string;
  seed: number;
  input: Json;
}

function read<T>(folder: URL): { file: string; value: T }[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((file) => file.endsWith(".json"))
    .map((file) => ({ file, value: JSON.parse(readFileSync(new URL(file, folder), "utf8")) as T }));
}

const regressions = read<Regression>(new URL("regressions/", import.meta.url));

describe.each([...fuzzTargets.keys()])("%s", (name) => {
  const found = regressions.filter(({ value }) => value.target === name);

  test(`${found.length} findings are repaired`, async () => {
    if (found.length === 0) return;
    const { target } = (await import(fuzzTargets.get(name)!.href)) as { target: FuzzTarget };
    await target.prepare?.();
    try {
      for (const { file, value } of found) {
        await expect(run(target, value.seed, value.input), `regressions/${file}`).resolves.toBe(
          true,
        );
      }
    } finally {
      await target.dispose?.();
    }
  });
});

test("every finding is of a target that there is", () => {
  for (const { file, value } of regressions) {
    expect(fuzzTargets.has(value.target), file).toBe(true);
  }
});

async function run(target: FuzzTarget, seed: number, input: Json): Promise<boolean> {
  await target.run(seed, input);
  return true;
}
