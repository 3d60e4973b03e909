// Kernels that are not matmuls, as machine code: with vectors as wide as the target's, or half as wide, where all sizes that a
// kernel is called with are whole vectors. Otherwise, or where the lowering refuses it, a kernel stays WebAssembly.

import type { Kernel } from "../../../kernels/ir/kernel.ts";
import { elementwiseKernels, widestVectors } from "../../../kernels/ops/elementwise-table.ts";
import type { NativeKernels } from "./native.ts";

export type NativeCompiler = Pick<NativeKernels, "target" | "lower">;

type Maker = (typeof elementwiseKernels)[number];
let makersByName: ReadonlyMap<string, Maker> | undefined;

function makerOf(name: string): Maker | undefined {
  makersByName ??= new Map(elementwiseKernels.map((make) => [make(16).name, make]));
  return makersByName.get(name);
}

/** The kernel for the widest vectors that all these sizes are multiples of; a sentence: why it has no machine code. */
export function nativeElementwise(
  { target, lower }: NativeCompiler,
  name: string,
  counts: readonly number[],
): Kernel | string {
  const make = makerOf(name);
  if (!make) return "not made for this target";
  let reason = "";
  // Only targets with vectors of 64 bytes also have narrower ones.
  for (const width of target.width === 64 ? [64, 32] : [target.width]) {
    const unfit = counts.find((count) => count % (width / 4) !== 0);
    if (unfit !== undefined) reason = `${unfit} values are no multiple of ${width / 4}`;
    else if (width > (widestVectors[name] ?? width)) reason = `not made for ${width} bytes`;
    else {
      const kernel = make(width, target.vectorRegisters);
      const code = lower(kernel);
      if (typeof code !== "string") return kernel;
      reason = code;
    }
  }
  return reason;
}
