// The arithmetic of the CPU backend on this machine (src/kernels/arithmetic.ts), for a device that is to compute the same bits.
// The reference and opt level 2 add up in other orders, and have none.

import type { Arithmetic } from "../../kernels/arithmetic.ts";
import { detectWasmFeatures } from "../../kernels/features.ts";
import { fusesMultiplyAdd } from "../../kernels/fuses.ts";
import { nativeElementwise } from "./native/elementwise.ts";
import type { NativeKernels } from "./native/native.ts";

/** Lanes of WebAssembly's vectors. */
const WASM_LANES = 4;

/** The arithmetic of opt levels 3 and 4. Machine code always fuses: all targets have an instruction for it. */
export function cpuArithmetic(native: NativeKernels | string): Arithmetic {
  if (typeof native === "string") {
    return { fused: fusesMultiplyAdd(detectWasmFeatures()), lanes: () => WASM_LANES };
  }
  return {
    fused: true,
    lanes: (kernel, counts) => {
      const made = nativeElementwise(native, kernel, counts);
      return typeof made === "string" ? WASM_LANES : made.width / 4;
    },
  };
}
