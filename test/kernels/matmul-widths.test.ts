// The register-tiled matmul kernels for every target, in the interpreter: every packed type and vector width, both
// loop orders, compared with the plain matmul of the rounded weights and activations. All variants and all targets
// have the same bits, WebAssembly with a fused multiply-add too.

import { describe, expect, test } from "vitest";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul/dot4.ts";
import { quantizeActivationsKernel } from "../../src/kernels/ops/matmul/quantize-activations.ts";
import {
  activationBlockBytes,
  groupsPerPanel,
  rowPanelBytes,
} from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { type KernelTarget, nativeTargets, wasmTarget } from "../../src/kernels/target.ts";
import { expectRows, makeProblem, type Problem, packAll } from "./matmul-problem.ts";

const STRIDE = 48 * 4;
const [W, X, Q, OUT, CODEBOOK, END] = [0, 1 << 17, 2 << 17, 3 << 17, 4 << 17, (4 << 17) + 64];
const tokens = 3;

/** A memory with the problem in it, and what runs kernels there. */
class Bench {
  readonly memory = new ArrayBuffer(END);
  readonly out = new Float32Array(this.memory, OUT, tokens * 48);
  readonly problem: Problem;
  readonly tiles: number;
  readonly #target: KernelTarget;

  constructor(type: string, target: KernelTarget, rows: number, cols: number) {
    this.problem = makeProblem(type, rows, cols, tokens);
    this.tiles = packAll(type, target, this.problem, this.memory, W, CODEBOOK);
    new Float32Array(this.memory).set(this.problem.x, X / 4);
    this.#target = target;
  }

  run(kernel: Kernel, ...args: number[]): void {
    interpret(kernel, this.memory, args, { dot4: this.#target.dot4, fused: true });
  }

  /** The results so far, which must be right; then there are none again. */
  take(): Float32Array {
    expectRows(this.problem, this.out);
    const results = this.out.slice();
    this.out.fill(Number.NaN);
    return results;
  }
}

/** [tokens][48], the same by all ways of this target. */
function productsOf(type: string, target: KernelTarget, replicated: boolean): Float32Array {
  const packing = packingOf(type)!;
  const layout = layoutFor(packing, target);
  const cols = packing.activationSpan === 8 ? 256 : 64;
  const bench = new Bench(type, target, 19, cols);
  const blocks = cols / 32;
  const spans = blocks / layout.spanBlocks;
  const blockBytes = activationBlockBytes(replicated, target.width);
  const apart = rowPanelBytes(layout, cols);
  const { activationSpan: span } = packing;
  const quantize = quantizeActivationsKernel({ name: "quantize", span, replicated, target });
  const all = groupsPerPanel(layout);
  const shape = { layout, replicated, groups: all };
  const least = layout.paired ? 2 : 1;

  const vector = blockMatmulKernel({ ...shape, name: "vector", tokens: 1, order: "vector" });
  const streams = blockMatmulKernel({
    ...shape,
    name: "streams",
    tokens: 1,
    order: "vector",
    streams: 2,
  });
  for (let t = 0; t < tokens; t++) {
    bench.run(quantize, X + t * cols * 4, Q, blocks / span, blockBytes);
    bench.run(vector, W, Q, OUT + t * STRIDE, spans, 2, CODEBOOK);
  }
  fillPadding(bench);
  const expected = bench.take();
  for (let t = 0; t < tokens; t++) {
    bench.run(quantize, X + t * cols * 4, Q, blocks / span, blockBytes);
    bench.run(streams, W, Q, OUT + t * STRIDE, spans, 1, CODEBOOK, apart, 64);
  }
  fillPadding(bench);
  expect(bench.take(), "streams").toEqual(expected);

  // All tokens in one tile.
  for (let t = 0; t < tokens; t++) {
    bench.run(quantize, X + t * cols * 4, Q + t * blockBytes, blocks / span, tokens * blockBytes);
  }
  const few = blockMatmulKernel({
    ...shape,
    groups: least,
    name: "few",
    tokens,
    order: "vector",
    streams: 2,
  });
  bench.run(few, W, Q, OUT, spans, 1, CODEBOOK, STRIDE, apart, 64);
  fillPadding(bench);
  expect(bench.take(), "few").toEqual(expected);
  for (const groups of new Set([all, least])) {
    const matrix = blockMatmulKernel({ ...shape, groups, name: "matrix", tokens, order: "matrix" });
    for (let tile = 0; tile < bench.tiles; tile++) {
      for (let g = 0; g < all; g += groups) {
        const out = OUT + tile * 64 + g * target.width;
        bench.run(matrix, W + tile * apart, Q, out, spans, 1, CODEBOOK, STRIDE, g);
      }
    }
    fillPadding(bench);
    expect(bench.take(), `matrix of ${groups}`).toEqual(expected);
  }
  return expected;
}

/** 19 rows are two tiles; a row of results has room for three. */
function fillPadding({ out }: Bench): void {
  for (let t = 0; t < tokens; t++) out.fill(0, t * 48 + 32, (t + 1) * 48);
}

const targets = [
  wasmTarget({ dot4: "signed", vectorRegisters: 16 }),
  ...Object.values(nativeTargets),
];

// Replicated activations do not depend on the type of the weights, only on how many blocks share a scale, and how.
const cases = [
  ...packedTypes().map((type) => [type, false] as const),
  ...["q4_0", "q2_k", "q6_k", "q4_k"].map((type) => [type, true] as const),
];

describe.each(cases)("%s, replicated: %s", (type, replicated) => {
  const results = new Map<string, Float32Array>();

  test.each(targets)("$name", (target) => {
    results.set(target.name, productsOf(type, target, replicated));
  });

  test("is the same on all targets", () => {
    expect([...results.keys()]).toEqual(targets.map(({ name }) => name));
    const first = results.get("wasm")!;
    for (const [name, result] of results) expect(result, name).toEqual(first);
  });
});
