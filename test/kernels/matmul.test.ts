// The tiled matmul kernels through WebAssembly: every packed type, every tile shape, both loop orders, against the plain
// product of what weights and activations are after rounding.

import { describe, expect, test } from "vitest";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../../src/kernels/features.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import type { Dot4 } from "../../src/kernels/ir/meanings.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul-blocks.ts";
import { packTile } from "../../src/kernels/ops/pack.ts";
import { activationBlockBytes, tileBytes } from "../../src/kernels/ops/packed.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packings.ts";
import { quantizeActivationsKernel } from "../../src/kernels/ops/quantize-activations.ts";
import { Random } from "../support/random.ts";

/** Standard deviation of the weights. */
const SAMPLE_SIZE = 0.02;

const features = detectWasmFeatures();
const pages = 80;
const [W, X, Q, OUT, LEVELS] = [0, 1 << 20, 2 << 20, 3 << 20, 4 << 20];

function compile(kernels: Kernel[], relaxed: boolean, memory: WebAssembly.Memory) {
  const functions = kernels.map((kernel) => lowerToWasm(kernel, { relaxed, memory64: false }));
  const limits = { initial: pages, maximum: pages, shared: false, memory64: false };
  const module = new WebAssembly.Module(assembleModule(functions, limits));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  return exports as Record<string, (...args: number[]) => void>;
}

interface Problem {
  rows: number;
  cols: number;
  tokens: number;
  weights: Float32Array;
  bytes: Uint8Array;
  x: Float32Array;
  /** [tokens][rows] */
  expected: number[];
}

function makeProblem(type: string, rows: number, cols: number, tokens: number): Problem {
  const random = new Random(rows * 31 + cols + tokens);
  const dtype = dtypeByName(type)!;
  // Two tokens whose codes are all as large as they can be, then ordinary ones.
  const x = Float32Array.from({ length: tokens * cols }, (_, i) => {
    const token = Math.floor(i / cols);
    return token < 2 ? 1 - 2 * token : random.normal();
  });
  const bytes = sampleBlocks(dtype, rows * cols);
  const blocks = (rows * cols) / dtype.blockElems;
  const weights = new Float32Array(rows * cols);
  dtype.dequantize(bytes, 0, weights, 0, blocks);
  const rounded = roundTrip(x, dtype.activation);
  const expected: number[] = [];
  for (let t = 0; t < tokens; t++) {
    for (let row = 0; row < rows; row++) {
      let sum = 0;
      for (let c = 0; c < cols; c++) sum += rounded[t * cols + c]! * weights[row * cols + c]!;
      expected.push(sum);
    }
  }
  return { rows, cols, tokens, weights, bytes, x, expected };
}

function roundTrip(x: Float32Array, name: string): Float32Array {
  const dtype = dtypeByName(name)!;
  const blocks = x.length / dtype.blockElems;
  const packed = new Uint8Array(blocks * dtype.blockBytes);
  const out = new Float32Array(x.length);
  dtype.quantize!(x, 0, packed, 0, blocks);
  dtype.dequantize(packed, 0, out, 0, blocks);
  return out;
}

/** Which dot4 semantics can be tried here: the widened one everywhere, the others where the engine has them. */
function dot4s(): { dot4: Dot4; relaxed: boolean }[] {
  const all: { dot4: Dot4; relaxed: boolean }[] = [{ dot4: "i7", relaxed: false }];
  if (features.relaxed) all.push({ dot4: "i7", relaxed: true });
  if (features.relaxed && features.dot4 !== "i7") all.push({ dot4: features.dot4, relaxed: true });
  return all;
}

describe.each(packedTypes())("%s", (type) => {
  const packing = packingOf(type)!;
  const cols = packing.activationSpan === 8 ? 512 : 96;

  for (const { dot4, relaxed } of dot4s()) {
    for (const replicated of [false, true]) {
      test(`dot4 ${dot4}, ${relaxed ? "relaxed" : "plain"}, ${replicated ? "replicated" : "compact"}`, () => {
        const problem = makeProblem(type, 35, cols, 9);
        const layout = packing.layout(dot4);
        const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
        const tiles = packAll(type, dot4, problem, memory);
        const tokens = 4;
        const vector = blockMatmulKernel({
          name: "vector",
          layout,
          groups: 4,
          tokens: 1,
          replicated,
          order: "vector",
        });
        const streams = blockMatmulKernel({
          name: "streams",
          layout,
          groups: 4,
          tokens: 1,
          replicated,
          order: "vector",
          streams: 3,
        });
        const few = blockMatmulKernel({
          name: "few",
          layout,
          groups: 2,
          tokens,
          replicated,
          order: "vector",
          streams: 3,
        });
        const matrix = [1, 2, 4].map((groups) =>
          blockMatmulKernel({
            name: `matrix${groups}`,
            layout,
            groups,
            tokens,
            replicated,
            order: "matrix",
          }),
        );
        const quantize = quantizeActivationsKernel({
          name: "quantize",
          span: packing.activationSpan,
          replicated,
        });
        const call = compile([vector, streams, few, ...matrix, quantize], relaxed, memory);
        const blockBytes = activationBlockBytes(replicated);
        const blocks = cols / 32;
        new Float32Array(memory.buffer).set(problem.x, X / 4);
        const spans = blocks / packing.activationSpan;
        const weightSpans = blocks / layout.spanBlocks;
        const out = new Float32Array(memory.buffer, OUT, 9 * 48);

        // One token at a time.
        for (let t = 0; t < problem.tokens; t++) {
          call.quantize!(X + t * cols * 4, Q, spans, blockBytes);
          call.vector!(W, Q, OUT + t * 48 * 4, weightSpans, tiles, LEVELS);
        }
        expectRows(problem, out);

        // The same, the three tiles in turns.
        out.fill(0);
        for (let t = 0; t < problem.tokens; t++) {
          const apart = tileBytes(layout, cols);
          call.quantize!(X + t * cols * 4, Q, spans, blockBytes);
          call.streams!(W, Q, OUT + t * 48 * 4, weightSpans, 1, LEVELS, apart, 16 * 4);
        }
        expectRows(problem, out);

        // Eight tokens in two tiles of four; the ninth is left.
        for (let t = 0; t < 8; t++) {
          const tile = Math.floor(t / tokens) * tokens * blocks * blockBytes;
          const target = Q + tile + (t % tokens) * blockBytes;
          call.quantize!(X + t * cols * 4, target, spans, tokens * blockBytes);
        }
        // All groups, the three tiles in turns.
        out.fill(0, 0, 8 * 48);
        for (let t = 0; t < 8; t += tokens) {
          const x = Q + t * blocks * blockBytes;
          const apart = tileBytes(layout, cols);
          call.few!(W, x, OUT + t * 48 * 4, weightSpans, 1, LEVELS, 48 * 4, apart, 16 * 4);
        }
        expectRows(problem, out);
        // One tile after the other, by each number of groups.
        for (const groups of [1, 2, 4]) {
          out.fill(0, 0, 8 * 48);
          for (let tile = 0; tile < tiles; tile++) {
            for (let g = 0; g < 4; g += groups) {
              const w = W + tile * tileBytes(layout, cols);
              call[`matrix${groups}`]!(
                w,
                Q,
                OUT + (tile * 16 + g * 4) * 4,
                weightSpans,
                2,
                LEVELS,
                48 * 4,
                g,
              );
            }
          }
          expectRows(problem, out);
        }
      });
    }
  }
});

function packAll(type: string, dot4: Dot4, problem: Problem, memory: WebAssembly.Memory): number {
  const packing = packingOf(type)!;
  const layout = packing.layout(dot4);
  const tiles = Math.ceil(problem.rows / 16);
  const rowBytes = problem.bytes.length / problem.rows;
  const views = {
    bytes: new Int8Array(memory.buffer),
    halves: new Uint16Array(memory.buffer),
    words: new Uint32Array(memory.buffer),
    floats: new Float32Array(memory.buffer),
  };
  for (let tile = 0; tile < tiles; tile++) {
    const rows = Math.min(16, problem.rows - tile * 16);
    const view = new DataView(problem.bytes.buffer, tile * 16 * rowBytes, rows * rowBytes);
    packTile(
      packing,
      dot4,
      view,
      rows,
      problem.cols,
      views,
      W + tile * tileBytes(layout, problem.cols),
    );
  }
  const levels = packing.levels?.(dot4);
  if (levels) views.bytes.set(levels, LEVELS);
  return tiles;
}

/** Rows of 48 results (35 real ones, then padding). */
function expectRows(problem: Problem, out: Float32Array): void {
  const size = SAMPLE_SIZE * Math.sqrt(problem.cols);
  for (let t = 0; t < problem.tokens; t++) {
    for (let row = 0; row < problem.rows; row++) {
      const got = out[t * 48 + row]!;
      const want = problem.expected[t * problem.rows + row]!;
      expect(Math.abs(got - want), `token ${t} row ${row}: ${got} against ${want}`).toBeLessThan(
        2e-5 * size,
      );
    }
    for (let row = problem.rows; row < 48; row++) expect(out[t * 48 + row]).toBe(0);
  }
}
