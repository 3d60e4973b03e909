// A product in memory as kernels for tiles of tokens find it, for the tests of those that unpack a slab first (tiles.test.ts,
// arm64-pairs.test.ts): packed weights, and activations in two tiles. The places are each test's own.

import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Semantics } from "../../src/kernels/ir/meanings.ts";
import { quantizeActivationsKernel } from "../../src/kernels/ops/matmul/quantize-activations.ts";
import { activationBlockBytes } from "../../src/kernels/ops/packed/packed.ts";
import { packingOf } from "../../src/kernels/ops/packed/packings.ts";
import type { KernelTarget } from "../../src/kernels/target.ts";
import { makeProblem, packAll } from "./matmul-problem.ts";

export const tokenTiles = 2;
/** Bytes from one token's results to the next. */
export const outStride: number = 64 + 16;

export interface Product {
  readonly type: string;
  readonly cols: number;
  readonly tokens: number;
}

export interface MatmulPlaces {
  readonly w: number;
  /** Activations as floats, and as bytes. */
  readonly x: number;
  readonly q: number;
  readonly codebook: number;
  /** Of the memory. */
  readonly end: number;
}

/** Weights, and activations in tiles of `inTile` tokens. */
export function productMemory(
  { type, cols, tokens }: Product,
  inTile: number,
  target: KernelTarget,
  semantics: Semantics,
  { w, x, q, codebook, end }: MatmulPlaces,
): Uint8Array<ArrayBuffer> {
  const { activationSpan: span } = packingOf(type)!;
  const memory = new Uint8Array(end);
  const problem = makeProblem(type, 16, cols, tokens * tokenTiles);
  packAll(type, target, problem, memory.buffer, w, codebook);
  new Float32Array(memory.buffer).set(problem.x, x / 4);
  const quantize = quantizeActivationsKernel({ name: "quantize", span, replicated: false, target });
  const blockBytes = activationBlockBytes(false, target.width);
  for (let t = 0; t < tokens * tokenTiles; t++) {
    const rest = t % inTile;
    const to = q + ((t - rest) * (cols / 32) + rest) * blockBytes;
    const args = [x + t * cols * 4, to, cols / 32 / span, inTile * blockBytes];
    interpret(quantize, memory.buffer, args, semantics);
  }
  return memory;
}
