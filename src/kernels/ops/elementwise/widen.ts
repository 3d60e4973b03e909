// widen_f16, widen_bf16, widen_tile_f16: n half floats to float32. For prefill, where a row panel is widened once and then
// used with many tokens: the matmul kernel would convert it again for every token tile.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel } from "../../ir/kernel.ts";
import { HALF_PANEL_HEADER, loadHalfCodes, RAISED_SCALE } from "../packed/half-panels.ts";

const UNROLL = 4;

export const widenF16 = (width: number): Kernel => widen("f16", "f32v.load_f16", width);
/** A row panel of coded half floats (half-panels.ts): (tile, out, n). */
export function widenPanelF16(width: number): Kernel {
  const k = new KernelBuilder("widen_tile_f16", width);
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const n = k.param("i32", "n");
  const factor = k.op("f32v.splat", [
    k.op("f32.mul", [k.op("f32.load", [x]), k.f32(RAISED_SCALE)]),
  ]);
  k.advance(x, HALF_PANEL_HEADER);
  k.loop(k.op("i32.shr_u", [n], Math.log2(UNROLL * k.lanes)), () => {
    for (let i = 0; i < UNROLL; i++) {
      const codes = loadHalfCodes(k, x, (i * width) / 2);
      k.op("f32v.store", [out, k.op("f32v.mul", [codes, factor])], i * width);
    }
    k.advance(x, (UNROLL * width) / 2);
    k.advance(out, UNROLL * width);
  });
  return k.finish();
}

export const widenBf16 = (width: number): Kernel => widen("bf16", "f32v.load_bf16", width);

/** (x, out, n): n is a multiple of 4 vectors' lanes. */
function widen(type: string, load: "f32v.load_f16" | "f32v.load_bf16", width: number): Kernel {
  const k = new KernelBuilder(`widen_${type}`, width);
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const n = k.param("i32", "n");
  k.loop(k.op("i32.shr_u", [n], Math.log2(UNROLL * k.lanes)), () => {
    for (let i = 0; i < UNROLL; i++) {
      k.op("f32v.store", [out, k.op(load, [x], (i * width) / 2)], i * width);
    }
    k.advance(x, (UNROLL * width) / 2);
    k.advance(out, UNROLL * width);
  });
  return k.finish();
}
