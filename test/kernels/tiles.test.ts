// AMX tiles: what their ops mean, that the processor agrees, and that matmuls computed with them are those of the
// other kernels, bit for bit. Without a processor with AMX this is skipped, with the reason.
// Held against: the interpreter's meaning of each op, and other kernels' bits.

import { describe, expect, test } from "vitest";
import { askForTiles } from "../../src/backends/cpu/native/amx.ts";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { tileOps } from "../../src/kernels/ir/ops.ts";
import { threeTiles, tileShape, tileStride } from "../../src/kernels/ir/tiles.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { lowerToX64 } from "../../src/kernels/lower/x64.ts";
import { tileMatmulKernel, tileScratchBytes } from "../../src/kernels/ops/matmul/amx.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul/dot4.ts";
import { activationBlockBytes } from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { nodeNative } from "../../src/platform/node-native.ts";
import { Random } from "../support/random.ts";
import { firstDifference } from "./same-memory.ts";
import { outStride, type Product, productMemory, tokenTiles } from "./tile-matmul.ts";
import { openX64, runX64 } from "./x64-runner.ts";

/** Why this machine cannot run them; undefined: it can. */
function lacking(): string | undefined {
  const host = nodeNative();
  if (typeof host === "string") return host;
  const missing = ["amx_tile", "amx_int8"].filter((feature) => !host.features.has(feature));
  if (missing.length > 0) return `this processor lacks ${missing.join(", ")}`;
  return askForTiles(host);
}

const why = lacking();
const onMachine = test.skipIf(why !== undefined);
const reason = why === undefined ? "" : ` [skipped: ${why}]`;
const isa = { isa: "avx512" } as const;
const semantics = { dot4: "unsigned", fused: true } as const;
const target = nativeTargets["x64-avx512"];

/** sum = a . b, twice, of tiles of these shapes. */
function dotKernel(rows: number, depth: number, columns: number): Kernel {
  const k = new KernelBuilder(`dot.${rows}.${depth}.${columns}`, 64);
  const [a, b, out] = [k.param("ptr", "a"), k.param("ptr", "b"), k.param("ptr", "out")];
  k.op("amx.shape", [], tileShape(3, { rows, bytes: 4 * columns }));
  k.op("amx.shape", [], tileShape(7, { rows, bytes: 4 * depth }));
  k.op("amx.shape", [], tileShape(1, { rows: depth, bytes: 4 * columns }));
  k.op("amx.load", [out], tileStride(3, 128));
  k.op("amx.zero", [], 3);
  k.op("amx.load", [a], tileStride(7, 48));
  k.op("amx.load", [b], tileStride(1, 80));
  k.loop(k.i32(2), () => {
    k.op("amx.dot4_ss", [], threeTiles(3, 7, 1));
  });
  k.op("amx.store", [out], tileStride(3, 128));
  return k.finish();
}

const shapes = [
  [16, 8, 16],
  [16, 4, 16],
  [1, 8, 16],
  [7, 2, 5],
  [13, 1, 1],
] as const;
const [A, B, OUT] = [0, 1024, 3072];

function memoryOf(seed: number, length: number): Uint8Array<ArrayBuffer> {
  const random = new Random(seed);
  return Uint8Array.from({ length }, () => random.below(256));
}

describe("ops on tiles", () => {
  test.each(shapes)("%i x %i x %i mean what they should", (rows, depth, columns) => {
    const before = memoryOf(1, 8192);
    const kernel = dotKernel(rows, depth, columns);
    verify(kernel);
    const after = before.slice();
    interpret(kernel, after.buffer, [A, B, OUT]);
    const bytes = new Int8Array(before.buffer);
    const expected = before.slice();
    const view = new DataView(expected.buffer);
    for (let m = 0; m < rows; m++) {
      for (let n = 0; n < columns; n++) {
        let sum = 0;
        for (let i = 0; i < 4 * depth; i++) {
          sum += bytes[A + 48 * m + i]! * bytes[B + 80 * (i >> 2) + 4 * n + (i % 4)]!;
        }
        view.setInt32(OUT + 128 * m + 4 * n, 2 * sum, true);
      }
    }
    expect(after).toEqual(expected);
  });

  onMachine.each(shapes)(
    `%i x %i x %i are what the processor does${reason}`,
    (rows, depth, columns) => {
      const kernel = dotKernel(rows, depth, columns);
      const memory = memoryOf(2, 8192);
      const meant = memory.slice();
      interpret(kernel, meant.buffer, [A, B, OUT]);
      const run = openX64([kernel], isa).get(kernel)!;
      expect(runX64(run, kernel, memory, [A, B, OUT])).toEqual(meant);
    },
  );

  test("shapes that do not fit each other, and tiles without a shape, are errors", () => {
    const k = new KernelBuilder("wrong", 64);
    k.op("amx.shape", [], tileShape(0, { rows: 16, bytes: 64 }));
    k.op("amx.shape", [], tileShape(1, { rows: 8, bytes: 64 }));
    k.op("amx.dot4_ss", [], threeTiles(0, 0, 1));
    const wrong = k.finish();
    expect(() => interpret(wrong, new ArrayBuffer(64), [])).toThrow("do not fit each other");
    const other = new KernelBuilder("other", 64);
    other.op("amx.zero", [], 5);
    expect(() => interpret(other.finish(), new ArrayBuffer(64), [])).toThrow("tile 5 has no shape");
  });

  test.each([
    ["amx.zero", 8, "tile 8, expected 0 to 7"],
    ["amx.dot4_ss", 512, "expected three tiles"],
    ["amx.shape", tileShape(1, { rows: 17, bytes: 64 }), "17 rows of 64 bytes"],
    ["amx.shape", tileShape(1, { rows: 16, bytes: 66 }), "16 rows of 66 bytes"],
  ] as const)("%s %i is refused by the verifier", (op, imm, message) => {
    const k = new KernelBuilder("wrong", 64);
    k.op(op, [], imm);
    expect(() => verify(k.finish())).toThrow(message);
  });

  test.each(tileOps)("%s is refused where there are no tiles", (op) => {
    const kernelOf = (width: number) => {
      const k = new KernelBuilder("tiles", width);
      const pointer = k.param("ptr", "p");
      const args = op === "amx.load" || op === "amx.store" ? [pointer] : [];
      k.op(op, args as never, tileShape(1, { rows: 1, bytes: 4 }));
      return k.finish();
    };
    const wasm = { relaxed: true, memory64: false };
    expect(() => lowerToWasm(kernelOf(16), wasm)).toThrow(`${op} needs AMX, which WebAssembly`);
    expect(() => lowerToArm64(kernelOf(16), { name: "arm64" })).toThrow("needs AMX, which arm64");
    expect(() => lowerToX64(kernelOf(32), { isa: "avx2" })).toThrow("needs AMX, which AVX2");
  });
});

// Two tiles of tokens; columns that make one slab of quants, several, and a first one that is not full.
const [W, X, Q, RESULTS, CODEBOOK, SCRATCH] = [0, 65536, 262144, 393216, 409600, 409728];
const END = SCRATCH + tileScratchBytes(16 * tokenTiles);
const places = { w: W, x: X, q: Q, codebook: CODEBOOK, end: END };
const memoryOfProduct = (product: Product, inTile: number) =>
  productMemory(product, inTile, target, semantics, places);

function resultsOf(memory: Uint8Array<ArrayBuffer>, tokens: number): Float32Array[] {
  return Array.from(
    { length: tokens * tokenTiles },
    (_, t) => new Float32Array(memory.buffer, RESULTS + t * outStride, 16),
  );
}

/** By the kernel for one token. */
function usualResults(product: Product): Float32Array[] {
  const { type, cols, tokens } = product;
  const layout = layoutFor(packingOf(type)!, target);
  const shape = { layout, groups: 1, tokens: 1, replicated: false, order: "vector" } as const;
  const kernel = blockMatmulKernel({ ...shape, name: `one.${type}`, ahead: 0 });
  const run = openX64([kernel], isa).get(kernel)!;
  let memory = memoryOfProduct(product, 1);
  for (let t = 0; t < tokens * tokenTiles; t++) {
    const x = Q + t * (cols / 32) * activationBlockBytes(false, 64);
    const spans = cols / 32 / layout.spanBlocks;
    memory = runX64(run, kernel, memory, [W, x, RESULTS + t * outStride, spans, 1, CODEBOOK]);
  }
  return resultsOf(memory, tokens);
}

describe("products", () => {
  const cases = packedTypes().flatMap((type) => {
    const columns = packingOf(type)!.activationSpan === 8 ? [256, 768] : [32, 96, 1088];
    return columns.map((cols, i) => ({ type, cols, tokens: i === 0 ? 3 : 16 }));
  });

  onMachine.each(cases)(
    `$type, $cols columns, $tokens tokens: the same bits${reason}`,
    (product) => {
      const { type, cols, tokens } = product;
      const layout = layoutFor(packingOf(type)!, target);
      const memory = memoryOfProduct(product, tokens);
      const spans = cols / 32 / layout.spanBlocks;
      const args = [W, Q, RESULTS, spans, tokenTiles, CODEBOOK, outStride, 0, SCRATCH];
      const kernel = tileMatmulKernel({ name: `tiles.${type}`, layout, tokens });
      verify(kernel);
      const got = runX64(openX64([kernel], isa).get(kernel)!, kernel, memory, args);
      const meant = memory.slice();
      interpret(kernel, meant.buffer, args, semantics);
      const floats = [{ from: 0, to: END, kind: "f32" } as const];
      expect(firstDifference(got, meant, floats)).toBeUndefined();
      const results = resultsOf(got, tokens);
      expect(results.flatMap((row) => [...row]).some((value) => value !== 0)).toBe(true);
      expect(results).toEqual(usualResults(product));
    },
  );

  test("only for vectors of 64 bytes", () => {
    const layout = layoutFor(packingOf("q4_0")!, nativeTargets["x64-avx2"]);
    expect(() => tileMatmulKernel({ name: "narrow", layout, tokens: 16 })).toThrow("rows of 64");
  });
});
