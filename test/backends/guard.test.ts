// Guard mode on the CPU backend: machine code that leaves its buffers ends the process, writes before a buffer are
// found after the batch, all threads are checked, and results do not change.
// Held against: the exit code of a process, and results without the mode.

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import { guardMode } from "../../src/backends/cpu/guard/guard.ts";
import { bufferAt, rangesOf } from "../../src/backends/cpu/guard/guard-calls.ts";
import { Arena, PAGE } from "../../src/backends/cpu/memory/arena.ts";
import type { NativeKernels } from "../../src/backends/cpu/native/native.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeHere } from "../support/native.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { load, runBatches } from "./tiny-backend.ts";

const child = fileURLToPath(new URL("guard-child.ts", import.meta.url));

function runChild(how: string): { status: number | null; signal: string | null; said: string } {
  const { status, signal, stdout, stderr } = spawnSync(
    process.execPath,
    ["--no-warnings", child, how],
    { encoding: "utf8", timeout: 120_000 },
  );
  return { status, signal, said: stdout + stderr };
}

const isNative = nativeHere.length > 0;
const why = isNative ? "" : " [skipped: this machine runs no machine code]";

describe.skipIf(!isNative)(`machine code${why}`, () => {
  test("that stays in its buffers runs as ever", () => {
    const { status, said } = runChild("right");
    expect(said).toContain("with guard pages");
    expect(said).toContain("copied true\nchecked");
    expect(status).toBe(0);
  });

  test("that reads one vector too many ends the process there", () => {
    const { signal, said } = runChild("wrong");
    expect(said).toMatch(/wrong: copy, 96 floats\n$/); // the case that died is the last one named
    expect(["SIGSEGV", "SIGBUS"]).toContain(signal);
  });

  test("that writes before its buffer is found out", () => {
    const { status, said } = runChild("backwards");
    expect(said).toMatch(/something was written at \d+, 64 bytes before "out"/);
    expect(status).toBe(1);
  });
});

describe("an arena in guard mode", () => {
  const arena = new Arena({ shared: false, memory64: false, start: 0, guard: true });
  const sizes = [4, 8, 64, 100, 102, PAGE, PAGE + 36, 0];
  const places = sizes.map((bytes, i) => arena.allocate(bytes, "work", `buffer ${i}`));
  const threads = arena.allocate(3 * 40, "work", "scratch", 3);

  test("ends every buffer where a page ends, as near as its alignment lets it", () => {
    sizes.forEach((bytes, i) => {
      const end = places[i]! + bytes;
      expect(end % PAGE === 0 || PAGE - (end % PAGE) < 4, `${bytes} bytes`).toBe(true);
      expect(places[i]! % 4).toBe(0);
      if (bytes % 64 === 0) expect(places[i]! % 64).toBe(0);
    });
    expect(places[0]).toBeGreaterThan(PAGE); // 0 stands for "none"
  });

  test("leaves a page between two buffers", () => {
    for (const [i, { firstPage }] of arena.guarded.entries()) {
      const before = arena.guarded[i - 1];
      if (before) expect(firstPage - before.guardPage).toBe(PAGE);
    }
  });

  test("knows whose an address is, of each thread", () => {
    const ranges = rangesOf(arena);
    expect(bufferAt(ranges, places[3]! + 99)?.name).toBe("buffer 3");
    expect(bufferAt(ranges, places[3]! - 1)).toBeUndefined();
    expect(bufferAt(ranges, threads + 40)?.name).toBe("scratch of thread 1");
    expect(bufferAt(ranges, 0)).toBeUndefined();
  });
});

const kinds: { name: string; native?: NativeKernels }[] = [
  { name: "WebAssembly" },
  ...nativeHere.slice(0, 1),
];

test.each(kinds)("$name, with helping threads: as without guards", async ({ native }) => {
  const options = { weightType: "q8_0", feedForward: 4096 };
  const startThread = () => nodePlatform.startThread("compute");
  const guarded = new CpuBackend({ level: 3, threads: 3, startThread, native, guard: guardMode() });
  await load(guarded, options);
  expect(guarded.explain().join("\n")).toMatch(/guard mode: kernels are checked, with/);
  const plain = new CpuBackend({ level: 3, threads: 1, startThread: undefined, native });
  await load(plain, options);
  expect(await runBatches(guarded, options)).toEqual(await runBatches(plain, options));
  guarded.dispose();
  plain.dispose();
});

test("LANTERN_GUARD=1 switches it on in any program", async () => {
  const file = await tinyFile();
  const script = `
    import { open } from ${JSON.stringify(new URL("../../src/index.ts", import.meta.url).href)};
    const model = await open(${JSON.stringify(file.path)}, { threads: 2 });
    const { text } = await model.generate("the", { temperature: 0, maxTokens: 5 }).result;
    console.log(JSON.stringify({ text, explain: model.info.backend.notes }));
    await model.dispose();
  `;
  const run = (env: Record<string, string>) =>
    spawnSync(process.execPath, ["--no-warnings", "--input-type=module", "-e", script], {
      encoding: "utf8",
      timeout: 120_000,
      env: { ...process.env, ...env },
    });
  const guarded = run({ LANTERN_GUARD: "1" });
  expect(guarded.stderr).toBe("");
  const { text, explain } = JSON.parse(guarded.stdout);
  expect(JSON.stringify(explain)).toContain("guard mode: kernels are checked");
  expect(text).toBe(JSON.parse(run({ LANTERN_GUARD: "0" }).stdout).text);
  file.remove();
});
