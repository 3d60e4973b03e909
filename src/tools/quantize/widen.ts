// Converts half floats to floats and finds the largest magnitude: the step before every quantizer. In WebAssembly,
// some thousands of values at a time; the types' own dequantizers do the rest, and all other types.

import { byName } from "../../base/by-name.ts";
import type { DType } from "../../dtypes/dtype.ts";
import { assembleModule } from "../../kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../../kernels/features.ts";
import { KernelBuilder } from "../../kernels/ir/builder.ts";
import type { Kernel } from "../../kernels/ir/kernel.ts";
import { lowerToWasm } from "../../kernels/lower/wasm.ts";

/** Fills `values` and returns the largest magnitude: infinite or NaN if a value is. */
export type Widen = (source: DType, bytes: Uint8Array, values: Float32Array) => number;

export const plainWiden: Widen = (source, bytes, values) => {
  source.dequantize(bytes, 0, values, 0, values.length / source.blockElems);
  return largestMagnitude(values);
};

/**
 * Without the sign, floats are ordered like their bits, with infinity and NaN above all others; integers compare
 * faster.
 */
export function largestMagnitude(values: Float32Array): number {
  const bits = new Int32Array(values.buffer, values.byteOffset, values.length);
  let largest = 0;
  for (let i = 0; i < bits.length; i++) largest = Math.max(largest, bits[i]! & 0x7fffffff);
  return magnitudeOf(largest);
}

function magnitudeOf(bits: number): number {
  return new Float32Array(Int32Array.of(bits).buffer)[0]!;
}

/** The op that loads four values of a type. */
const loads: Readonly<Record<string, "f32v.load_f16" | "f32v.load_bf16">> = byName({
  f16: "f32v.load_f16",
  bf16: "f32v.load_bf16",
});

const width = 16;
/** Vectors per loop iteration. */
const unrolled = 8;
const turnElems = 4 * unrolled;

/** (from, to, most, turns): `most` receives the largest bits without a sign, one per lane. */
function widenKernel(name: string, load: (typeof loads)[string]): Kernel {
  const k = new KernelBuilder(name, width);
  const from = k.param("ptr", "from");
  const to = k.param("ptr", "to");
  const mostAt = k.param("ptr", "most");
  const turns = k.param("i32", "turns");
  const most = k.variable(k.op("i32v.const", [], 0), "largest");
  k.loop(turns, () => {
    for (let i = 0; i < unrolled; i++) {
      const value = k.op(load, [from], 8 * i);
      k.op("f32v.store", [to, value], width * i);
      const size = k.op("f32v.as_i32v", [k.op("f32v.abs", [value])]);
      k.update(most, "i32v.max_s", [most, size]);
    }
    k.advance(from, 2 * turnElems);
    k.advance(to, 4 * turnElems);
  });
  k.op("i32v.store", [mostAt, most]);
  return k.finish();
}

/** Values at a time: they stay in the caches. */
const atOnce = 1 << 14;
const pageBytes = 65536;
const layout = { most: 0, from: width, to: width + 2 * atOnce };
const pages = Math.ceil((layout.to + 4 * atOnce) / pageBytes);

type WidenKernel = (from: number, to: number, most: number, turns: number) => void;

export function fastWiden(): Widen {
  if (!detectWasmFeatures().simd) return plainWiden;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const limits = { initial: pages, maximum: pages, shared: false, memory64: false };
  const lowered = Object.entries(loads).map(([name, load]) =>
    lowerToWasm(widenKernel(name, load), { relaxed: false, memory64: false }),
  );
  const module = new WebAssembly.Module(assembleModule(lowered, limits));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  const from = new Uint8Array(memory.buffer, layout.from, 2 * atOnce);
  const to = new Float32Array(memory.buffer, layout.to, atOnce);
  const most = new Int32Array(memory.buffer, layout.most, 4);
  return (source, bytes, values) => {
    const kernel = exports[source.name] as WidenKernel | undefined;
    if (!kernel) return plainWiden(source, bytes, values);
    const whole = values.length - (values.length % turnElems);
    let largest = 0;
    for (let at = 0; at < whole; at += atOnce) {
      const count = Math.min(atOnce, whole - at);
      from.set(bytes.subarray(2 * at, 2 * (at + count)));
      kernel(layout.from, layout.to, layout.most, count / turnElems);
      values.set(count === atOnce ? to : to.subarray(0, count), at);
      largest = Math.max(largest, ...most);
    }
    const rest = plainWiden(source, bytes.subarray(2 * whole), values.subarray(whole));
    // A NaN of either is the result.
    return Math.max(magnitudeOf(largest), rest);
  };
}
