// Matmuls with other knobs: a variant's kernels, with every value of every knob and some combinations, leave the same
// memory as the default kernels in the interpreter, bit for bit. As x86-64 machine code if it can be run, otherwise
// interpreted. Rows have an odd number of blocks, so that unrolled loops have a remainder.

import { describe, expect, test } from "vitest";
import type { FloatType } from "../../src/backends/cpu/memory/float-panels.ts";
import { blockKernels, floatKernels } from "../../src/backends/cpu/ops/matmul-kernels.ts";
import { f32ToF16 } from "../../src/base/half.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { type Knobs, knobNames, turned } from "../../src/kernels/knobs.ts";
import { type MatmulVariant, variantById, withKnobs } from "../../src/kernels/matmul-variants.ts";
import { quantizeActivationsKernel } from "../../src/kernels/ops/matmul/quantize-activations.ts";
import { activationBlockBytes, rowPanelBytes } from "../../src/kernels/ops/packed/packed.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { type KernelTarget, nativeTargets } from "../../src/kernels/target.ts";
import { Random } from "../support/random.ts";
import { makeProblem, packAll } from "./matmul-problem.ts";
import { firstDifference } from "./same-memory.ts";
import { isRefused, openX64, runX64, x64Here } from "./x64-runner.ts";

const [W, X, Q, OUT, CODEBOOK, END] = [0, 65536, 81920, 114688, 131072, 131200];
const outStride = 48 * 4;
const semantics = { dot4: "unsigned", fused: true } as const;

const together: readonly Knobs[] = [
  { ahead: 0, unroll: 2, pipelined: true },
  { unroll: 4, order: "interleaved", pipelined: true },
  { ahead: 512, unroll: 2, order: "early" },
];
const all: readonly Knobs[] = [...knobNames.flatMap((name) => turned({}, name)), ...together];

interface Products {
  readonly kernels: (knobs: Knobs) => Kernel[];
  readonly memory: Uint8Array<ArrayBuffer>;
  readonly args: (kernel: Kernel) => number[];
}

const listed = (variants: readonly MatmulVariant[], make: (one: MatmulVariant) => Kernel[]) => {
  const byName = new Map(variants.flatMap(make).map((kernel) => [kernel.name, kernel]));
  return [...byName.values()];
};

/** A matmul with one token in one stream and in two, and with three tokens. */
function variantsOf(target: KernelTarget, knobs: Knobs): MatmulVariant[] {
  const ids = ["2s.compact", target.width === 64 ? "16x3.4s.compact" : "8x3.compact"];
  return ids.map((id) => {
    const one = variantById(id, target)!;
    return withKnobs({ ...one, streams: 2 }, knobs);
  });
}

function blockProducts(type: string, target: KernelTarget): Products {
  const packing = packingOf(type)!;
  const layout = layoutFor(packing, target);
  const span = packing.activationSpan;
  const cols = span === 8 ? 768 : 224;
  const memory = new Uint8Array(END);
  const problem = makeProblem(type, 32, cols, 3);
  packAll(type, target, problem, memory.buffer, W, CODEBOOK);
  new Float32Array(memory.buffer).set(problem.x, X / 4);
  const blockBytes = activationBlockBytes(false, target.width);
  const name = "quantize";
  const quantize = quantizeActivationsKernel({ name, span, replicated: false, target });
  for (let t = 0; t < 3; t++) {
    const parameters = [X + t * cols * 4, Q + t * blockBytes, cols / 32 / span, 3 * blockBytes];
    interpret(quantize, memory.buffer, parameters, semantics);
  }
  const byName: Readonly<Record<string, number>> = {
    ...{ w: W, x: Q, out: OUT, spans: cols / 32 / layout.spanBlocks, codebook: CODEBOOK },
    ...{ tokenTiles: 1, tiles: 1, outStride, outApart: 64, group: 0 },
    apart: rowPanelBytes(layout, cols),
  };
  return {
    kernels: (knobs) =>
      listed(variantsOf(target, knobs), (one) => kernelsIn(blockKernels(type, layout, one))),
    memory,
    args: ({ params }) => params.map(({ name: param }) => byName[param!]!),
  };
}

function floatProducts(type: FloatType, target: KernelTarget): Products {
  const random = new Random(3);
  const memory = new Uint8Array(END);
  // As f32 and bf16 they are ordinary numbers, too.
  const words = Uint16Array.from({ length: 32768 }, () => f32ToF16(random.normal()));
  memory.set(new Uint8Array(words.buffer));
  const x = Float32Array.from({ length: 2048 }, () => random.normal());
  memory.set(new Uint8Array(x.buffer), Q);
  const byName: Readonly<Record<string, number>> = {
    ...{ w: W, x: Q, out: OUT, quads: 7, tiles: 2, tokenTiles: 1 },
    ...{ xStride: 112, outStride, apart: 4096, outApart: 256 },
  };
  return {
    kernels: (knobs) =>
      listed(variantsOf(target, knobs), (one) => kernelsIn(floatKernels(type, target, one))),
    memory,
    args: ({ params }) => params.map(({ name }) => byName[name!]!),
  };
}

function kernelsIn(made: ReturnType<typeof blockKernels>): Kernel[] {
  const { vector, vectorStreams, matrix } = made;
  return [
    ...[vector, vectorStreams],
    ...matrix.flatMap(({ kernel, inStreams }) => (inStreams ? [kernel, inStreams] : [kernel])),
  ];
}

describe.each([nativeTargets["x64-avx512"], nativeTargets["x64-avx2-vnni"]])("$name", (target) => {
  const isa = x64Here.find((one) => `x64-${one.isa}` === target.name);

  /** What a kernel leaves: run by this machine where it can, and interpreted where it cannot. */
  const after = (
    kernels: readonly Kernel[],
    { memory, args }: Products,
  ): Uint8Array<ArrayBuffer>[] => {
    const code = isa && openX64(kernels, isa);
    return kernels.map((kernel) => {
      if (code) return runX64(code.get(kernel)!, kernel, memory, args(kernel));
      const interpreted = memory.slice();
      interpret(kernel, interpreted.buffer, args(kernel), semantics);
      return interpreted;
    });
  };

  const check = (products: Products) => {
    const meant = products.kernels({}).map((kernel) => {
      const memory = products.memory.slice();
      interpret(kernel, memory.buffer, products.args(kernel), semantics);
      return memory;
    });
    let run = 0;
    for (const knobs of all) {
      const kernels = products.kernels(knobs);
      for (const kernel of kernels) verify(kernel);
      const fitting = kernels.flatMap((kernel, index) =>
        isa && isRefused(kernel, isa) ? [] : [{ kernel, meant: meant[index]! }],
      );
      const got = after(
        fitting.map(({ kernel }) => kernel),
        products,
      );
      for (const [index, { kernel, meant: right }] of fitting.entries()) {
        const floats = [{ from: 0, to: END, kind: "f32" } as const];
        expect(firstDifference(got[index]!, right, floats), kernel.name).toBeUndefined();
        run++;
      }
    }
    // Most fit; one or the other needs more registers than there are.
    expect(run).toBeGreaterThan(2 * all.length);
  };

  test.each(["q4_0", "q8_0", "q5_1", "q4_k", "q6_k", "iq4_nl"])("%s, the same bits", (type) => {
    check(blockProducts(type, target));
  });

  test.each(["f32", "f16", "bf16"] as const)("%s, the same bits", (type) => {
    check(floatProducts(type, target));
  });
});
