// Matmuls as x86-64 machine code: kernels of every packed type and of floats, in many shapes, and the rounding of
// activations leave the same memory as the interpreter, bit for bit. matmul-widths.test.ts checks the interpreter;
// other kernels run on x86-64 in elementwise.test.ts and attention.test.ts.

import { expect, test } from "vitest";
import { f32ToF16 } from "../../src/base/half.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import { blockMatmulKernel } from "../../src/kernels/ops/matmul/dot4.ts";
import { floatMatmulKernel } from "../../src/kernels/ops/matmul/floats.ts";
import { quantizeActivationsKernel } from "../../src/kernels/ops/matmul/quantize-activations.ts";
import {
  activationBlockBytes,
  groupsPerPanel,
  rowPanelBytes,
} from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { type KernelTarget, nativeTargets, type TargetName } from "../../src/kernels/target.ts";
import { Random } from "../support/random.ts";
import type { KernelCall } from "./executable.ts";
import { makeProblem, packAll } from "./matmul-problem.ts";
import { firstDifference } from "./same-memory.ts";
import { describeX64, isRefused, runX64Calls, type X64Isa } from "./x64-runner.ts";

interface Shape {
  readonly order: "vector" | "matrix";
  /** A part of a tile's groups: all, or one. */
  readonly part: "all" | "one";
  readonly tokens: number;
  readonly streams?: number;
  readonly together?: number;
}

const shapes: readonly Shape[] = [
  { order: "vector", part: "all", tokens: 1 },
  { order: "vector", part: "all", tokens: 1, streams: 2 },
  { order: "vector", part: "one", tokens: 2, streams: 2 },
  { order: "matrix", part: "one", tokens: 2 },
  { order: "matrix", part: "one", tokens: 4, together: 4 },
  { order: "matrix", part: "all", tokens: 3 },
  { order: "matrix", part: "one", tokens: 8, together: 4 },
];

const [W, X, Q, OUT, CODEBOOK, END] = [0, 16384, 24576, 90112, 98304, 98432];
const tokens = 8;
const outStride = 48 * 4;

/** Runs them both ways; a sentence for each that differs. */
function differences(calls: readonly KernelCall[], isa: X64Isa): string[] {
  const after = runX64Calls(calls, isa);
  return calls.flatMap(({ kernel, memory, args }, i) => {
    const meant = memory.slice();
    interpret(kernel, meant.buffer, args, isa.semantics);
    const floats = [{ from: 0, to: memory.length, kind: "f32" } as const];
    const difference = firstDifference(after[i]!, meant, floats);
    return difference === undefined ? [] : [`${kernel.name}: ${difference}`];
  });
}

function matmulCalls(type: string, isa: X64Isa, replicated: boolean): KernelCall[] {
  const target = targetOf(isa);
  const packing = packingOf(type)!;
  const layout = layoutFor(packing, target);
  const { activationSpan: span } = packing;
  const cols = span === 8 ? 256 : 64;
  const blocks = cols / 32;
  const memory = new Uint8Array(END);
  const problem = makeProblem(type, 19, cols, tokens);
  packAll(type, target, problem, memory.buffer, W, CODEBOOK);
  new Float32Array(memory.buffer).set(problem.x, X / 4);
  const blockBytes = activationBlockBytes(replicated, target.width);
  const quantize = quantizeActivationsKernel({ name: "quantize", span, replicated, target });
  const args = [X, Q, blocks / span, blockBytes];
  const calls: KernelCall[] = [{ kernel: quantize, memory: memory.slice(), args }];
  shapes.forEach(({ part, ...shape }, index) => {
    const name = `matmul.${type}.${index}`;
    const groups = part === "all" ? groupsPerPanel(layout) : 1;
    const kernel = blockMatmulKernel({ ...shape, name, layout, groups, replicated });
    if (isRefused(kernel, isa)) return;
    const own = memory.slice();
    for (let t = 0; t < shape.tokens; t++) {
      const from = X + t * cols * 4;
      const to = Q + t * blockBytes;
      const parameters = [from, to, blocks / span, shape.tokens * blockBytes];
      interpret(quantize, own.buffer, parameters, isa.semantics);
    }
    const byName: Readonly<Record<string, number>> = {
      ...{ w: W, x: Q, out: OUT, spans: blocks / layout.spanBlocks, codebook: CODEBOOK },
      ...{ tokenTiles: 1, tiles: 2 / (shape.streams ?? 1), outStride, outApart: 64 },
      ...{ apart: rowPanelBytes(layout, cols), group: groupsPerPanel(layout) - groups },
    };
    const of = kernel.params.map((param) => byName[param.name!]!);
    calls.push({ kernel, memory: own, args: of });
  });
  return calls;
}

function floatCalls(isa: X64Isa): KernelCall[] {
  const target = targetOf(isa);
  const random = new Random(3);
  const memory = new Uint8Array(65536);
  // As f32 and bf16 they are ordinary numbers, too.
  const words = Uint16Array.from({ length: 16384 }, () => f32ToF16(random.normal()));
  memory.set(new Uint8Array(words.buffer));
  const x = Float32Array.from({ length: 2048 }, () => random.normal());
  memory.set(new Uint8Array(x.buffer), 32768);
  const byName: Readonly<Record<string, number>> = {
    ...{ w: 0, x: 32768, out: 49152, quads: 5, tiles: 2, tokenTiles: 1 },
    ...{ xStride: 96, outStride: 80, apart: 64, outApart: 256 },
  };
  const all = groupsPerPanel(target);
  return (["f32", "f16", "bf16"] as const).flatMap((weights) =>
    [
      ...[1, 2].map((streams) => ({ order: "vector", groups: all, tokens: 1, streams }) as const),
      ...[2, 3, 5, 8].map((count) => ({ order: "matrix", groups: all, tokens: count }) as const),
    ]
      .map((shape, index) =>
        floatMatmulKernel({ ...shape, name: `matmul.${weights}.${index}`, weights, target }),
      )
      .filter((kernel) => !isRefused(kernel, isa))
      .map((kernel) => ({
        kernel,
        memory: memory.slice(),
        args: kernel.params.map(({ name }) => byName[name!]!),
      })),
  );
}

function targetOf({ isa }: X64Isa): KernelTarget {
  return nativeTargets[`x64-${isa}` as Exclude<TargetName, "wasm">];
}

describeX64((isa) => {
  test.each(packedTypes())("products of %s", (type) => {
    const calls = matmulCalls(type, isa, false);
    const names = calls.map(({ kernel }) => kernel.name);
    // What every type must have, whatever else does not fit: one token, and two.
    expect(names).toEqual(expect.arrayContaining(["quantize", ...needed(type)]));
    expect(differences(calls, isa)).toEqual([]);
  });

  test.each(["q4_0", "q2_k", "q4_k"])("products of %s, replicated activations", (type) => {
    expect(differences(matmulCalls(type, isa, true), isa)).toEqual([]);
  });

  test("products of floats", () => {
    const calls = floatCalls(isa);
    expect(calls.length).toBeGreaterThan(10);
    expect(differences(calls, isa)).toEqual([]);
  });
});

function needed(type: string): string[] {
  return [`matmul.${type}.0`, `matmul.${type}.3`];
}
