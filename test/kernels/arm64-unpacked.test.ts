// Register tiles of arm64 over unpacked row panels: results have the bits of the kernel for one token, which reads the panel as
// it is packed, and the processor (arm64-runner.ts says which) does what the interpreter says. Sums that start as a float
// have the bits of a conversion, up to the largest that a block can have.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul/dot4.ts";
import {
  startAsFloat,
  startOfSum,
  startsAsFloats,
  valueOfSum,
} from "../../src/kernels/ops/matmul/float-sums.ts";
import { activationBlockBytes, rowPanelBytes } from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import {
  mostUnpackedBytes,
  unpackedLayout,
  unpackPanelKernel,
} from "../../src/kernels/ops/packed/unpack-panel.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { arm64Lacks, arm64Semantics, arm64Target, runArm64 } from "./arm64-runner.ts";
import { firstDifference } from "./same-memory.ts";
import { outStride, type Product, productMemory, tokenTiles } from "./tile-matmul.ts";

const target = nativeTargets["arm64-dotprod"];
const [W, X, Q, RESULTS, CODEBOOK, UNPACKED] = [0, 16384, 32768, 45056, 49152, 49168];
const END = UNPACKED + mostUnpackedBytes(512);
const places = { w: W, x: X, q: Q, codebook: CODEBOOK, end: END };

function resultsOf(memory: Uint8Array<ArrayBuffer>, tokens: number): number[][] {
  return Array.from({ length: tokens * tokenTiles }, (_, t) => [
    ...new Int32Array(memory.buffer, RESULTS + t * outStride, 16),
  ]);
}

/** By the kernel for one token. */
function usualResults(product: Product): number[][] {
  const { type, cols, tokens } = product;
  const layout = layoutFor(packingOf(type)!, target);
  const shape = { layout, groups: 4, tokens: 1, replicated: false, order: "vector" } as const;
  const kernel = blockMatmulKernel({ ...shape, name: `one.${type}` });
  const memory = productMemory(product, 1, target, arm64Semantics, places);
  for (let t = 0; t < tokens * tokenTiles; t++) {
    const x = Q + t * (cols / 32) * activationBlockBytes(false, 16);
    const args = [W, x, RESULTS + t * outStride, cols / 32 / layout.spanBlocks, 1, CODEBOOK];
    interpret(kernel, memory.buffer, args, arm64Semantics);
  }
  return resultsOf(memory, tokens);
}

describe("unpacked row panels", () => {
  const executed = arm64Lacks === undefined ? "" : ` [not executed: ${arm64Lacks}]`;

  test.each(packedTypes())(`%s: the same bits${executed}`, (type) => {
    const isSpan = packingOf(type)!.activationSpan === 8;
    const product: Product = { type, cols: isSpan ? 512 : 96, tokens: 3 };
    const { cols, tokens } = product;
    const layout = layoutFor(packingOf(type)!, target);
    expect(rowPanelBytes(unpackedLayout(layout), cols)).toBeLessThanOrEqual(
      mostUnpackedBytes(cols),
    );
    const spans = cols / 32 / layout.spanBlocks;
    const unpack = unpackPanelKernel(`unpack.${type}`, layout);
    const shape = { layout: unpackedLayout(layout), groups: 2, tokens, replicated: false } as const;
    const tile = blockMatmulKernel({ ...shape, name: `tile.${type}`, order: "matrix", ahead: 0 });
    const memory = productMemory(product, tokens, target, arm64Semantics, places);
    const calls = [
      { kernel: unpack, args: [W, UNPACKED, spans, CODEBOOK] },
      ...[0, 2].map((group) => ({
        kernel: tile,
        args: [UNPACKED, Q, RESULTS + 16 * group, spans, tokenTiles, CODEBOOK, outStride, group],
      })),
    ].map(({ kernel, args }) => {
      verify(kernel);
      const before = memory.slice();
      interpret(kernel, memory.buffer, args, arm64Semantics);
      return { kernel, args, memory: before, meant: memory.slice() };
    });
    const results = resultsOf(memory, tokens);
    expect(results.flat().some((bits) => bits !== 0)).toBe(true);
    expect(results).toEqual(usualResults(product));
    if (arm64Lacks !== undefined) return;
    const floats = [{ from: 0, to: END, kind: "f32" } as const];
    runArm64(calls, arm64Target).forEach((got, i) => {
      const { kernel, meant } = calls[i]!;
      expect(firstDifference(got, meant, floats), kernel.name).toBeUndefined();
    });
  });
});

test("a sum that starts as a float has the bits of a conversion", () => {
  const k = new KernelBuilder("sum", 16);
  const [from, to] = [k.param("ptr", "from"), k.param("ptr", "to")];
  const sum = k.op("i32v.load", [from]);
  k.op("f32v.store", [to, valueOfSum(k, k.op("i32v.add", [startOfSum(k), sum]), startAsFloat(k))]);
  k.op("f32v.store", [to, k.op("f32v.from_i32v", [sum])], 16);
  const kernel = k.finish();
  const most = 128 * 128 * 32;
  for (const four of [
    [0, 1, -1, 12345],
    [most, -most, 2 ** 22 - 1, -(2 ** 22)],
  ]) {
    const memory = new ArrayBuffer(48);
    new Int32Array(memory, 0, 4).set(four);
    interpret(kernel, memory, [0, 16], arm64Semantics);
    expect(new Int32Array(memory, 16, 4)).toEqual(new Int32Array(memory, 32, 4));
  }
});

test("only register tiles of arm64 start sums as floats", () => {
  const starts = (name: keyof typeof nativeTargets, order: "vector" | "matrix") =>
    startsAsFloats({ layout: layoutFor(packingOf("q4_k")!, nativeTargets[name]), order });
  expect(starts("arm64-dotprod", "matrix")).toBe(true);
  expect(starts("arm64-dotprod", "vector")).toBe(false);
  expect(starts("x64-avx512", "matrix")).toBe(false);
});
