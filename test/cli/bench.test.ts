// lantern bench: what it takes and what it prints. Which numbers come out is the machine's business, and no time is
// asserted here.
// Held against: the lines that the test expects, without their numbers.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { contextFor, tokenSource } from "../../apps/cli/bench/measure.ts";
import { bestOptLevel } from "../../apps/cli/bench/options.ts";
import { renderTable } from "../../apps/cli/bench/render.ts";
import { main } from "../../apps/cli/main.ts";
import { othersCores } from "../../src/base/machine-load.ts";
import { summarize } from "../../src/base/measure.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });

async function lantern(
  ...args: string[]
): Promise<{ code: number; out: string; err: string; terminal: FakeTerminal }> {
  const terminal = new FakeTerminal();
  const code = await main(args, terminal, downloads);
  return { code, out: terminal.stdout, err: terminal.stderr, terminal };
}

describe("refused", () => {
  test.each([
    [["-t", "0"], "Expected numbers separated by commas, as in 1,2; each a whole number"],
    [["-t", "1,,2"], "Expected numbers separated by commas"],
    [["--level", "5"], "each a whole number from 1 to 4"],
    [["-r", "0"], "Expected a whole number from 1 to 1000"],
    [["-p", "-1"], "each a whole number from 0 to 1048576"],
    [["-p", "25,x"], "Expected numbers separated by commas"],
    [["-d", "2048,"], "Expected numbers separated by commas"],
    [["-n", "1.5"], "each a whole number from 0"],
    [["--plot", "chart.png"], "Expected a file name that ends in .svg"],
    [["-p", "0", "-n", "0"], "leave nothing to measure"],
    [["--spec-draft-n-max", "3"], "drafts are measured only with --speculate"],
    [["-md", "small.gguf"], "drafts are measured only with --speculate"],
    [["--json", "--markdown"], "cannot be used with"],
    [["model.gguf"], "too many arguments"],
  ])("%j", async (args, message) => {
    const { code, out, err } = await lantern("bench", ...args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain(message);
  });
});

describe("on a tiny model", () => {
  let file: Awaited<ReturnType<typeof tinyFile>>;
  beforeAll(async () => {
    file = await tinyFile();
  });
  afterAll(() => file.remove());

  test("--speculate: what was drafted, and how much of it was right", async () => {
    const flags = ["-t", "1", "-p", "4", "-n", "60", "-r", "1", "--speculate"];
    const { code, out } = await lantern("bench", "-m", file.path, ...flags, "--json");
    expect(code).toBe(0);
    const [prompt, generation] = (JSON.parse(out) as { results: Record<string, number>[] }).results;
    expect(prompt).toMatchObject({ draft_n: 0, draft_n_accepted: 0 });
    // Whether drafts pay depends on this machine.
    expect(generation!.draft_n).toBeGreaterThanOrEqual(generation!.draft_n_accepted!);
    const table = await lantern("bench", "-m", file.path, ...flags, "--spec-draft-n-max", "0");
    expect(table.out).toMatch(/right of drafted/);
    expect(table.out).toMatch(/tg60 .* 0 of 0/);
  });

  test("--json: every thread count and test, with all samples", async () => {
    const flags = ["-t", "1,2", "-p", "40", "-n", "3", "-r", "2", "--json"];
    const { code, out, err } = await lantern("bench", "-m", file.path, ...flags);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    const report = JSON.parse(out) as { results: Record<string, unknown>[] };
    const level = await bestOptLevel();
    const bytes = {
      weight_bytes: expect.any(Number),
      kv_bytes: expect.any(Number),
      scratch_bytes: expect.any(Number),
    };
    expect(report).toEqual({
      model: {
        name: "tiny",
        architecture: "llama",
        parameters: expect.any(Number),
        type: "f32",
        bytes: expect.any(Number),
        kv_type: "f16",
      },
      machine: { cpu: "Fake", cores: 2, memory_bytes: 8e9, system: "test" },
      load: { before: 0.5, after: 0.5 },
      repetitions: 2,
      warmup: true,
      results: expect.any(Array),
      memory: {
        context: 64,
        computed: bytes,
        held: [1, 2].map((threads) => ({ level, threads, ...bytes })),
        resident_bytes: null,
      },
      times: [1, 2].map((threads) => ({
        level,
        threads,
        load_ms: expect.any(Number),
        sample_ms: expect.any(Number),
        prompt_ms: expect.any(Number),
        predicted_ms: expect.any(Number),
        total_ms: expect.any(Number),
      })),
    });
    expect(report.results.map(({ threads, test }) => [threads, test])).toEqual([
      [1, "pp40"],
      [1, "tg3"],
      [2, "pp40"],
      [2, "tg3"],
    ]);
    for (const result of report.results) {
      const samples = result.samples as number[];
      expect(samples).toHaveLength(2);
      for (const sample of samples) expect(sample).toBeGreaterThan(0);
      expect(result).toEqual({
        level,
        threads: expect.any(Number),
        test: expect.any(String),
        depth: 0,
        samples,
        tokens_per_second: {
          median: (samples[0]! + samples[1]!) / 2,
          min: Math.min(...samples),
          max: Math.max(...samples),
        },
        others_cores: 0,
        limit: null,
      });
    }
  });

  test("a table; -n 0 leaves generation out; all cores by default", async () => {
    const { out } = await lantern("bench", "-m", file.path, "-p", "8", "-n", "0", "-r", "1");
    const lines = out.trimEnd().split("\n");
    expect(lines[0]).toMatch(/^tiny: llama, [\d.]+ k parameters, f32, [\d.]+ kB, KV cache f16$/);
    expect(lines[1]).toBe("Fake, 2 cores, test; load 0.50 before, 0.50 after");
    expect(lines[3]).toMatch(/^level +threads +test +tokens\/s +min +max +others$/);
    expect(lines[4]).toMatch(/^ *[34] +2 +pp8 +[\d.]+/);
    expect(lines[6]).toMatch(
      /^memory +level +threads +weights +KV cache \(32 tokens\) +scratch +total$/,
    );
    expect(lines[7]).toMatch(/^computed +[\d.]+ kB +[\d.]+ kB +[\d.]+ [kM]B +[\d.]+ [kM]B$/);
    expect(lines[8]).toMatch(/^held +[34] +2 +[\d.]+ kB/);
    expect(lines[10]).toMatch(
      /^level +threads +load time +sample time +prompt time +generation time +total time$/,
    );
    expect(lines[11]).toMatch(/^[34] +2( +[\d.]+ ms){5}$/);
    expect(lines).toHaveLength(12);
  });

  test("lists of prompts, tokens and depths: each test at each depth, and a chart", async () => {
    const lists = ["-p", "5,33", "-n", "3,2", "-d", "0,64", "-t", "1", "-r", "2"];
    const flags = [...lists, "--no-warmup", "--json", "--plot", "chart.svg"];
    const { code, out, terminal } = await lantern("bench", "-m", file.path, ...flags);
    expect(code).toBe(0);
    const { results, memory } = JSON.parse(out) as {
      results: { test: string; depth: number; samples: number[] }[];
      memory: { context: number; computed: { kv_bytes: number }; held: { kv_bytes: number }[] };
    };
    const atDepths = [0, 64].flatMap((depth) =>
      ["pp5", "pp33", "tg3", "tg2"].map((name) => [depth ? `${name} @ d64` : name, depth, 2]),
    );
    expect(results.map(({ test, depth, samples }) => [test, depth, samples.length])).toEqual(
      atDepths,
    );
    // 64 tokens before 33, in whole blocks; what is computed is what is held.
    expect(memory.context).toBe(128);
    expect(memory.held[0]!.kv_bytes).toBe(memory.computed.kv_bytes);
    const chart = terminal.files.get("chart.svg")!;
    expect(chart).toContain("Prompt: tokens/s by length");
    expect(chart).toContain("Generation: tokens/s by depth");
    expect(chart.match(/<circle/g)).toHaveLength(8);
  });

  test("a context that the model does not have is refused before it is loaded", async () => {
    const flags = ["-p", "100", "-d", "0,500", "-r", "1"];
    const { code, out, err } = await lantern("bench", "-m", file.path, ...flags);
    expect({ code, out }).toEqual({ code: 5, out: "" });
    expect(err).toContain(
      "-p, -n and -d need a context of 600 tokens, but this model was trained for 512",
    );
  });

  test("where not all models fit in memory, each is loaded for its turn", async () => {
    const terminal = new FakeTerminal();
    terminal.errIsTerminal = true;
    terminal.machine = () => ({
      cpu: "Small",
      cores: 1,
      memoryBytes: 1,
      freeBytes: 1,
      system: "test",
    });
    const flags = ["-t", "1,2", "-p", "4", "-n", "0", "-r", "2", "--no-warmup"];
    const code = await main(["bench", "-m", file.path, ...flags], terminal, downloads);
    expect(code).toBe(0);
    expect(terminal.stderr.match(/loading/g)).toHaveLength(4);
  });

  test("other processes' work is reported", async () => {
    const terminal = new FakeTerminal();
    let looks = 0;
    terminal.load = () => ({
      loadAverage: undefined,
      busySeconds: looks,
      ownSeconds: 0,
      atMs: 1000 * looks++,
    });
    const flags = ["-p", "4", "-n", "0", "-r", "1", "--no-warmup"];
    await main(["bench", "-m", file.path, ...flags], terminal, downloads);
    expect(terminal.stdout).toMatch(/0\.97$/m);
    expect(terminal.stderr).toContain("Other programs used up to 1.0 cores during the measurement");
  });
});

describe("matmul", () => {
  const small = ["-N", "64", "-K", "256", "-M", "5", "--seconds", "0", "-r", "2"];

  test("--json: every level, type and thread count", async () => {
    const flags = ["--type", "F32,q4_k", "-t", "1,2", "--level", "1,3", "--json", "--no-color"];
    const { code, out, err } = await lantern("bench", "matmul", ...small, ...flags);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    const report = JSON.parse(out) as { results: Record<string, unknown>[] };
    expect(report).toMatchObject({ n: 64, k: 256, m: 5, machine: { cpu: "Fake" } });
    const entrants = report.results.map(
      ({ level, type, threads }) => `${level} ${type} ${threads}`,
    );
    const counts = ["f32 1", "f32 2", "q4_k 1", "q4_k 2"];
    expect(entrants).toEqual([1, 3].flatMap((level) => counts.map((rest) => `${level} ${rest}`)));
    for (const { gflops, samples, kernel } of report.results) {
      expect(samples).toHaveLength(2);
      expect((gflops as { median: number }).median).toBeGreaterThan(0);
      expect(kernel).not.toBe("");
    }
  });

  test("a table: opt levels down, types and threads across, the gain below", async () => {
    const flags = [...small, "-t", "1", "-r", "1"];
    const { out } = await lantern("bench", "matmul", ...flags);
    expect(out).toMatch(/^\[5, 256\] x \[64, 256\]\^T\n/);
    expect(out).toMatch(/^GFLOPS +f32 \(t=1\) +q4_1 \(t=1\)$/m);
    const best = await bestOptLevel();
    for (let level = 1; level <= best; level++) {
      expect(out).toMatch(new RegExp(`^opt level ${level} +[\\d.]+ +[\\d.]+$`, "m"));
    }
    expect(out).toMatch(new RegExp(`^opt level ${best} : 1 +[\\d.]+x +[\\d.]+x$`, "m"));
    expect(out).toMatch(
      /^opt level 1, q4_1: .*: scalar_rows \(rows of q4_1 unpacked one by one\)/m,
    );
  });

  test("--tile: a table of register tiles, rows down and tokens across", async () => {
    const flags = ["--type", "f32,q4_1", "-t", "1", "--tile", "1x1,5x4,2x4", "-r", "1"];
    const { code, out } = await lantern("bench", "matmul", ...small, ...flags);
    expect(code).toBe(0);
    expect(out).toMatch(/^opt level 2, f32, 1 thread; fastest: \dx\d, [\d.]+ GFLOPS$/m);
    expect(out).toMatch(/^opt level 2, q4_1, 1 thread; fastest:/m);
    expect(out).toMatch(/^GFLOPS +1 token +4 tokens$/m);
    expect(out).toMatch(/^1 row +[\d.]+ +-$/m);
    expect(out).toMatch(/^2 rows +- +[\d.]+$/m);
    expect(out).toMatch(/^5 rows +- +[\d.]+$/m);
  });

  test("--tile all: the tiles that the seed tried, 5x5 for F32 and 4x4 for Q4_1", async () => {
    const flags = ["--type", "q4_1", "-t", "1", "--tile", "all", "-r", "1", "--json"];
    const { out } = await lantern("bench", "matmul", ...small, ...flags);
    const { results } = JSON.parse(out) as { results: { tile: string; kernel: string }[] };
    expect(results.map(({ tile }) => tile)).toEqual(
      [1, 2, 3, 4].flatMap((rows) => [1, 2, 3, 4].map((tokens) => `${rows}x${tokens}`)),
    );
    for (const { tile, kernel } of results) expect(kernel).toContain(`register tile ${tile}`);
  });

  test("--seed-table: the report's rows and numbers beside ours, and its two bars", async () => {
    const { code, out } = await lantern("bench", "matmul", ...small, "-r", "1", "--seed-table");
    expect(code).toBe(0);
    expect(out).toMatch(
      /^GFLOPS here \/ seed +f32 \(t=1\) +f32 \(t=2\) +f32 \(t=4\) +q4_1 \(t=1\)/m,
    );
    expect(out).toMatch(/^opt level 1 +[\d.]+ \/ 1.67 +[\d.]+ \/ 3.34 +- \/ 6.67 +[\d.]+ \/ 4.91/m);
    expect(out).toMatch(/^opt level 2 +[\d.]+ \/ 12.9 .* - \/ 88.8$/m);
    expect(out).toMatch(/^opt level 3 +[\d.]+ \/ 59.3 .* [\d.]+ \/ 39.5 .* - \/ 123$/m);
    expect(out).toMatch(/^opt level 3 : 1 +[\d.]+x \/ 35.5x .* [\d.]+x \/ 8.03x/m);
    expect(out).toContain("Not measured: 4 threads (this machine has 2 cores");
    const bar = (type: string, least: number) =>
      new RegExp(
        `^${type}, 1 thread: opt level [34] must be at least ${least}x opt level 1: [\\d.]+x, (pass|fail)$`,
        "m",
      );
    expect(out).toMatch(bar("f32", 35));
    expect(out).toMatch(bar("q4_1", 6));
    expect(out).toMatch(/^\[5, 256\] x \[64, 256\]\^T$/m);
  });

  test.each([
    [["--tile", "5"], "Expected register tiles, rows x tokens"],
    [["--tile", "0x4"], "Expected register tiles, rows x tokens"],
    [["--tile", "9x4"], "--tile: got 9x4, but for f32 opt level 2 has 1x1 to 8x8"],
    [["--tile", "5x4", "--level", "3"], "--tile: got 5x4, but for f32 opt level 3 has one of"],
    [["--tile", "5x4", "--level", "1"], "opt level 1 has no register tiles"],
    [["--tile", "5x4", "--seed-table"], "print different tables. Give one of them"],
    [["--type", "q9"], 'type: got "q9", expected one of f32, f16'],
    [["--type", "f32,,"], "Expected types separated by commas"],
    [["--type", "q4_k", "-K", "128"], "rows of q4_k are a multiple of 256 values"],
    [["-M", "0"], "Expected a whole number from 1"],
    [["-t", "x"], "Expected numbers separated by commas"],
  ])("refuses %j", async (args, message) => {
    const { code, out, err } = await lantern("bench", "matmul", ...small, ...args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain(message);
  });
});

describe("parts", () => {
  test("median of odd and even counts", () => {
    expect(summarize([3, 1, 2])).toEqual({ median: 2, min: 1, max: 3 });
    expect(summarize([4, 1, 2, 3])).toEqual({ median: 2.5, min: 1, max: 4 });
  });

  test("others' cores: all work less our own", () => {
    const load = (busySeconds: number, ownSeconds: number, atMs: number) => ({
      loadAverage: undefined,
      busySeconds,
      ownSeconds,
      atMs,
    });
    expect(othersCores(load(100, 5, 0), load(103.03, 7, 2000))).toBeCloseTo(0.5);
    expect(othersCores(load(100, 5, 0), load(102, 7, 2000))).toBe(0);
    expect(othersCores(load(100, 5, 0), load(100, 5, 0))).toBe(0);
  });

  test("token ids are in the vocabulary and differ from prompt to prompt", () => {
    const next = tokenSource(300);
    const [a, b] = [next(500), next(500)];
    for (const id of [...a, ...b]) {
      expect(Number.isInteger(id) && id >= 0 && id < 300).toBe(true);
    }
    expect(a).not.toEqual(b);
    expect(tokenSource(300)(500)).toEqual(a);
  });

  test("the context holds what is measured", () => {
    expect(contextFor(128, 32)).toBe(160);
    expect(contextFor(0, 32)).toBe(64);
  });

  test("Markdown", () => {
    const table = { header: ["a", "n"], rows: [["x", "1"]], right: [1] };
    expect(renderTable(table, true)).toBe("| a | n |\n| --- | ---: |\n| x | 1 |\n");
  });
});
