// A server that is killed while it writes whatever it writes: what it has acknowledged is there. (`npm run stress:kills` does it 100 times.)

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { killWrites } from "./kill-writes.ts";

test("what was acknowledged is there, and nothing is half there", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lantern-kill-writes-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { kills, lost, said, left } = await killWrites(folder, { kills: 3, seed: 5 });
  expect(kills).toBe(3);
  expect(lost).toEqual([]);
  expect(said).toEqual([]);
  expect(left).toEqual([]);
}, 600_000);
