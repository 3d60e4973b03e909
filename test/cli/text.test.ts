// How numbers, tables, colours and the progress bar look.
// Held against: texts written here.

import { describe, expect, test } from "vitest";
import { barText, ProgressBar, progressFacts } from "../../apps/cli/progress.ts";
import {
  bytesText,
  countText,
  durationText,
  palette,
  tableText,
  wantsColor,
} from "../../apps/cli/text.ts";
import { timingsJson, timingsText } from "../../apps/cli/timings.ts";
import { FakeTerminal } from "./fake-terminal.ts";

test("bytes, counts, durations", () => {
  expect([0, 999, 1000, 999_949, 999_950, 322_591_712, 5e12].map(bytesText)).toEqual([
    "0 B",
    "999 B",
    "1.0 kB",
    "999.9 kB",
    "1.0 MB",
    "322.6 MB",
    "5.0 TB",
  ]);
  expect([12, 1500, 15_191_712, 1_100_048_384].map(countText)).toEqual([
    "12",
    "1.5 k",
    "15.2 M",
    "1.10 B",
  ]);
  expect([0.4, 59.6, 200, 3900].map(durationText)).toEqual([
    "0 s",
    "1 min 0 s",
    "3 min 20 s",
    "1 h 5 min",
  ]);
});

test("tables align, and no line ends in spaces", () => {
  expect(
    tableText(
      [
        ["a", "1", "x"],
        ["long", "22", ""],
      ],
      [1],
    ),
  ).toBe("a      1  x\nlong  22\n");
});

test("colours only where they are wanted", () => {
  expect(palette(true).bold("x")).toBe("\x1b[1mx\x1b[22m");
  expect(palette(false).bold("x")).toBe("x");
  const env = (name: string, value: string) => (asked: string) =>
    asked === name ? value : undefined;
  const none = (): undefined => undefined;
  expect(wantsColor(true, none, true)).toBe(true);
  expect(wantsColor(false, none, true)).toBe(false);
  expect(wantsColor(true, none, false)).toBe(false);
  expect(wantsColor(true, env("NO_COLOR", "1"), true)).toBe(false);
  expect(wantsColor(true, env("NO_COLOR", ""), true)).toBe(true);
  expect(wantsColor(true, env("TERM", "dumb"), true)).toBe(false);
});

const timings = {
  loadMs: 61.24,
  promptTokens: 7,
  cachedTokens: 2,
  promptMs: 50,
  generatedTokens: 1,
  generatedMs: 0,
  sampledTokens: 2,
  sampleMs: 0.4,
  totalMs: 50.6,
  work: {
    prompt: { bytes: 1e9, floatOps: 1e9, halfOps: 0, int8Ops: 9e9 },
    generation: { bytes: 0, floatOps: 0, halfOps: 0, int8Ops: 0 },
  },
};

test("timings for people: a run without time has no infinite speed", () => {
  expect(timingsText(timings).split("\n")).toEqual([
    "load time                   61.2 ms",
    "sample time      2  tokens   0.4 ms  5000.0 tokens/s",
    "prompt time      5  tokens  50.0 ms   100.0 tokens/s",
    "generation time  1  token    0.0 ms     0.0 tokens/s",
    "total time       6  tokens  50.6 ms",
    "",
  ]);
});

test("timings for programs: cached tokens are not counted as computed", () => {
  expect(timingsJson(timings)).toEqual({
    load_ms: 61.24,
    sample_n: 2,
    sample_ms: 0.4,
    prompt_n: 5,
    prompt_ms: 50,
    prompt_per_second: 100,
    prompt_limit: null,
    predicted_n: 1,
    predicted_ms: 0,
    predicted_per_second: 0,
    predicted_limit: null,
    others_cores: null,
    cores: null,
    total_ms: 50.6,
    cache_n: 2,
    cache_by_tier: { kv: 2, ram: 0, disk: 0 },
    computed_again: null,
  });
});

test("speeds beside what the machine allows, with the resource that binds", () => {
  const limits = {
    prompt: {
      resource: "arithmetic",
      tokensPerSecond: 250,
      fraction: 0.4,
      achievedPerSecond: 200e9,
      possiblePerSecond: 500e9,
    },
    generation: {
      resource: "bandwidth",
      tokensPerSecond: 40,
      fraction: 0.0781,
      achievedPerSecond: 1.8123e9,
      possiblePerSecond: 23.2e9,
    },
  } as const;
  expect(timingsText({ ...timings, generatedMs: 320, limits }).split("\n")).toEqual([
    "load time                    61.2 ms",
    "sample time      2  tokens    0.4 ms  5000.0 tokens/s",
    "prompt time      5  tokens   50.0 ms   100.0 tokens/s  40% of the arithmetic limit (200 of 500 GOPS)",
    "generation time  1  token   320.0 ms     3.1 tokens/s  7.8% of the bandwidth limit (1.8 of 23.2 GB/s)",
    "total time       6  tokens   50.6 ms",
    "",
  ]);
  expect(timingsJson({ ...timings, limits })).toMatchObject({
    prompt_limit: { resource: "arithmetic", tokens_per_second: 250, fraction: 0.4 },
    predicted_limit: { resource: "bandwidth", tokens_per_second: 40, fraction: 0.0781 },
  });
});

describe("progress", () => {
  test("facts and bar", () => {
    expect(progressFacts(50e6, 200e6, 10e6)).toBe("25%  50.0 MB of 200.0 MB  10.0 MB/s  15 s left");
    expect(progressFacts(0, 200e6, 0)).toBe("0%  0 B of 200.0 MB");
    expect([0, 0.5, 1, 1.2].map((part) => barText(part, 4))).toEqual([
      "[....]",
      "[##..]",
      "[####]",
      "[####]",
    ]);
  });

  test("on a terminal: one line, never wider than it, gone at the end", () => {
    const terminal = new FakeTerminal();
    terminal.errIsTerminal = true;
    terminal.columns = 40;
    const bar = new ProgressBar(terminal, { label: "model", plainLines: false });
    bar.update(0, 1000);
    expect(terminal.stderr).toBe("");
    terminal.clock = 1000;
    bar.update(500, 1000);
    expect(terminal.stderr).toBe(
      `\r${"model  [############............]  50%  500 B".slice(0, 39)}\x1b[K`,
    );
    terminal.clock = 1050;
    bar.update(600, 1000);
    bar.done();
    expect(terminal.stderr.match(/\r/g)).toHaveLength(2);
    expect(terminal.stderr.endsWith("\r\x1b[K")).toBe(true);
  });

  test("what an earlier run brought does not count for the rate", () => {
    const terminal = new FakeTerminal();
    const bar = new ProgressBar(terminal, { label: "model", plainLines: true });
    bar.update(900_000, 1_000_000);
    terminal.clock = 10_000;
    bar.update(950_000, 1_000_000);
    expect(terminal.stderr).toBe("model: 95%  950.0 kB of 1.0 MB  5.0 kB/s  10 s left\n");
  });

  test("elsewhere: silent unless plain lines were asked for", () => {
    const terminal = new FakeTerminal();
    const bar = new ProgressBar(terminal, { label: "model", plainLines: false });
    terminal.clock = 60_000;
    bar.update(1, 2);
    bar.done();
    expect(terminal.stderr).toBe("");
  });
});
