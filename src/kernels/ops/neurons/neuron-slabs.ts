// The kernel that makes slabs of activations (neuron-rows.ts) of quantized blocks (packed.ts): word by word, since lanes are blocks.
// 64 blocks take 1 us (Neoverse-N1), in TypeScript 9, during which all other threads wait.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import type { Halves } from "../../target.ts";
import { RAISED_SCALE } from "../packed/half-panels.ts";
import {
  ACTIVATION_FIELDS,
  ACTIVATION_QUANTS_AT,
  activationBlockBytes,
  BLOCK_COLS,
} from "../packed/packed.ts";
import { X_SLAB_VECTORS } from "./neuron-rows.ts";

/** (x, out, slabs): of `slabs` slabs of blocks at x, for weights whose quants are `offset` too large. */
export function neuronSlabsKernel(
  name: string,
  width: number,
  halves: Halves,
  offset: number,
): Kernel {
  const k = new KernelBuilder(name, width);
  const x = k.variable(k.param("ptr", "x"), "x_at");
  const out = k.variable(k.param("ptr", "out"), "out_at");
  const slabs = k.param("i32", "slabs");
  const blockBytes = activationBlockBytes(false, 16);
  const isCoded = halves === "coded"; // scales are raised then, and sums not negated
  k.loop(slabs, () => {
    for (let lane = 0; lane < k.lanes; lane++) {
      const from = lane * blockBytes;
      const stored = k.op("f32.load", [x], from + 4 * ACTIVATION_FIELDS.scale);
      const scale = isCoded ? k.op("f32.mul", [stored, k.f32(1 / RAISED_SCALE)]) : stored;
      const sum = k.op("i32.load", [x], from + 4 * ACTIVATION_FIELDS.sum);
      const start = k.op("i32.mul", [sum, k.i32(isCoded ? -offset : offset)]);
      k.op("f32.store", [out, scale], 4 * lane);
      k.op("i32.store", [out, start], k.width + 4 * lane);
      for (let v = 0; v < BLOCK_COLS / 4; v++) {
        const word = k.op("i32.load", [x], from + ACTIVATION_QUANTS_AT + 4 * v);
        k.op("i32.store", [out, word], k.width * (2 + v) + 4 * lane);
      }
    }
    k.advance(x, k.lanes * blockBytes);
    k.advance(out, X_SLAB_VECTORS * k.width);
  });
  return k.finish();
}
