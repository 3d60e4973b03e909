// The engine's kernels as arm64 machine code, executed (arm64-runner.ts says where): matmuls of every packed type and
// of floats in many shapes, rounding of activations, attention, norms and the rest leave the same memory as the
// interpreter, bit for bit. Other tests check the interpreter (matmul-widths, elementwise, attention).

import { describe, expect, test } from "vitest";
import { f32ToF16 } from "../../src/base/half.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { elementwiseKernels } from "../../src/kernels/ops/elementwise-table.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul/dot4.ts";
import { floatMatmulKernel } from "../../src/kernels/ops/matmul/floats.ts";
import { quantizeActivationsKernel } from "../../src/kernels/ops/matmul/quantize-activations.ts";
import { activationBlockBytes, rowPanelBytes } from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { Random } from "../support/random.ts";
import {
  arm64Differences,
  arm64Lacks,
  arm64Semantics,
  type CheckedCall,
  isRefused,
} from "./arm64-runner.ts";
import { makeProblem, packAll } from "./matmul-problem.ts";
import type { Region } from "./same-memory.ts";

const target = nativeTargets["arm64-dotprod"];

/** Rows and tokens at once; in vector order all rows of a tile, `streams` tiles in turns. The first three: every type. */
const shapes = [
  { order: "vector", rows: 16, tokens: 1, streams: 1 },
  { order: "vector", rows: 16, tokens: 1, streams: 2 },
  { order: "matrix", rows: 8, tokens: 4, streams: 1 },
  { order: "vector", rows: 8, tokens: 2, streams: 2 },
  { order: "vector", rows: 8, tokens: 3, streams: 1 },
  { order: "vector", rows: 8, tokens: 4, streams: 1 },
  { order: "matrix", rows: 4, tokens: 4, streams: 1 },
  { order: "matrix", rows: 8, tokens: 6, streams: 1 },
  { order: "matrix", rows: 16, tokens: 2, streams: 1 },
  { order: "matrix", rows: 16, tokens: 3, streams: 1 },
] as const;
/** One type of each kind of layout. */
const inAllShapes: readonly string[] = ["q4_0", "q4_1", "q5_0", "q8_0", "q2_k", "q4_k", "q6_k"];

const [W, X, Q, OUT, CODEBOOK, END] = [0, 20480, 28672, 32768, 38912, 38928];
const tokens = 6;
const outStride = 48 * 4;

/** All floats of the whole memory: any NaN is as good as another. */
const floats: readonly Region[] = [{ from: 0, to: Number.POSITIVE_INFINITY, kind: "f32" }];

function productCases(type: string, replicated: boolean): CheckedCall[] {
  const packing = packingOf(type)!;
  const layout = layoutFor(packing, target);
  const cols = packing.activationSpan === 8 ? 256 : 64;
  const blocks = cols / 32;
  const memory = new Uint8Array(replicated ? END + 4 * (OUT - Q) : END);
  const q = replicated ? END : Q;
  const problem = makeProblem(type, 19, cols, tokens);
  packAll(type, target, problem, memory.buffer, W, CODEBOOK);
  new Float32Array(memory.buffer).set(problem.x, X / 4);
  const blockBytes = activationBlockBytes(replicated, 16);
  const quantize = quantizeActivationsKernel({
    name: `quantize.${packing.activationSpan}`,
    span: packing.activationSpan,
    replicated,
    target,
  });
  const spans = blocks / packing.activationSpan;
  const calls: CheckedCall[] = [
    { kernel: quantize, memory: memory.slice(), args: [X, q, spans, blockBytes], regions: floats },
  ];
  const few = inAllShapes.includes(type) ? shapes : shapes.slice(0, 3);
  for (const { order, rows, tokens: width, streams } of few) {
    const name = `matmul.${type}.${rows}x${width}.${order}`;
    const groups = rows / 4;
    if (layout.paired && groups === 1) continue; // half of a pair
    const shape = { name, layout, groups, tokens: width, replicated, order, streams };
    const kernel = blockMatmulKernel(shape);
    if (isRefused(kernel)) continue;
    const own = memory.slice();
    for (let t = 0; t < width; t++) {
      const args = [X + t * cols * 4, q + t * blockBytes, spans, width * blockBytes];
      interpret(quantize, own.buffer, args, arm64Semantics);
    }
    const apart = rowPanelBytes(layout, cols);
    const last = order === "matrix" ? 16 / rows - 1 : 0;
    const weightSpans = blocks / layout.spanBlocks;
    const byName: Readonly<Record<string, number>> = {
      ...{ w: W, x: q, out: OUT, spans: weightSpans, codebook: CODEBOOK, tokenTiles: 1 },
      ...{ tiles: 2 / streams, outStride, apart, outApart: 64, group: last * groups },
    };
    const args = kernel.params.map((param) => byName[param.name!]!);
    calls.push({ kernel, memory: own, args, regions: floats });
  }
  return calls;
}

/** Values of an i32 or f32 parameter by its name; addresses have 8 KiB each. */
const scalars: Readonly<Record<string, number>> = {
  ...{ n: 44, size: 44, groups: 3, eps: 1e-5, factor: 0.37, cap: 30, heads: 3, headDim: 64 },
  ...{ dims: 32, blocks: 1, last: 7, rowBytes: 192, headOffset: 64, scale: 0.125, isNew: 1 },
  ...{ keys: 11, values: 36, decay: 0.9, gain: 0.6, skip: 0.3, channels: 36, states: 12 },
  ...{ queryStride: 272, scoreStride: 180, outStride: 272, groupStride: 1088, fours: 2, rows: 7 },
  ...{ taps: 3, tokens: 7, valueBytes: 144, keyBytes: 48 },
};
/** Kernels whose parameter means something else, or wants another number. */
const special: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  quantize_kv_q8_0: { n: 96 },
  widen_tile_f16: { n: 48 },
};
const regionBytes = 8192;

function elementwiseCase(kernel: Kernel): CheckedCall {
  const random = new Random(kernel.params.length);
  const memory = new Uint8Array((kernel.params.length + 1) * regionBytes);
  const halves = /_f16$/.test(kernel.name) && kernel.name !== "round_f16";
  const args = kernel.params.map(({ name, type }, i) => {
    if (type !== "ptr") return { ...scalars, ...special[kernel.name] }[name!]!;
    const at = i * regionBytes;
    if (name === "table" && /^(attn|kv_widen)_/.test(kernel.name)) {
      new Int32Array(memory.buffer, at, 2).set([1, 0]);
    } else if (halves && name !== "q" && name !== "scores") {
      const words = new Uint16Array(memory.buffer, at, regionBytes / 2);
      words.forEach((_, j) => {
        words[j] = f32ToF16(random.normal());
      });
    } else {
      const values = new Float32Array(memory.buffer, at, regionBytes / 4);
      values.forEach((_, j) => {
        values[j] = random.normal();
      });
    }
    return at;
  });
  return { kernel, memory, args, regions: floats };
}

function floatCases(): CheckedCall[] {
  const random = new Random(3);
  const memory = new Uint8Array(16384);
  const words = new Uint16Array(memory.buffer, 0, 4096);
  words.forEach((_, i) => {
    words[i] = f32ToF16(random.normal()); // as f32 and bf16 they are ordinary numbers, too
  });
  const x = new Float32Array(memory.buffer, 8192, 1024);
  x.forEach((_, i) => {
    x[i] = random.normal();
  });
  return (["f32", "f16", "bf16"] as const).flatMap((weights) => {
    const kernels = [
      ...[1, 2].map((streams) => ({ order: "vector", groups: 4, tokens: 1, streams }) as const),
      ...[2, 4, 6, 8].map((count) => ({ order: "matrix", groups: 2, tokens: count }) as const),
      ...[2, 4, 6].map((count) => ({ order: "matrix", groups: 4, tokens: count }) as const),
    ].map((shape) =>
      floatMatmulKernel({
        ...shape,
        name: `matmul.${weights}.${shape.groups}x${shape.tokens}`,
        weights,
        target,
      }),
    );
    return kernels.map((kernel): CheckedCall => {
      const byName: Readonly<Record<string, number>> = {
        ...{ w: 0, x: 8192, out: 12288, quads: 5, tiles: 2, tokenTiles: 1 },
        ...{ xStride: 96, outStride: 80, apart: 64, outApart: 256 },
      };
      const args = kernel.params.map(({ name }) => byName[name!]!);
      return { kernel, memory: memory.slice(), args, regions: floats };
    });
  });
}

describe.skipIf(arm64Lacks !== undefined)(
  `executed${arm64Lacks === undefined ? "" : ` [${arm64Lacks}]`}`,
  () => {
    test.each(packedTypes())("products of %s", (type) => {
      const calls = productCases(type, false);
      // Those that every type must have, whatever else does not fit: one token, four tokens.
      const known = calls.map(({ kernel }) => kernel.name);
      expect(known).toContain(`matmul.${type}.16x1.vector`);
      expect(known).toContain(`matmul.${type}.8x4.matrix`);
      expect(arm64Differences(calls)).toEqual([]);
    });

    test("activations that are replicated", () => {
      const calls = ["q4_0", "q6_k"].flatMap((type) => productCases(type, true));
      expect(arm64Differences(calls)).toEqual([]);
    });

    test("products of floats", () => {
      expect(arm64Differences(floatCases())).toEqual([]);
    });

    test("kernels that are not products", () => {
      const calls = elementwiseKernels.map((build) => elementwiseCase(build(16)));
      expect(arm64Differences(calls)).toEqual([]);
    });
  },
);
