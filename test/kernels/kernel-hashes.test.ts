// What code is generated for every target, as one hash for each op and each type of weights. A change to a kernel, a lowering
// or a layout shows here as the lines that changed; a refactoring shows that none did. Where a change is meant:
//   npx vitest run test/kernels/kernel-hashes.test.ts -u
// and the commit says why. No kernel is run: code for all processors is made on any.

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { type FloatType, floatPanelsFor } from "../../src/backends/cpu/memory/float-panels.ts";
import { lowerings } from "../../src/backends/cpu/native/native.ts";
import { blockKernels, floatKernels } from "../../src/backends/cpu/ops/matmul-kernels.ts";
import { assembleModule } from "../../src/kernels/asm/wasm.ts";
import type { Kernel } from "../../src/kernels/ir/kernel.ts";
import { KernelRefused } from "../../src/kernels/lower/machine.ts";
import { lowerToWasm } from "../../src/kernels/lower/wasm.ts";
import { defaultVariant } from "../../src/kernels/matmul-variants.ts";
import { elementwiseKernels, widestVectors } from "../../src/kernels/ops/elementwise-table.ts";
import { quantizeActivationsKernel } from "../../src/kernels/ops/matmul/quantize-activations.ts";
import { packKernelOf } from "../../src/kernels/ops/packed/pack-kernels.ts";
import { layoutFor } from "../../src/kernels/ops/packed/packing.ts";
import { packedTypes, packingOf } from "../../src/kernels/ops/packed/packings.ts";
import { type KernelTarget, nativeTargets, wasmTarget } from "../../src/kernels/target.ts";

type Code = (kernel: Kernel) => Uint8Array;

const page = { initial: 1, maximum: 1, shared: false, memory64: false };
const toWasm =
  ({ relaxed = true, memory64 = false }): Code =>
  (kernel) =>
    assembleModule([lowerToWasm(kernel, { relaxed, memory64 })], { ...page, memory64 });

const onX64 = wasmTarget({ dot4: "i7", vectorRegisters: 16 });
const onArm64 = wasmTarget({ dot4: "signed", vectorRegisters: 32 });
// Spelled out with 16-bit products, the dot product takes all bytes.
const unrelaxed = wasmTarget({ dot4: "words", vectorRegisters: 16 });

/**
 * Those of the conformance table (test/conformance/targets.ts). WebAssembly as x64 and as arm64 run it: the meaning of the dot
 * product differs, and the number of registers.
 */
const targets: readonly { name: string; target: KernelTarget; lower: Code }[] = [
  { name: "wasm on x64", target: onX64, lower: toWasm({}) },
  { name: "wasm on arm64", target: onArm64, lower: toWasm({}) },
  { name: "wasm without relaxed SIMD", target: unrelaxed, lower: toWasm({ relaxed: false }) },
  { name: "wasm with 64-bit addresses", target: onX64, lower: toWasm({ memory64: true }) },
  ...(Object.keys(nativeTargets) as (keyof typeof nativeTargets)[]).map((name) => ({
    name,
    target: nativeTargets[name],
    lower: (kernel: Kernel) => lowerings[name](kernel).bytes,
  })),
];

/** The kernels of a matmul by default: for single tokens, and for tiles of them. */
function matmulKernels(dtype: string, target: KernelTarget): Kernel[] {
  const packing = packingOf(dtype);
  const variants = new Set(
    [1, 2, 4, 12, 16].map((tokens) => defaultVariant(dtype, tokens, target)),
  );
  return [...variants].flatMap((variant) => {
    const made = packing
      ? blockKernels(dtype, layoutFor(packing, target), variant)
      : floatKernels(dtype as FloatType, target, variant);
    const { vector, vectorStreams, vectorHalf = vector, matrix, unpack } = made;
    const tiles = matrix.flatMap(({ kernel, inStreams = kernel }) => [kernel, inStreams]);
    return [vector, vectorStreams, vectorHalf, ...tiles, ...(unpack ? [unpack] : [])];
  });
}

function otherKernels(target: KernelTarget): Kernel[] {
  const widths = target.width === 64 ? [32, 64] : [target.width];
  const elementwise = widths.flatMap((width) =>
    elementwiseKernels
      .filter((make) => width <= (widestVectors[make(16).name] ?? width))
      .map((make) => make(width, target.vectorRegisters)),
  );
  const spans = ([1, 8] as const).map((span) =>
    quantizeActivationsKernel({ name: `quantize_${span * 32}`, span, replicated: false, target }),
  );
  return [...elementwise, ...spans];
}

function packKernelFor(dtype: string, target: KernelTarget): Kernel | undefined {
  if (packingOf(dtype)) return packKernelOf(dtype, target);
  return floatPanelsFor(dtype as FloatType, target).packKernel(dtype, target);
}

/** Of all their code; "refused" where the target has none for one of them. */
function hashOf(kernels: readonly Kernel[], lower: Code): string {
  const hash = createHash("sha256");
  try {
    for (const kernel of kernels) hash.update(lower(kernel));
  } catch (error) {
    if (error instanceof KernelRefused) return "refused";
    throw error;
  }
  return hash.digest("hex").slice(0, 16);
}

test.each(targets)("$name", async ({ name, target, lower }) => {
  const lines: string[] = [];
  const seen = new Set<string>();
  for (const kernel of otherKernels(target)) {
    const of = `${kernel.name} ${kernel.width}`;
    if (!seen.has(of)) lines.push(`${of}: ${hashOf([kernel], lower)}`);
    seen.add(of);
  }
  for (const dtype of [...packedTypes(), "f32", "f16", "bf16"]) {
    const kernels = matmulKernels(dtype, target);
    const byName = new Map(kernels.map((kernel) => [`${kernel.name} ${kernel.width}`, kernel]));
    lines.push(`matmul ${dtype}: ${byName.size} kernels, ${hashOf([...byName.values()], lower)}`);
    const pack = packKernelFor(dtype, target);
    if (pack) lines.push(`${pack.name} ${pack.width}: ${hashOf([pack], lower)}`);
  }
  const file = `data/kernel-hashes/${name.replaceAll(" ", "-")}.txt`;
  await expect(`${lines.toSorted((a, b) => (a < b ? -1 : 1)).join("\n")}\n`).toMatchFileSnapshot(
    file,
  );
});
