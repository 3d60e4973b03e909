// Products of quantized weights for the tests of the tiled kernels: weights as in a file, activations, and what the product of
// both comes to after rounding, by plain arithmetic.

import { expect } from "vitest";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import { packPanel } from "../../src/kernels/ops/packed/pack.ts";
import { rowPanelBytes } from "../../src/kernels/ops/packed/packed.ts";
import { codebookFor, type LayoutTarget, layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { Random } from "../support/random.ts";

/** Standard deviation of the weights. */
const SAMPLE_SIZE = 0.02;

export interface Problem {
  rows: number;
  cols: number;
  tokens: number;
  weights: Float32Array;
  bytes: Uint8Array;
  x: Float32Array;
  /** [tokens][rows] */
  expected: number[];
}

export function makeProblem(type: string, rows: number, cols: number, tokens: number): Problem {
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

/** The tiles of a problem's weights at `at`, and its codebook; returns how many tiles. */
export function packAll(
  type: string,
  target: LayoutTarget,
  problem: Problem,
  memory: ArrayBuffer,
  at: number,
  codebookAt: number,
): number {
  const packing = packingOf(type)!;
  const layout = layoutFor(packing, target);
  const tiles = Math.ceil(problem.rows / 16);
  const rowBytes = problem.bytes.length / problem.rows;
  const views = {
    bytes: new Int8Array(memory),
    halves: new Uint16Array(memory),
    words: new Uint32Array(memory),
    floats: new Float32Array(memory),
  };
  for (let tile = 0; tile < tiles; tile++) {
    const rows = Math.min(16, problem.rows - tile * 16);
    const view = new DataView(problem.bytes.buffer, tile * 16 * rowBytes, rows * rowBytes);
    packPanel(
      packing,
      target,
      view,
      rows,
      problem.cols,
      views,
      at + tile * rowPanelBytes(layout, problem.cols),
    );
  }
  const codebook = codebookFor(packing, target);
  if (codebook) views.bytes.set(codebook, codebookAt);
  return tiles;
}

/** Rows of 48 results: real ones, then padding. */
export function expectRows(problem: Problem, out: Float32Array): void {
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
