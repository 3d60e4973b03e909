// Loads the scales and mins of packed weights, and the scale of activations, as IR: the factors of integer sums. The
// caller (dot4.ts, unpack-pairs.ts, tile-scaling.ts) knows their addresses.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { loadUpperHalfCodes, RAISED_SCALE } from "../packed/half-panels.ts";
import { ACTIVATION_FIELDS, type BlockLayout } from "../packed/packed.ts";
import type { ActivationReader } from "./emit-activations.ts";
import type { Place } from "./tile-pointers.ts";

/** The scales of a part of a block. Header and activations' scale are applied to small scales at the span's end. */
export interface Scales {
  readonly scale: Reg<"f32v">;
  readonly min: Reg<"f32v"> | undefined;
  readonly isWhole: boolean;
}

/** Scale and min of a group's rows. A small scale is byte `byte` of each lane, and has no min here. */
export function emitScales(
  k: KernelBuilder,
  layout: BlockLayout,
  [from, at]: Place,
  byte: number,
): Scales {
  if (layout.scales === "halves") {
    const min = layout.hasMin ? loadUpperHalfCodes(k, from, at - 2) : undefined;
    return { scale: loadUpperHalfCodes(k, from, at), min, isWhole: true };
  }
  if (layout.scales === "plain_halves") {
    const min = layout.hasMin ? k.op("f32v.load_f16", [from], at + k.width / 2) : undefined;
    return { scale: k.op("f32v.load_f16", [from], at), min, isWhole: true };
  }
  if (layout.scales === "bfloats") {
    return { scale: k.op("f32v.load_bf16", [from], at), min: undefined, isWhole: true };
  }
  if (layout.scales === "floats") {
    const min = layout.hasMin ? k.op("f32v.load", [from], at + k.width) : undefined;
    return { scale: k.op("f32v.load", [from], at), min, isWhole: true };
  }
  const integer = emitSmallScale(k, layout, k.op("i32v.load", [from], at), byte);
  return { scale: k.op("f32v.from_i32v", [integer]), min: undefined, isWhole: false };
}

/** Byte `byte` of each lane as an integer; only its low nibble, where the high one is a min. */
function emitSmallScale(
  k: KernelBuilder,
  { scales, hasMin }: BlockLayout,
  four: Reg<"i32v">,
  byte: number,
): Reg<"i32v"> {
  if (hasMin) {
    // Scales that have mins are not negative.
    const moved = byte === 0 ? four : k.op("i32v.shr_u", [four], 8 * byte);
    return k.op("i32v.and", [moved, k.op("i32v.const", [], scales === "nibbles" ? 15 : 255)]);
  }
  const top = byte === 3 ? four : k.op("i32v.shl", [four], 24 - 8 * byte);
  return k.op("i32v.shr_s", [top], 24);
}

/** The scale of token t's block; times 2^102, beside coded half floats. */
export function emitActivationScale(
  k: KernelBuilder,
  { scales, halves }: BlockLayout,
  reader: ActivationReader,
  x: Reg<"ptr">,
  t: number,
): Reg<"f32v"> {
  const scale = reader.f32(x, t, ACTIVATION_FIELDS.scale);
  if (scales === "halves" || halves === "hardware") return scale;
  return k.op("f32v.mul", [scale, k.op("f32v.const", [], 1 / RAISED_SCALE)]);
}
