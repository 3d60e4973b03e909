// Vector arithmetic with short names, on top of a kernel builder, for search-kernels.ts. Every operation rounds separately, as in
// the plain searches; no two may be fused.

import type { KernelBuilder } from "../../kernels/ir/builder.ts";
import type { Reg } from "../../kernels/ir/kernel.ts";

export type Floats = Reg<"f32v">;
export type Mask = Reg<"i32v">;

/** Bytes of a vector. */
export const width = 16;

export class Lanes {
  readonly k: KernelBuilder;
  constructor(k: KernelBuilder) {
    this.k = k;
  }
  constant(value: number): Floats {
    return this.k.op("f32v.const", [], value);
  }
  add(a: Floats, b: Floats): Floats {
    return this.k.op("f32v.add", [a, b]);
  }
  sub(a: Floats, b: Floats): Floats {
    return this.k.op("f32v.sub", [a, b]);
  }
  mul(a: Floats, b: Floats): Floats {
    return this.k.op("f32v.mul", [a, b]);
  }
  div(a: Floats, b: Floats): Floats {
    return this.k.op("f32v.div", [a, b]);
  }
  lt(a: Floats, b: Floats): Mask {
    return this.k.op("f32v.lt", [a, b]);
  }
  and(a: Mask, b: Mask): Mask {
    return this.k.op("i32v.and", [a, b]);
  }
  select(mask: Mask, a: Floats, b: Floats): Floats {
    const { k } = this;
    const bits = [k.op("f32v.as_i32v", [a]), k.op("f32v.as_i32v", [b])] as const;
    return k.op("i32v.as_f32v", [k.op("i32v.select", [mask, ...bits])]);
  }
  /** variable = mask ? value : variable. */
  take(variable: Floats, mask: Mask, value: Floats): void {
    this.k.set(variable, this.select(mask, value, variable));
  }
  load(at: Reg<"ptr">, vector: number): Floats {
    return this.k.op("f32v.load", [at], width * vector);
  }
  store(at: Reg<"ptr">, vector: number, value: Floats): void {
    this.k.op("f32v.store", [at, value], width * vector);
  }
  /** nearestInt() of float32-math.ts, clamped to low..high. */
  nearest(x: Floats, low: number, high: number): Floats {
    return this.k.op("f32v.from_i32v", [this.nearestInt(x, low, high)]);
  }
  /** The same as integers. */
  nearestInt(x: Floats, low: number, high: number): Mask {
    const { k } = this;
    const pushed = k.op("f32v.as_i32v", [this.add(x, this.constant(12582912))]);
    const bits = k.op("i32v.and", [pushed, k.op("i32v.const", [], 0x7fffff)]);
    const integer = k.op("i32v.sub", [bits, k.op("i32v.const", [], 0x400000)]);
    const above = k.op("i32v.max_s", [integer, k.op("i32v.const", [], low)]);
    return k.op("i32v.min_s", [above, k.op("i32v.const", [], high)]);
  }
}
