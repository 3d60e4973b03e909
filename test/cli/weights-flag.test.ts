// --weights f16 at the command line: what is said of a matrix that F16 cannot hold, with --explain and without, and what
// "lantern quantize" says of the same one.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { loadPlan } from "../../apps/cli/model-fits.ts";
import { catalogLibrary } from "../../apps/cli/serve-library.ts";
import { openModelFile } from "../../src/formats/open-model-file.ts";
import { nodeDownloadPlatform } from "../../src/platform/node-download.ts";
import { memorySource } from "../formats/support.ts";
import { tinyGguf } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

const problem = "1 of 2048 values are beyond F16's largest, 65504; the largest is 1.000e+6";
let folder = "";
let path = "";

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "lantern-weights-"));
  path = join(folder, "model.gguf");
  const bytes = Uint8Array.from(await tinyGguf());
  const file = await openModelFile(memorySource({ "tiny.gguf": bytes }));
  const { offset } = file.tensors.get("blk.1.ffn_down.weight")!;
  bytes.set(new Uint8Array(Float32Array.of(1e6).buffer), offset);
  writeFileSync(path, bytes);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("a warning names the matrix, and --explain says how many are F16", async () => {
  const terminal = new FakeTerminal();
  const flags = ["--weights", "f16", "--level", "1", "-t", "1", "--cache-type", "f32", "--explain"];
  const run = ["run", "-m", path, "-p", "the", "-n", "1", "--temp", "0", "--no-tune", "--no-limit"];
  expect(await main([...run, ...flags], terminal)).toBe(0);
  expect(terminal.stderr).toContain(
    `Warning: weights f16: 1 of 15 matrices keep their type, because F16 cannot hold their values: blk.1.ffn_down.weight (f32: ${problem})\n`,
  );
  expect(terminal.stderr).toContain(
    `  weights: 14 matrices held as f16, 1 as in the file\n    blk.1.ffn_down.weight keeps f32: ${problem}\n`,
  );
});

test("quantize F16 writes it as F32, and says so", async () => {
  const terminal = new FakeTerminal();
  expect(await main(["quantize", path, join(folder, "out.gguf"), "F16"], terminal)).toBe(0);
  expect(terminal.stderr).toContain(`Note: blk.1.ffn_down.weight keeps f32: ${problem}.\n`);
});

test("the web app's form: a model is opened and planned with the option of its request", async () => {
  const platform = nodeDownloadPlatform({ LANTERN_CACHE: join(folder, "cache") });
  const library = catalogLibrary(platform, { level: 1, threads: 1 }, { tiny: { location: path } });
  const task = { signal: new AbortController().signal, onProgress: () => {} };
  await using model = await library.open("tiny", { ...task, weights: "f16" });
  expect(model.info.heldAs).toMatchObject({ type: "f16", matrices: 14 });
  const [stored, held] = [await loadPlan(path, 64, "f16"), await loadPlan(path, 64, "f16", "f16")];
  expect(held.weightBytes).toBeLessThan(0.52 * stored.weightBytes);
});

test("another type is refused, with exit code 2", async () => {
  const terminal = new FakeTerminal();
  expect(await main(["run", "-m", path, "--weights", "q8_0"], terminal)).toBe(2);
  expect(terminal.stderr).toMatch(/--weights.*q8_0.*f16/s);
});
