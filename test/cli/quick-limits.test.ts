// Percent of the limit where nothing is known yet: `run` in a pipe and with --json measures for a fraction of a second and says so;
// and what other programs used stands beside it.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { limitText } from "../../apps/cli/machine-limits.ts";
import { main } from "../../apps/cli/main.ts";
import { timingFields } from "../../apps/server/timings.ts";
import { open, rememberedMachine, type SpeedLimit } from "../../src/index.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { post, until } from "../server/test-server.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "lantern-quick-"));
  vi.stubEnv("LANTERN_CACHE", folder);
  vi.stubEnv("LANTERN_NO_LIMIT", "");
});
afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true, force: true });
});

async function run(...more: string[]) {
  const terminal = new FakeTerminal();
  terminal.environment = {};
  const text = ["-p", "the cat", "-n", "4", "--temp", "0", "-t", "1"];
  const args = ["run", "-m", file.path, ...text, ...more];
  const code = await main(args, terminal, nodeDownloadPlatform({ LANTERN_CACHE: folder }));
  expect(code, terminal.stderr).toBe(0);
  return terminal;
}

test("a first run in a pipe has percentages, of a quick measurement, which the next run finds", async () => {
  const { stderr } = await run();
  const limit = String.raw`[\d.]+% of the \w+ limit \([\d.]+ of [\d.]+ (GB/s|GOPS), measured quickly\)`;
  for (const phase of ["prompt", "generation"]) {
    expect(stderr).toMatch(new RegExp(`^${phase} .* tokens/s +${limit}`, "m"));
  }
  expect(stderr).toContain('"lantern machine --measure" measures it well');
  const stored = readFileSync(join(folder, "machine.json"), "utf8");
  expect(JSON.parse(stored)).toMatchObject({ quick: true });
  // It is not good enough to choose anything by.
  expect(await rememberedMachine()).toBeUndefined();
  expect((await rememberedMachine({ quick: true }))?.quick).toBe(true);

  const { timings } = JSON.parse((await run("--json")).stdout) as {
    timings: { prompt_limit: object; predicted_limit: object };
  };
  for (const found of [timings.prompt_limit, timings.predicted_limit]) {
    expect(found).toMatchObject({ fraction: expect.any(Number), quick: true });
  }
  expect(readFileSync(join(folder, "machine.json"), "utf8")).toBe(stored);
});

test("with --json alone, too; and --no-limit measures nothing", async () => {
  await run("--no-limit");
  expect(await rememberedMachine({ quick: true })).toBeUndefined();
  const { timings } = JSON.parse((await run("--json")).stdout) as {
    timings: { predicted_limit: object };
  };
  expect(timings.predicted_limit).toMatchObject({ quick: true });
});

test("the first answer of a server has it, too, and its page can ask for the limits", async () => {
  const terminal = new FakeTerminal();
  terminal.environment = { LANTERN_NO_TUNE: "1" };
  const flags = ["--port", "0", "-t", "1", "--no-token", "--no-sessions"];
  const platform = nodeDownloadPlatform({ LANTERN_CACHE: folder });
  const ended = main(["serve", "-m", file.path, ...flags], terminal, platform);
  await until("the server is there", () => terminal.stdout.includes("Ctrl-C stops it"));
  const url = /served at (\S+)/.exec(terminal.stdout)![1]!;
  const answer = await post(`${url}/completion`, { prompt: "the", n_predict: 4 });
  const { timings } = (await answer.json()) as { timings: object };
  expect(timings).toMatchObject({ predicted_limit_fraction: expect.any(Number) });
  const report = await fetch(`${url}/lantern/v1/limits`);
  expect(await report.json()).toMatchObject({
    device: { source: expect.stringMatching("measured") },
  });
  terminal.pressCtrlC();
  expect(await ended).toBe(0);
});

test("a run knows what other programs used meanwhile", async () => {
  let asked = 0;
  // Every time it is asked, ten more seconds are over, in which others had 1.8 cores and this process 0.2.
  vi.spyOn(nodePlatform, "cpuTimes").mockImplementation(() => {
    asked++;
    return { busySeconds: 20.003 * asked, ownSeconds: 2 * asked, atMs: 1e4 * asked, cores: 2 };
  });
  await using model = await open(file.path, { threads: 1 });
  const { timings } = await model.generate("the cat", { maxTokens: 2 }).result;
  expect(timings.others).toEqual({ cores: expect.closeTo(1.8, 1), ofCores: 2 });
  expect(timingFields(timings).timings).toMatchObject({
    others_cores: timings.others!.cores,
    cores: 2,
  });
  // Where the system does not say, as in a browser, nothing is made up.
  vi.spyOn(nodePlatform, "cpuTimes").mockReturnValue(undefined);
  const unknown = await model.generate("the cat", { maxTokens: 2 }).result;
  expect(unknown.timings).not.toHaveProperty("others");
  expect(timingFields(unknown.timings).timings).not.toHaveProperty("others_cores");
});

test("others are named beside the percentage where they matter", () => {
  const limit: SpeedLimit = {
    ...{ resource: "bandwidth", tokensPerSecond: 100, fraction: 0.045 },
    ...{ achievedPerSecond: 1e9, possiblePerSecond: 23e9 },
  };
  const limits = { prompt: undefined, generation: limit };
  const text = "4.5% of the bandwidth limit (1.0 of 23.0 GB/s)";
  expect(limitText(limit, { limits })).toBe(text);
  expect(limitText(limit, { limits, others: { cores: 0.1, ofCores: 2 } })).toBe(text);
  expect(limitText(limit, { limits, others: { cores: 1.84, ofCores: 2 } })).toBe(
    `${text}, others used 1.8 of 2 cores`,
  );
});
