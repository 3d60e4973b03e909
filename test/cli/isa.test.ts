// --isa and what says which instruction sets there are: the choice by processor, and the flag as a user types it.

import { describe, expect, test } from "vitest";
import { main } from "../../apps/cli/main.ts";
import { cpuFeatures, isaNames, targetOfIsa } from "../../src/backends/cpu/native/isa.ts";
import { type Isa, machineCodeInfo } from "../../src/index.ts";
import type { NativeAccess, NativeHost } from "../../src/platform/platform.ts";
import { tinyFile } from "../support/tiny-file.ts";
import { FakeTerminal } from "./fake-terminal.ts";

function host(arch: NativeHost["arch"], features: string): NativeAccess {
  return { arch, features: new Set(features.split(" ")) } as unknown as NativeHost;
}

const plain = "avx2 fma f16c sse2";
const server = `${plain} avx512f avx512bw avx512dq avx512vl avx512_vnni`;

describe("instruction sets of a processor", () => {
  test.each<[string, NativeAccess, Isa[]]>([
    ["AVX2", host("x64", plain), ["avx2", "wasm"]],
    ["AVX-512", host("x64", server), ["avx512-vnni", "avx2", "wasm"]],
    ["AMX", host("x64", `${server} amx_tile amx_int8`), ["amx", "avx512-vnni", "avx2", "wasm"]],
    ["old", host("x64", "sse2"), ["wasm"]],
    ["arm64", host("arm64", "asimd asimddp"), ["dotprod", "wasm"]],
    ["new arm64", host("arm64", "asimd asimddp i8mm"), ["i8mm", "dotprod", "wasm"]],
    ["none that is known", "no node:ffi", ["wasm"]],
  ])("%s", (_name, access, isas) => {
    const found = cpuFeatures(access);
    expect(found.isas).toEqual(isas);
    expect(found.features).not.toContain("sse2"); // no kernel uses it
    for (const isa of isaNames) {
      if (isa === "wasm") continue;
      expect(typeof targetOfIsa(access, isa) === "string").toBe(isas.includes(isa));
    }
  });

  test("one that is lacking is refused by what is lacking", () => {
    expect(targetOfIsa(host("x64", server), "amx")).toEqual({
      refused: "this processor lacks amx_tile, amx_int8",
    });
    expect(targetOfIsa(host("x64", server), "i8mm")).toEqual({
      refused: "it is of arm64, and this processor is x64",
    });
    expect(targetOfIsa("no node:ffi", "avx2")).toEqual({
      refused: "there is no machine code here: no node:ffi",
    });
  });
});

async function run(args: string[]): Promise<{ code: number; out: string; err: string }> {
  const terminal = new FakeTerminal();
  const code = await main(args, terminal);
  return { code, out: terminal.stdout, err: terminal.stderr };
}

describe("lantern run --isa", () => {
  test("each that this processor has computes; --explain names it and the processor's features", async () => {
    using file = await tiny();
    const { isas, features } = await machineCodeInfo();
    for (const isa of isas) {
      const ran = await run(["run", "-m", file.path, "-n", "2", "--explain", "--isa", isa]);
      expect(ran.code, ran.err).toBe(0);
      if (isa === "wasm") {
        expect(ran.err).toContain("matmul kernels: WebAssembly (isa wasm was asked for)");
        continue;
      }
      const target = String(targetOfIsa(await native(), isa));
      expect(ran.err).toContain(`matmul kernels: machine code for ${target}`);
      expect(ran.err).toContain(`processor: has ${features.join(", ")}`);
    }
  });

  test("one that it lacks, one that nobody has, and a contradiction", async () => {
    using file = await tiny();
    const { isas } = await machineCodeInfo();
    const lacking = isaNames.find((isa) => !isas.includes(isa))!;
    const lacks = await run(["run", "-m", file.path, "-n", "1", "--isa", lacking]);
    expect(lacks.code).toBe(2);
    expect(lacks.err).toContain(`isa: got "${lacking}", but `);
    expect(lacks.err).toContain(`Here are: ${isas.join(", ")}`);
    const unknown = await run(["run", "-m", file.path, "-n", "1", "--isa", "neon"]);
    expect(unknown.code).toBe(2);
    expect(unknown.err).toContain("Allowed choices are amx, avx512-vnni");
    const both = await run(["run", "-m", file.path, "-n", "1", "--isa", "avx2", "--no-native"]);
    expect(both.code).toBe(2);
    expect(both.err).toContain('isa: got "avx2" with no machine code, expected one of the two');
  });
});

async function tiny(): Promise<{ path: string } & Disposable> {
  const { path, remove } = await tinyFile();
  return { path, [Symbol.dispose]: remove };
}

async function native(): Promise<NativeAccess> {
  const { currentPlatform } = await import("../../src/platform/current.ts");
  return await (await currentPlatform()).native();
}
