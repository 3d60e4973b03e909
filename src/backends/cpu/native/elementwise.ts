// Kernels that are not matmuls, as machine code: with vectors as wide as the target has, or half as wide, where all
// values that a kernel is called for come in whole vectors. One that does not, or that has no code (it needs more registers
// than there are), stays WebAssembly.

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

/** The kernel for the widest vectors that all these sizes are multiples of; a sentence: why it has no code. */
export function nativeElementwise(
  { target, lower }: NativeCompiler,
  name: string,
  counts: readonly number[],
): Kernel | string {
  const make = makerOf(name);
  if (!make) return "not made for this target";
  let reason = "";
  // Only the widest are an instruction set of their own; a target of 16 or 32 bytes has no others.
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
