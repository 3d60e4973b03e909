// The CPU backend with machine code: on several threads, with addresses beyond 4 GiB, and where it turns out that it cannot
// be run after all. What it computes is held against the reference in test/conformance/native.test.ts.

import { describe, expect, test } from "vitest";
import { CpuBackend } from "../../src/backends/cpu/cpu.ts";
import type { CpuOptions } from "../../src/backends/cpu/cpu-options.ts";
import type { NativeKernels } from "../../src/backends/cpu/native/native.ts";
import { backendByName } from "../../src/backends/table.ts";
import { chooseOptLevel } from "../../src/machine/native.ts";
import { nodePlatform } from "../../src/platform/node.ts";
import { nativeElsewhere, nativeHere } from "../support/native.ts";
import type { TinyOptions } from "../support/tiny-engine.ts";
import { load, runBatches } from "./tiny-backend.ts";

const startThread = () => nodePlatform.startThread("compute");
const options: TinyOptions = { weightType: "q4_0", feedForward: 4096 };

async function logitsOf(changes: Partial<CpuOptions>): Promise<{
  logits: number[][];
  backend: CpuBackend;
}> {
  const backend = new CpuBackend({ level: 3, threads: 1, startThread: undefined, ...changes });
  await load(backend, options);
  const logits = await runBatches(backend, options);
  backend.dispose();
  return { logits, backend };
}

describe.each(nativeHere)("$name", ({ name, native }) => {
  test("gives the same bits on one thread and on three, and with 64-bit addresses", async () => {
    const { logits: alone } = await logitsOf({ native });
    const { logits: together, backend } = await logitsOf({ native, threads: 3, startThread });
    expect(backend.threads).toBe(3);
    expect(backend.kernels).toBe(name);
    expect(together).toEqual(alone);
    const memoryStart = 4.5 * 2 ** 30;
    const { logits: far } = await logitsOf({ native, memoryStart });
    expect(far).toEqual(alone);
  });

  test("says what computes", async () => {
    const { backend } = await logitsOf({ native });
    const { width } = native.target;
    expect(backend.explain()).toContain(
      `matmul kernels: machine code for ${name}, ${width}-byte vectors`,
    );
  });

  test("a library that cannot be opened: WebAssembly takes over, as if it had been from the start", async () => {
    const host = { ...native.host, load: () => "the disk is full" };
    const { logits, backend } = await logitsOf({ native: { ...native, host } });
    expect(backend.kernels).toBe("wasm: the disk is full");
    expect(backend.explain()).toContain("matmul kernels: WebAssembly (the disk is full)");
    expect(logits).toEqual((await logitsOf({})).logits);
  });

  test("a kernel that every model needs and that has no code: the same", async () => {
    const lower: NativeKernels["lower"] = (kernel) =>
      kernel.name.startsWith("quantize") ? `${kernel.name}: no` : native.lower(kernel);
    const { logits, backend } = await logitsOf({ native: { ...native, lower } });
    expect(backend.kernels).toMatch(/^wasm: quantize.*: no$/);
    expect(logits).toEqual((await logitsOf({})).logits);
  });
});

describe("levels", () => {
  const cpu = backendByName("cpu")!;
  const request = { threads: 1, startThread: undefined };

  test("4 needs machine code, 3 does without", () => {
    const why = "this is no processor";
    expect(cpu.available({ ...request, level: 4, native: why })).toBe(`no machine code: ${why}`);
    expect(cpu.available({ ...request, level: 3, native: why })).toBe(true);
    const backend = cpu.create({ ...request, level: 3, native: why });
    expect(backend.kernels).toBe(`wasm: ${why}`);
    expect(cpu.create({ ...request, level: 2 }).kernels).toMatch(/^wasm: opt level 2/);
  });

  const native = async () => await nodePlatform.native();
  test("the best is the default; what was asked for is taken; a reason is kept", async () => {
    const chosen = await chooseOptLevel({ level: undefined }, nodePlatform);
    expect(chosen.level).toBe(nativeHere.length > 0 ? 4 : 3);
    expect(typeof chosen.native).toBe(nativeHere.length > 0 ? "object" : "string");
    expect(await chooseOptLevel({ level: 3 }, nodePlatform)).toEqual({
      level: 3,
      native: "opt level 3 was asked for",
    });
    expect(await chooseOptLevel({ level: undefined, native: false }, nodePlatform)).toEqual({
      level: 3,
      native: "it was switched off",
    });
    const browser = { ...nodePlatform, native: async () => "a browser runs WebAssembly only" };
    expect(await chooseOptLevel({ level: undefined }, browser)).toEqual({
      level: 3,
      native: "a browser runs WebAssembly only",
    });
    expect(await native()).toBe(await native());
  });

  test("4 where there is none, and what is no level, are errors that say why", async () => {
    const browser = { ...nodePlatform, native: async () => "a browser runs WebAssembly only" };
    await expect(chooseOptLevel({ level: 4 }, browser)).rejects.toThrow(
      "level: got 4, but there is no machine code here: a browser runs WebAssembly only. Use opt level 3",
    );
    await expect(chooseOptLevel({ level: 4, native: false }, nodePlatform)).rejects.toThrow(
      "it was switched off",
    );
    await expect(chooseOptLevel({ level: 5 as never }, nodePlatform)).rejects.toThrow(
      "level: got 5, expected one of 1, 2, 3, 4",
    );
  });
});

test.skip.each(nativeElsewhere)("%s", () => {});
