// docs/mission.md and scripts/mission.ts: the same 32 rows, and every command that needs no GPU prints the line that shows its row.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { missionFiles, runRow } from "../../scripts/mission.ts";
import { missionRows } from "../../scripts/mission-rows.ts";
import { skippedFor } from "../support/skips.ts";

let root: string;
let files: Awaited<ReturnType<typeof missionFiles>>;
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), "lantern-mission-"));
  files = await missionFiles(root);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

/** Rows of the document's tables, and the commands that they name. */
const documented = [
  ...readFileSync("docs/mission.md", "utf8").matchAll(
    /^\| ([A-Z]\d) \| .*?\| `lantern (\S+)[^`]*` \|/gm,
  ),
].map(([, row, command]) => ({ row: row!, command: command! }));

test("the document and the script have the same rows, 32", () => {
  expect(missionRows).toHaveLength(32);
  expect(missionRows.map(({ row }) => row)).toEqual(documented.map(({ row }) => row));
});

describe.each(missionRows)("$row", (row) => {
  // It measures the machine for some seconds: test/cli/machine.test.ts has it.
  test.skipIf(row.measures)(
    `prints the line that shows it${skippedFor("it measures the machine for some seconds: test/cli/machine.test.ts has it", row.measures === true)}`,
    async ({ skip }) => {
      if (row.instead) {
        expect(readFileSync(row.instead.test, "utf8")).toContain(row.instead.title);
        return;
      }
      const { state, line } = await runRow(row, files);
      if (state === "skipped") skip(line);
      expect(state, line).toBe("ok");
    },
  );
});
