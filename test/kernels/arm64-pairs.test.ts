// Matmuls of pairs of rows on arm64 (SMMLA): what their ops mean, that the processor (arm64-runner.ts says which)
// agrees, that targets without them refuse, and that their results are those of the other kernels, bit for bit.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { pairOps, zipOps } from "../../src/kernels/ir/ops.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { lowerToX64 } from "../../src/kernels/lower/x64.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul/dot4.ts";
import { PAIR_SCRATCH_BYTES, pairMatmulKernel } from "../../src/kernels/ops/matmul/i8mm.ts";
import { activationBlockBytes } from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import {
  arm64Differences,
  arm64Semantics,
  lacksFor,
  pairsTarget,
  runArm64,
} from "./arm64-runner.ts";
import type { KernelCall } from "./executable.ts";
import { opCase } from "./op-cases.ts";
import { firstDifference } from "./same-memory.ts";
import { outStride, type Product, productMemory, tokenTiles } from "./tile-matmul.ts";

const target = nativeTargets["arm64-i8mm"];
const why = lacksFor(pairsTarget);
const onMachine = test.skipIf(why !== undefined);
const reason = why === undefined ? "" : ` [skipped: ${why}]`;

describe("ops on pairs", () => {
  test("mean what they should", () => {
    const k = new KernelBuilder("pairs", 32);
    const [p, out] = [k.param("ptr", "p"), k.param("ptr", "out")];
    const [a, b] = [k.op("i8v.load", [p]), k.op("i8v.load", [p], 32)];
    const start = k.op("i32v.const", [], 1000);
    k.op("i32v.store", [out, k.op("i8mm.dot8_ss", [a, b, start])]);
    const [x, y] = [k.op("f32v.load", [p], 64), k.op("f32v.load", [p], 96)];
    (["zip32_low", "zip32_high", "zip64_low", "zip64_high"] as const).forEach((zip, i) => {
      k.op("f32v.store", [out, k.op(`arm64.${zip}`, [x, y])], 32 + 32 * i);
    });
    const kernel = k.finish();
    verify(kernel);
    const memory = new ArrayBuffer(512);
    const bytes = new Int8Array(memory);
    // Rows of a are 1 and -2, of b 3 and -128, in the first 16 bytes; others in the next.
    [1, -2, 5, 7].forEach((value, row) => {
      bytes.fill(value, 8 * row, 8 * row + 8);
    });
    [3, -128, -1, 0].forEach((value, row) => {
      bytes.fill(value, 32 + 8 * row, 40 + 8 * row);
    });
    const lanes = Array.from({ length: 16 }, (_, i) => i);
    new Float32Array(memory, 64, 16).set(lanes);
    interpret(kernel, memory, [0, 256]);
    expect([...new Int32Array(memory, 256, 8)]).toEqual([
      ...[1000 + 24, 1000 - 1024, 1000 - 48, 1000 + 2048],
      ...[1000 - 40, 1000, 1000 - 56, 1000],
    ]);
    const zips = (i: number) => [...new Float32Array(memory, 288 + 32 * i, 8)];
    expect(zips(0)).toEqual([0, 8, 1, 9, 4, 12, 5, 13]);
    expect(zips(1)).toEqual([2, 10, 3, 11, 6, 14, 7, 15]);
    expect(zips(2)).toEqual([0, 1, 8, 9, 4, 5, 12, 13]);
    expect(zips(3)).toEqual([2, 3, 10, 11, 6, 7, 14, 15]);
  });

  onMachine(`are what the processor does${reason}`, () => {
    const calls = [...pairOps, ...zipOps].map((op) => {
      const { kernel, memory, args } = opCase(op, 16, "signed");
      return { kernel, memory, args, regions: [] };
    });
    expect(arm64Differences(calls, pairsTarget)).toEqual([]);
  });

  const refusals = [
    ...pairOps.map((op) => ({ op, needs: "i8mm" })),
    ...zipOps.map((op) => ({ op, needs: "arm64" })),
  ];
  test.each(refusals)("$op is refused where the processor has none", ({ op, needs }) => {
    const kernelOf = (width: number) => opCase(op, width, "signed").kernel;
    const wasm = { relaxed: true, memory64: false };
    expect(() => lowerToWasm(kernelOf(16), wasm)).toThrow(
      `${op} needs ${needs}, which WebAssembly`,
    );
    const lower = () => lowerToArm64(kernelOf(16), { name: "arm64 dotprod" });
    if (needs === "i8mm") expect(lower).toThrow("needs i8mm, which arm64 dotprod");
    else expect(lower().bytes.length).toBeGreaterThan(0);
    for (const isa of ["avx512", "avx2"] as const) {
      const kernel = kernelOf(isa === "avx512" ? 64 : 32);
      expect(() => lowerToX64(kernel, { isa })).toThrow(`needs ${needs}, which x86-64`);
    }
  });
});

// Two tiles of tokens; columns that make one slab of quants, several, and a first one that is not full.
const [W, X, Q, RESULTS, CODEBOOK, SCRATCH] = [0, 16384, 57344, 81920, 86016, 86032];
const END = SCRATCH + PAIR_SCRATCH_BYTES;
const places = { w: W, x: X, q: Q, codebook: CODEBOOK, end: END };
const memoryOfProduct = (product: Product, inTile: number) =>
  productMemory(product, inTile, target, arm64Semantics, places);

function resultsOf(memory: Uint8Array<ArrayBuffer>, tokens: number): number[][] {
  return Array.from({ length: tokens * tokenTiles }, (_, t) => [
    ...new Int32Array(memory.buffer, RESULTS + t * outStride, 16),
  ]);
}

/** By the kernel for one token, which the interpreter runs. */
function usualResults(product: Product): number[][] {
  const { type, cols, tokens } = product;
  const layout = layoutFor(packingOf(type)!, target);
  const shape = { layout, groups: 4, tokens: 1, replicated: false, order: "vector" } as const;
  const kernel = blockMatmulKernel({ ...shape, name: `one.${type}` });
  const memory = memoryOfProduct(product, 1);
  for (let t = 0; t < tokens * tokenTiles; t++) {
    const x = Q + t * (cols / 32) * activationBlockBytes(false, 16);
    const spans = cols / 32 / layout.spanBlocks;
    const args = [W, x, RESULTS + t * outStride, spans, 1, CODEBOOK];
    interpret(kernel, memory.buffer, args, arm64Semantics);
  }
  return resultsOf(memory, tokens);
}

function productCall(product: Product): KernelCall {
  const { type, cols, tokens } = product;
  const layout = layoutFor(packingOf(type)!, target);
  const kernel = pairMatmulKernel({ name: `pairs.${type}.${tokens}`, layout, tokens });
  const spans = cols / 32 / layout.spanBlocks;
  const args = [W, Q, RESULTS, spans, tokenTiles, CODEBOOK, outStride, 0, SCRATCH];
  return { kernel, memory: memoryOfProduct(product, tokens), args };
}

/** One with slabs of blocks, one with spans. */
const inAllSizes = ["q4_0", "q4_k"];

describe("products", () => {
  const executed = why === undefined ? "" : ` [not executed: ${why}]`;

  test.each(packedTypes())(`%s: the same bits${executed}`, (type) => {
    const isSpan = packingOf(type)!.activationSpan === 8;
    const products = [
      { type, cols: isSpan ? 256 : 32, tokens: 3 },
      { type, cols: isSpan ? 512 : 288, tokens: 4 },
      ...(inAllSizes.includes(type) ? [{ type, cols: isSpan ? 768 : 544, tokens: 2 }] : []),
    ];
    const calls = products.map(productCall);
    const meant = calls.map(({ kernel, memory, args }) => {
      verify(kernel);
      const after = memory.slice();
      interpret(kernel, after.buffer, args, arm64Semantics);
      return after;
    });
    products.forEach((product, i) => {
      const results = resultsOf(meant[i]!, product.tokens);
      expect(results.flat().some((bits) => bits !== 0)).toBe(true);
      expect(results).toEqual(usualResults(product));
    });
    if (why !== undefined) return;
    const floats = [{ from: 0, to: END, kind: "f32" } as const];
    runArm64(calls, pairsTarget).forEach((got, i) => {
      expect(firstDifference(got, meant[i]!, floats), calls[i]!.kernel.name).toBeUndefined();
    });
  });

  test("only for vectors of 16 bytes", () => {
    const layout = layoutFor(packingOf("q4_0")!, nativeTargets["x64-avx2"]);
    expect(() => pairMatmulKernel({ name: "wide", layout, tokens: 4 })).toThrow("32 bytes");
  });

  test("not where groups share bytes", () => {
    const layout = layoutFor(packingOf("q4_0")!, nativeTargets["arm64-dotprod"]);
    expect(() => pairMatmulKernel({ name: "shared", layout, tokens: 4 })).toThrow("share bytes");
  });
});
