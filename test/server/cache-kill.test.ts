// A server that is killed while it stores state, again and again: what it writes after each start is the text of one that is never
// killed. (`npm run stress:cache -- server` does it 200 times.)

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { killServers } from "./kill-servers.ts";

test("the same text, whenever it was killed", async () => {
  const folder = mkdtempSync(join(tmpdir(), "lantern-cache-kill-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { kills, answers, wrong, said } = await killServers(folder, { kills: 3, seed: 3 });
  expect(kills).toBe(3);
  expect(answers).toBeGreaterThanOrEqual(9); // of the last one, which is left alone
  expect(wrong).toEqual([]);
  expect(said).toEqual([]);
}, 240_000);
