// Kernels as machine code, through every step: choice of a target, lowering, the shared object, the entry, parameter
// blocks. The conformance suite checks what matmul kernels compute.

import { describe, expect, test } from "vitest";
import { BLOCK_BYTES, MOST_PARAMS, openNativeJob } from "../../src/backends/cpu/native/entry.ts";
import { nativeIsa } from "../../src/backends/cpu/native/isa.ts";
import { type NativeKernels, nativeKernels } from "../../src/backends/cpu/native/native.ts";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Kernel, Reg } from "../../src/kernels/ir/kernel.ts";
import { nativeTargets, type TargetName } from "../../src/kernels/target.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import type { NativeHost } from "../../src/platform/platform.ts";

const access = nodeNative();

/** A machine of which only this is known. Nothing can be opened on it. */
function machine(arch: NativeHost["arch"], features: string): NativeHost {
  return {
    arch,
    features: new Set(features.split(" ")),
    bind: () => "not on this machine",
    load: () => "not on this machine",
    address: () => 0,
  };
}

describe("a machine without", () => {
  const all = "avx2 fma f16c avx_vnni avx512f avx512bw avx512dq avx512vl avx512_vnni";
  test.each(all.split(" ").slice(4))("%s does not run AVX-512", (missing) => {
    const features = all.replace(new RegExp(`${missing}\\b`), "").replaceAll(/ +/g, " ");
    expect(nativeKernels(machine("x64", features), "x64-avx512")).toBe(
      `this processor lacks instructions that the machine code needs: x64-avx512 needs ${missing}`,
    );
  });

  test("AVX-VNNI and AVX-512, AVX2, dot products: what is missing is said", () => {
    expect(nativeKernels(machine("x64", "avx2 fma"))).toBe(
      "this processor lacks instructions that the machine code needs: x64-amx needs f16c, avx512f, avx512bw, avx512dq, avx512vl, avx512_vnni, amx_tile, amx_int8; x64-avx512 needs f16c, avx512f, avx512bw, avx512dq, avx512vl, avx512_vnni; x64-avx2-vnni needs f16c, avx_vnni; x64-avx2 needs f16c",
    );
    expect(nativeKernels(machine("arm64", "asimd fphp"))).toBe(
      "this processor lacks instructions that the machine code needs: arm64-i8mm needs asimddp, i8mm; arm64-dotprod needs asimddp",
    );
  });

  test("i8mm runs dot products", () => {
    const nameOf = (features: string) => {
      const level = nativeIsa(machine("arm64", features));
      return "refused" in level ? level.refused : level.name;
    };
    expect(nameOf("fp asimd asimddp i8mm bf16")).toBe("arm64-i8mm");
    expect(nameOf("fp asimd asimddp")).toBe("arm64-dotprod");
    expect(nameOf("fp asimd i8mm")).toMatch(/arm64-i8mm needs asimddp; arm64-dotprod needs/);
  });

  test("AMX runs AVX-512", () => {
    const host = nativeKernels(machine("x64", `${all} amx_tile`), "x64-amx");
    expect(host).toBe(
      "this processor lacks instructions that the machine code needs: x64-amx needs amx_int8",
    );
  });

  const here = typeof access === "string" ? undefined : access;
  const hasAvx512 = here?.features.has("avx512_vnni") ?? false;
  const why = hasAvx512 ? "" : " [skipped: this machine runs no AVX-512 with VNNI]";
  test.skipIf(!hasAvx512)(`permission to use AMX runs AVX-512, and that is said${why}`, () => {
    const features = new Set([...here!.features, "amx_tile", "amx_int8"]);
    // The first thing that is opened asks for AMX tiles.
    let opened = 0;
    const load: NativeHost["load"] = (bytes) =>
      opened++ === 0 ? "not this one" : here!.load(bytes);
    const native = nativeKernels({ ...here!, features, load }) as NativeKernels;
    expect(native.target.name).toBe("x64-avx512");
    expect(native.withoutTiles).toBe("not this one");
  });

  test("a way to open code: its reason is passed on", () => {
    expect(nativeKernels("a browser runs WebAssembly only")).toBe(
      "a browser runs WebAssembly only",
    );
    expect(nativeKernels(machine("x64", "avx2 fma f16c"))).toBe("not on this machine");
    expect(nativeKernels(machine("arm64", "asimd asimddp"))).toBe("not on this machine");
  });
});

/** out[0] = the sum of all parameters after `out`. */
function sumKernel(width: number, params: number): Kernel {
  const k = new KernelBuilder(`sum.${params}`, width);
  const out = k.param("ptr", "out");
  let sum: Reg<"i32"> = k.i32(0);
  for (let i = 1; i < params; i++) sum = k.op("i32.add", [sum, k.param("i32", `p${i}`)]);
  k.op("i32.store", [out, sum]);
  return k.finish();
}

function opened(native: NativeKernels, kernels: readonly Kernel[], thread: number) {
  const functions = kernels.map((kernel) => native.lower(kernel));
  const image = native.link(functions.filter((made) => typeof made !== "string"));
  const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
  const job = { image, blocks: 4096 };
  return { buffer, calls: openNativeJob(job, native.host, buffer, thread) };
}

for (const name of Object.keys(nativeTargets) as Exclude<TargetName, "wasm">[]) {
  const native = nativeKernels(access, name);
  const skipped = typeof native === "string" ? ` [skipped: ${native}]` : "";
  describe.skipIf(skipped)(`${name}${skipped}`, () => {
    const made = native as NativeKernels;
    const { width } = nativeTargets[name];

    test("a kernel gets all its numbers, and each of several is the one that is called", () => {
      const counts = [2, 5, MOST_PARAMS];
      const { buffer, calls } = opened(
        made,
        counts.map((count) => sumKernel(width, count)),
        3,
      );
      const numbers = new Int32Array(buffer);
      for (const count of [...counts, ...counts]) {
        const args = Array.from({ length: count - 1 }, (_, i) => (i + 1) * (i % 2 ? -1e7 : 1));
        calls[`sum.${count}`]!(64, ...args);
        expect(numbers[16]).toBe(args.reduce((a, b) => a + b, 0));
      }
      // Only this thread's block was used.
      const before = new Uint8Array(buffer, 4096, 3 * BLOCK_BYTES);
      const after = new Uint8Array(buffer, 4096 + 4 * BLOCK_BYTES, BLOCK_BYTES);
      expect([...before, ...after].every((byte) => byte === 0)).toBe(true);
    });

    test("a kernel with too many parameters or vectors is refused with a sentence", () => {
      expect(made.lower(sumKernel(width, MOST_PARAMS + 1))).toBe(
        `sum.${MOST_PARAMS + 1} has ${MOST_PARAMS + 1} parameters, at most ${MOST_PARAMS} are passed`,
      );
      const k = new KernelBuilder("wide", width);
      const x = k.param("ptr", "x");
      const loaded = Array.from({ length: 40 }, (_, i) => k.op("i32v.load", [x], i * width));
      for (const [i, value] of loaded.reverse().entries())
        k.op("i32v.store", [x, value], i * width);
      expect(made.lower(k.finish())).toMatch(/^wide keeps \d+ vectors alive, .* has \d+ registers/);
    });
  });
}

test("a thread that cannot open the code says why", () => {
  const image = { bytes: new Uint8Array(), entry: "", kernels: {} };
  expect(() =>
    openNativeJob({ image, blocks: 0 }, "it was forbidden", new ArrayBuffer(8), 2),
  ).toThrow("machine code cannot be run on thread 2: it was forbidden");
});
