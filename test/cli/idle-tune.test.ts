// When kernels are tuned without being asked to: never by `run`, and not for a day after a try on a busy machine. The tune
// itself: first-tune.test.ts.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { CliContext } from "../../apps/cli/command.ts";
import { idleTune } from "../../apps/cli/first-tune.ts";
import { main } from "../../apps/cli/main.ts";
import { isTunePostponed, postponeTune } from "../../src/index.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-idle-tune-"));
  vi.stubEnv("LANTERN_CACHE", folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

/** The chore on a machine of two cores that others use; how often it looked, and what it said. */
async function tuneOnBusyMachine(): Promise<{ looks: number; notes: string[] }> {
  const terminal = new FakeTerminal();
  let looks = 0;
  terminal.load = () => {
    looks++; // 10 s later, another program has used two cores all the time
    return { loadAverage: 2, busySeconds: 20 * looks, ownSeconds: 0, atMs: 10_000 * looks };
  };
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: folder });
  const context = { terminal, downloads } as unknown as CliContext;
  const notes: string[] = [];
  const [chore] = idleTune(file.path, { tune: true }, context, (note) => notes.push(note));
  await chore!(new AbortController().signal);
  return { looks, notes };
}

test("run ends with its text: it tunes nothing, also where somebody watches", async () => {
  const terminal = new FakeTerminal();
  terminal.environment = { NO_COLOR: "1", LANTERN_NO_LIMIT: "1" };
  terminal.errIsTerminal = true;
  const args = ["run", "-m", file.path, "-p", "the cat", "-n", "2", "-t", "1"];
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: folder });
  expect(await main(args, terminal, downloads)).toBe(0);
  expect(await main([...args, "--no-tune"], terminal, downloads)).toBe(0); // what scripts say
  expect(terminal.stderr).not.toContain("tun");
  expect(readdirSync(folder).filter((name) => name.startsWith("tune"))).toEqual([]);
});

test("after a busy try nothing is tried for a day, also by the next process", async () => {
  const first = await tuneOnBusyMachine();
  expect(first.looks).toBeGreaterThan(0);
  expect(first.notes).toEqual([
    expect.stringContaining("other programs used 2.0 cores; the next try is in a day"),
  ]);
  const place = join(folder, "tune-postponed.json");
  const stored = readFileSync(place, "utf8");
  const second = await tuneOnBusyMachine();
  expect(second).toEqual({ looks: 0, notes: [] });
  expect(readFileSync(place, "utf8")).toBe(stored);
  // Now it was the day before yesterday.
  writeFileSync(place, JSON.stringify({ disturbed_at: new Date(Date.now() - 2 * 864e5) }));
  const third = await tuneOnBusyMachine();
  expect(third.looks).toBeGreaterThan(0);
  expect(await isTunePostponed()).toBe(true);
});

test("a day is a day, and what cannot be read says nothing", async () => {
  const now = new Date("2026-11-15T12:00:00Z");
  const later = (hours: number) => new Date(now.getTime() + hours * 3.6e6);
  expect(await isTunePostponed(now)).toBe(false);
  await postponeTune(now);
  expect(await isTunePostponed(later(0))).toBe(true);
  expect(await isTunePostponed(later(23))).toBe(true);
  expect(await isTunePostponed(later(24))).toBe(false);
  expect(await isTunePostponed(later(-1))).toBe(false); // the clock was set back
  for (const text of ["", "{", "null", '{"disturbed_at": 7}', '{"disturbed_at": "soon"}']) {
    writeFileSync(join(folder, "tune-postponed.json"), text);
    expect(await isTunePostponed(now)).toBe(false);
  }
});
