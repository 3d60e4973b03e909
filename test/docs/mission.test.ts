// docs/mission.md, row by row: every command that it names is run in a quick form, or the test that covers the row exists. A row
// without either fails, and so does an entry here without a row.

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { main } from "../../src/cli/main.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { printTuneFile } from "../../src/tune/tune-file.ts";
import { FakeTerminal } from "../cli/fake-terminal.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { sampleFile } from "../tune/sample.ts";

const downloads = nodeDownloadPlatform({ LANTERN_CACHE: "/nonexistent/lantern-test-cache" });

/** How a row is shown: a quick form of its command and what it must print, or the test that does more than a command can. */
type Shown =
  | { readonly quick: readonly string[]; readonly prints: readonly RegExp[] }
  | { readonly test: string; readonly title: string };

let file: Awaited<ReturnType<typeof tinyFile>>;
beforeAll(async () => {
  file = await tinyFile();
});
afterAll(() => file.remove());

const article = ["limits", "qwen1.5-7b", "--device", "rtx4090-article", "--article"];
const few = ["-N", "256", "-K", "256", "-M", "4", "-r", "1", "--seconds", "0.001"];

const rows: Readonly<Record<string, () => Shown>> = {
  L1: () => ({
    quick: ["run", "-m", file.path, "-n", "4"],
    prints: [/^generation time +4 +tokens/m],
  }),
  L2: () => ({
    quick: ["bench", "matmul", "--seed-table", "-t", "1", ...few],
    prints: [/f32/i, /q4_1/i, /35x|35 x|>= 35/],
  }),
  L3: () => ({
    quick: ["bench", "matmul", "--type", "f32,q4_1", "-t", "1", ...few],
    prints: [/f32/, /q4_1/, /GFLOPS/],
  }),
  L4: () => ({
    quick: ["run", "-m", file.path, "-n", "1", "--explain"],
    prints: [/matmul kernels: /],
  }),
  L5: () => ({
    quick: ["bench", "matmul", "--type", "f32,q4_1", "-t", "1", "--level", "1,3", ...few],
    prints: [/GFLOPS/],
  }),
  L6: () => ({
    quick: ["quantize", file.path, `${file.path}.q8_0`, "Q8_0", "--pure"],
    prints: [/q8_0/i],
  }),
  R1: () => ({ test: "test/models/golden.test.ts", title: '"$prompt"' }),
  R2: () => ({
    quick: ["run", "-m", file.path, "-n", "1", "--weights", "f16", "--explain"],
    prints: [/weights: 15 matrices held as f16, 0 as in the file/],
  }),
  R3: () => ({ test: "test/cli/serve-models.test.ts", title: "-m twice serves both" }),
  R4: () => ({ test: "test/server/lantern-sessions.test.ts", title: "and kept over a restart" }),
  R5: () => ({
    test: "test/server/lantern-sessions.test.ts",
    title: "that goes on from an earlier turn finds its past in the cache",
  }),
  R6: () => ({
    quick: ["run", "-m", file.path, "-n", "1", "--explain"],
    prints: [/machine code|WebAssembly/],
  }),
  T1: () => ({ quick: article, prints: [/^active +7098728448 +7\.10 B +6\.61 Gi/m] }),
  T2: () => ({ quick: article, prints: [/^fit in 24\.00 GiB +22072 tokens$/m] }),
  T3: () => ({
    quick: article,
    prints: [/113 \(then arithmetic\), 481 \(then bandwidth\)/, /^W +2064 more tokens/m],
  }),
  T4: () => ({
    test: "test/cli/machine.test.ts",
    title: "run: both phases against the resource that binds them",
  }),
  T5: () => ({
    quick: [
      ...["limits", "llama-3-70b", "--device", "h100-sxm", "--weights", "4"],
      ...["--draft", "llama-3-8b", "--acceptance", "0.8"],
    ],
    prints: [/^GQA|without GQA/m, /2\.31 times as fast/],
  }),
  T6: () => ({
    quick: [
      ...["limits", "qwen1.5-7b", "--device", "rtx4090", "--users", "8", "--sla", "2s,20"],
      ...["--batch", "1000", "--price", "0.5"],
    ],
    prints: [/at most +153 users/, /8 users +can be served/, /offline batch/],
  }),
  T7: () => ({
    test: "test/tools/perplexity-cli.test.ts",
    title: "several models: a table by size, JSON, and a picture",
  }),
  N1: () => ({ quick: ["devices"], prints: [/webgpu|GPU/] }),
  N2: () => ({ test: "test/backends/exact-splits.test.ts", title: "the same bits at every split" }),
  N3: () => ({
    quick: ["verify", "-m", file.path, "--backends", "cpu", "--tokens", "4"],
    prints: [/0\.0001|within/],
  }),
  N4: () => ({
    quick: ["run", "-m", file.path, "-n", "2", "--profile"],
    prints: [/variance/i, /barrier|wake|read/i],
  }),
  N5: () => ({ quick: ["devices"], prints: [/memory/i] }),
  N6: () => ({
    test: "test/models/webgpu-golden.test.ts",
    title: "stories15M, %s: within 4 percent",
  }),
  N7: () => ({
    quick: ["run", "-m", file.path, "-n", "1", "--sparse", "on", "--explain"],
    prints: [/ffn_down/],
  }),
  M1: () => ({
    test: "test/tune/run-tune.test.ts",
    title: "measures every profile that accepts the problem, in groups",
  }),
  M2: () => ({ test: "test/tune/tune-file.test.ts", title: "is read as it was written" }),
  M3: () => ({ test: "test/tune/sides.test.ts", title: "--explain has the table, the crossover" }),
  M4: () => ({
    quick: ["tune", "analyze", "tune.txt"],
    prints: [/crossover|fastest/, /q4_0 +1024 x 512/],
  }),
  M5: () => ({ test: "test/tune/run-tune.test.ts", title: 'idle === "sleep"' }),
  M6: () => ({
    test: "test/cli/first-tune.test.ts",
    title: "tunes silently, and remembers it",
  }),
};

/** Rows of the tables: id and command. */
const documented = [
  ...readFileSync("docs/mission.md", "utf8").matchAll(
    /^\| ([A-Z]\d) \| .*?\| `(lantern [^`]*)` \|/gm,
  ),
].map(([, row, command]) => ({ row: row!, command: command! }));

test("every row of the document is shown by something, and nothing else is", () => {
  expect(new Set(documented.map(({ row }) => row))).toEqual(new Set(Object.keys(rows)));
});

describe.each(documented)("$row: $command", ({ row, command }) => {
  test("in its quick form", async () => {
    const shown = rows[row]!();
    if ("test" in shown) {
      // That test runs it; here it is only certain that it is still there.
      expect(readFileSync(shown.test, "utf8"), shown.test).toContain(shown.title);
      return;
    }
    // The same command, with other sizes.
    expect(command.split(" ")[1]).toBe(shown.quick[0]);
    const terminal = new FakeTerminal();
    terminal.files.set("tune.txt", printTuneFile(sampleFile));
    const code = await main([...shown.quick], terminal, downloads);
    const said = terminal.stdout + terminal.stderr;
    expect(code, said).toBe(0);
    for (const pattern of shown.prints) expect(said).toMatch(pattern);
  });
});
