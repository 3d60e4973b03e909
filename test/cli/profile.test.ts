// --profile on the command line: what is printed and written. The numbers are the machine's business.
// Held against: the names of phases, ops and files written here.

import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile({ weightType: "q8_0" });
});
afterAll(() => file.remove());

async function lantern(...args: string[]): Promise<FakeTerminal & { code: number }> {
  const terminal = new FakeTerminal();
  const code = await main(args, terminal, downloads);
  return Object.assign(terminal, { code });
}

const run = (...flags: string[]) =>
  lantern(
    "run",
    "-m",
    file.path,
    "-p",
    "the cat",
    "-n",
    "8",
    "--ignore-eos",
    "-t",
    "2",
    "--no-speculate",
    ...flags,
  );

test("run: tables by op and by layer after the timings, and the bottleneck", async () => {
  const { code, stdout, stderr } = await run("--profile");
  expect(code).toBe(0);
  expect(stdout).toMatch(/^the cat/);
  expect(stdout).not.toContain("matmul");
  expect(stderr).toMatch(/^generation, 7 tokens in 7 batches, [\d.]+ ms: \d+% of generation is /m);
  for (const name of ["matmul", "attention", "waiting", "between batches: sampling", "all"]) {
    expect(stderr).toMatch(new RegExp(`^${name} +`, "m"));
  }
  expect(stderr).toMatch(/^blk\.1 +\d+ +[\d.]+ /m);
  expect(stderr).toMatch(/^thread 1: [\d.]+ ms busy, [\d.]+ ms waiting$/m);
  expect(stderr).toMatch(
    /^allocation: [\d.]+ kB of the JavaScript heap per batch; no tensor memory/m,
  );
  expect(stderr).toMatch(/^load, [\d.]+ ms: .*packing them [\d.]+ ms/m);
});

test("run: a file gets the trace", async () => {
  const { code, stderr, files } = await run("--profile", "trace.json");
  expect(code).toBe(0);
  expect(stderr).toContain("The trace is in trace.json");
  const trace = JSON.parse(files.get("trace.json")!) as { traceEvents: { name: string }[] };
  expect(trace.traceEvents.map(({ name }) => name)).toContain("blk.0.attn_q");
});

test("run --json carries the profile as data, and without the flag there is none", async () => {
  const { stdout } = await run("--profile", "--json");
  const { profile } = JSON.parse(stdout) as { profile: Record<string, unknown> };
  expect(profile).toMatchObject({
    threads: 2,
    load: { ms: expect.any(Number), pack_ms: expect.any(Number) },
    device: null,
    bottleneck: expect.stringContaining("%"),
  });
  const phases = profile.phases as Record<string, unknown>[];
  expect(phases.map(({ phase, batches }) => [phase, batches])).toEqual([
    ["prompt", 1],
    ["generation", 7],
  ]);
  expect(phases[1]).toMatchObject({
    waiting_ms: expect.any(Number),
    heap_bytes_per_batch: expect.any(Number),
    between: { sampling_ms: expect.any(Number) },
    ops: expect.arrayContaining([expect.objectContaining({ name: "matmul", limit: null })]),
  });
  expect(JSON.parse((await run("--json")).stdout)).not.toHaveProperty("profile");
});

test("bench: one profile for each combination, without the warm-up", async () => {
  const flags = ["-t", "1,2", "-p", "40", "-n", "3", "-r", "2", "--level", "3", "--profile"];
  const { stdout } = await lantern("bench", "-m", file.path, ...flags, "--json");
  const { profiles } = JSON.parse(stdout) as {
    profiles: {
      level: number;
      threads: number;
      profile: { phases: { phase: string; tokens: number }[] };
    }[];
  };
  expect(profiles.map(({ level, threads }) => [level, threads])).toEqual([
    [3, 1],
    [3, 2],
  ]);
  for (const { profile } of profiles) {
    const [prompt, generation] = profile.phases;
    expect(generation).toMatchObject({ phase: "generation", tokens: 2 * 3 });
    // Generation begins after a prompt of one token; a prompt may begin as another did, and is then cached so far.
    expect(prompt!.tokens).toBeLessThanOrEqual(2 * (40 + 1));
    expect(prompt!.tokens).toBeGreaterThan(2 * 35);
  }
  const text = (await lantern("bench", "-m", file.path, ...flags)).stdout;
  expect(text).toMatch(/^opt level 3, 2 threads$/m);
});

test("bench: one trace cannot hold several combinations", async () => {
  const { code, stderr } = await lantern("bench", "-t", "1,2", "--profile", "trace.json");
  expect(code).toBe(2);
  expect(stderr).toContain("Give one --level and one -t");
});

test("chat: when it ends", async () => {
  const terminal = new FakeTerminal();
  terminal.script = ["Hello"];
  const flags = ["-n", "4", "--temp", "0", "--ignore-eos", "--profile", "--no-speculate"];
  expect(await main(["chat", "-m", file.path, ...flags], terminal, downloads)).toBe(0);
  expect(terminal.stderr).toMatch(/^generation, 3 tokens in 3 batches/m);
});
