// What the engine can do: the answer here agrees with what runs here, and the dot product's kinds are told apart on
// models of the processors that differ.
// Held against: processors made up here, and modules that this engine runs.

import { execFileSync } from "node:child_process";
import { afterEach, describe, expect, test, vi } from "vitest";
import { classifyDot4, type Dot4Function, detectWasmFeatures } from "../../src/kernels/features.ts";
import { skippedFor } from "../support/skips.ts";

const signed = (byte: number) => (byte << 24) >> 24;
const wrap16 = (value: number) => (value << 16) >> 16;
const saturate16 = (value: number) => Math.max(-32768, Math.min(32767, value));

/** A processor: how it sees the second operand's bytes, and what becomes of each sum of two products. */
function processor(
  second: (byte: number) => number,
  pair: (sum: number) => number = (sum) => sum,
): Dot4Function {
  return (a, b, accumulator) => {
    const product = (i: number) => signed(a[i]!) * second(b[i]! & 255);
    return (accumulator + pair(product(0) + product(1)) + pair(product(2) + product(3))) | 0;
  };
}

test("kinds of dot product", () => {
  expect(classifyDot4(processor(signed)), "ARM's SDOT, AVX-VNNI-INT8").toBe("signed");
  expect(classifyDot4(processor((byte) => byte)), "VNNI").toBe("unsigned");
  expect(classifyDot4(processor((byte) => byte, saturate16)), "pmaddubsw").toBe("i7");
  expect(classifyDot4(processor(signed, wrap16)), "16-bit sums, as without SDOT").toBe("i7");
  expect(classifyDot4(processor((byte) => byte & 63))).toBeUndefined();
  const saturating: Dot4Function = (a, b, accumulator) =>
    accumulator > 2 ** 30 ? accumulator : processor(signed)(a, b, accumulator);
  expect(classifyDot4(saturating)).toBeUndefined();
});

test("this engine", () => {
  const features = detectWasmFeatures();
  // Node 26 has all of it on every processor that it runs on; what dot4 is depends on the processor.
  expect(features).toMatchObject({ simd: true, relaxed: true, threads: true, memory64: true });
  expect(["i7", "signed", "unsigned"]).toContain(features.dot4);
  expect(detectWasmFeatures(), "found once").toBe(features);
});

describe("a poorer engine", () => {
  /** What is found by a copy of the module that has found nothing yet. */
  const detectAgain = async () => {
    vi.resetModules();
    const fresh = await import("../../src/kernels/features.ts");
    return fresh.detectWasmFeatures();
  };
  afterEach(() => {
    vi.unstubAllGlobals();
  });

  test("may not generate code", async () => {
    vi.stubGlobal("WebAssembly", undefined);
    expect(await detectAgain()).toEqual({
      simd: false,
      relaxed: false,
      threads: false,
      memory64: false,
      dot4: "words",
      vectorRegisters: 16,
    });
  });

  test("is a page that is not isolated", async () => {
    vi.stubGlobal("SharedArrayBuffer", undefined);
    expect(await detectAgain()).toEqual({ ...detectWasmFeatures(), threads: false });
  });

  test("has no relaxed SIMD: the dot product is spelled out, for all signed bytes", async () => {
    const { validate } = WebAssembly;
    const isRelaxed = (module: Uint8Array) => Buffer.from(module).includes("relaxed");
    vi.spyOn(WebAssembly, "validate").mockImplementation(
      (module) => !isRelaxed(module as Uint8Array) && validate(module),
    );
    expect(await detectAgain()).toEqual({
      ...detectWasmFeatures(),
      relaxed: false,
      dot4: "words",
    });
    vi.restoreAllMocks();
  });

  test.runIf(process.arch === "x64")(
    `is x64 without VNNI: 0..127${skippedFor("another processor", process.arch !== "x64")}`,
    () => {
      const module = new URL("../../src/kernels/features.ts", import.meta.url).href;
      const code = `import("${module}").then((f) => console.log(f.detectWasmFeatures().dot4))`;
      const flags = ["--no-enable-avx", "-e", code];
      expect(execFileSync(process.execPath, flags, { encoding: "utf8" })).toBe("i7\n");
    },
  );
});
