// The first tune on the command line: while `chat` or `serve` is idle, with nothing remembered, the kernels of the model are measured,
// once. The machine is a fake one that is always calm: times that other programs disturb are not kept.

import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { CliContext } from "../../apps/cli/command.ts";
import { idleTune } from "../../apps/cli/first-tune.ts";
import { main } from "../../apps/cli/main.ts";
import { AbortedError, open, readTune, untunedTypes } from "../../src/index.ts";
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
  folder = mkdtempSync(join(tmpdir(), "lantern-first-tune-"));
  vi.stubEnv("LANTERN_CACHE", folder);
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

/** The chore of an idle `chat` or `serve`. */
async function tuneIdle(signal: AbortSignal, prepare?: (terminal: FakeTerminal) => void) {
  const terminal = new FakeTerminal();
  prepare?.(terminal);
  const downloads = nodeDownloadPlatform({ LANTERN_CACHE: folder });
  const context = { terminal, downloads } as unknown as CliContext;
  const notes: string[] = [];
  const flags = { tune: true };
  const [chore] = idleTune(file.path, flags, context, (note) => notes.push(note));
  await chore!(signal);
  return notes;
}

interface Run {
  code: number;
  out: string;
  err: string;
}

/** Files of times in the cache, half-written ones too; kernels that were compiled are beside them. */
const remembered = (): string[] => readdirSync(folder).filter((name) => name !== "native");

test("tunes silently, and remembers it: the next time there is nothing to do", async () => {
  expect(await untunedTypes(file.path)).toEqual(["f32"]);
  const before = await open(file.path);
  expect(before.info.backend.isTuned).toBeUndefined();
  await before.dispose();
  expect(await tuneIdle(new AbortController().signal)).toEqual([]);
  expect(remembered()).toEqual([expect.stringMatching(/^tune-.+\.txt$/)]);
  const [name] = remembered();
  const times = readFileSync(join(folder, name!), "utf8");
  expect(readTune(times, name!).groups.map(({ dtype }) => dtype)).toContain("f32");
  expect(await untunedTypes(file.path)).toEqual([]);
  // The engine says so, too, and `run` starts nothing in the background.
  const model = await open(file.path);
  expect(model.info.backend.isTuned).toBe(true);
  await model.dispose();
  expect(await tuneIdle(new AbortController().signal)).toEqual([]);
  expect(readFileSync(join(folder, name!), "utf8")).toBe(times);
});

test("work that arrives ends it, and nothing half-written stays", async () => {
  const controller = new AbortController();
  let looks = 0;
  const tuning = tuneIdle(controller.signal, (terminal) => {
    const load = terminal.load.bind(terminal);
    terminal.load = () => {
      if (++looks === 3) setTimeout(() => controller.abort()); // before, after the look, when it begins
      return load();
    };
  });
  await expect(tuning).rejects.toThrow(AbortedError);
  expect(remembered()).toEqual([]);
  expect(await untunedTypes(file.path)).toEqual(["f32"]);
});

test("times that other programs disturbed are not kept, and that is said", async () => {
  const notes = await tuneIdle(new AbortController().signal, (terminal) => {
    let looks = 0;
    terminal.load = () => {
      looks++; // calm while it looks; then another program uses two cores
      const busySeconds = looks <= 3 ? 0 : 20 * looks;
      return { loadAverage: 2, busySeconds, ownSeconds: 0, atMs: 10_000 * looks };
    };
  });
  expect(notes[0]).toContain("kernels were not tuned, because other programs used");
  expect(remembered()).toEqual(["tune-postponed.json"]);
});

describe("lantern tune", () => {
  const busy = (terminal: FakeTerminal): void => {
    let asked = 0;
    terminal.load = () => {
      asked++;
      return { loadAverage: 2, busySeconds: 20 * asked, ownSeconds: 0, atMs: 10_000 * asked };
    };
  };
  const tune = async (more: string[], prepare?: (terminal: FakeTerminal) => void): Promise<Run> => {
    const terminal = new FakeTerminal();
    terminal.environment = { NO_COLOR: "1" };
    prepare?.(terminal);
    const args = ["tune", "-m", file.path, "--quick", "-t", "1", ...more];
    const code = await main(args, terminal, nodeDownloadPlatform({ LANTERN_CACHE: folder }));
    return { code, out: terminal.stdout, err: terminal.stderr };
  };

  test("remembers nothing that was measured on a busy machine, and says so", async () => {
    const { code, err } = await tune([], busy);
    expect(code).toBe(0);
    expect(err).toContain("The times are not used: other programs used 2.0 cores");
    expect(err).not.toContain("Times written to");
    expect(remembered()).toEqual([]);
  });

  test("unless it is told to, or the machine is calm", async () => {
    const forced = await tune(["--force"], busy);
    expect(forced.err).toContain("Times written to");
    expect(remembered()).toHaveLength(1);
    rmSync(join(folder, remembered()[0]!));
    const calm = await tune([]);
    expect(calm.err).not.toContain("The times are not used");
    expect(remembered()).toHaveLength(1);
  });
});
