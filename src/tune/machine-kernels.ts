// The kernels that find out what this machine can do: one that only reads, one that only multiplies and adds floats, one
// that only multiplies bytes. They are written in the kernel IR and lowered as every other kernel is, so what they reach
// is the limit of what any kernel of this engine can reach here.
//
// Reading walks several places in turns, as the one-token products do (docs/kernels.md): a single stream does not keep
// the memory busy. The other two load nothing, and have enough independent sums that none waits for the one before.

import { assembleModule, type WasmMemory } from "../kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../kernels/features.ts";
import { KernelBuilder } from "../kernels/ir/builder.ts";
import type { Kernel, Reg } from "../kernels/ir/kernel.ts";
import { lowerToWasm } from "../kernels/lower/wasm.ts";

/** Bytes of a vector in WebAssembly. */
const width = 16;
/** Vectors that a round reads from each stream: a cache line. */
const vectorsPerStream = 4;
/** Bytes that a round reads from each stream. */
export const STREAM_STEP: number = vectorsPerStream * width;
/** Sums that do not depend on each other: more than the latency of a multiply-add times those begun in a cycle. */
const sums = 12;
/** Times that each sum grows in a round. */
const unroll = 4;

/** Operations of one round: a lane of a float sum has two, one of an integer sum (four products) eight. */
export const F32_ROUND_OPS: number = sums * unroll * (width / 4) * 2;
export const INT8_ROUND_OPS: number = sums * unroll * (width / 4) * 8;

/** Numbers of streams that are tried; which is best depends on the machine. */
export const STREAM_COUNTS: readonly number[] = [4, 8];

/** All of them are called alike: (from, out, rounds, stride). */
export type MeasureKernel = (from: number, out: number, rounds: number, stride: number) => void;

interface Parameters {
  readonly from: Reg<"ptr">;
  readonly out: Reg<"ptr">;
  readonly rounds: Reg<"i32">;
  readonly stride: Reg<"i32">;
}

function parameters(k: KernelBuilder): Parameters {
  return {
    from: k.param("ptr", "from"),
    out: k.param("ptr", "out"),
    rounds: k.param("i32", "rounds"),
    stride: k.param("i32", "stride"),
  };
}

export function readName(streams: number): string {
  return `read.${streams}`;
}

/** Reads `streams` places that lie `stride` bytes apart, STREAM_STEP bytes of each in every round. */
export function readKernel(streams: number): Kernel {
  const k = new KernelBuilder(readName(streams), width);
  const { from, out, rounds, stride } = parameters(k);
  const places: Reg<"ptr">[] = [];
  for (let s = 0; s < streams; s++) {
    places.push(k.variable(s === 0 ? from : k.op("ptr.add", [places[s - 1]!, stride])));
  }
  const zero = k.op("i32v.const", [], 0);
  const seen = places.map(() => k.variable(zero));
  k.loop(rounds, () => {
    places.forEach((place, s) => {
      for (let v = 0; v < vectorsPerStream; v++) {
        k.update(seen[s]!, "i32v.or", [seen[s]!, k.op("i32v.load", [place], v * width)]);
      }
      k.advance(place, STREAM_STEP);
    });
  });
  // Stored, so that no compiler can leave the reading out.
  k.op("i32v.store", [out, seen.reduce((a, b) => k.op("i32v.or", [a, b]))]);
  return k.finish();
}

export const f32Name = "peak.f32";
export const int8Name = "peak.int8";

/** F32_ROUND_OPS operations in every round. */
export function f32Kernel(): Kernel {
  const k = new KernelBuilder(f32Name, width);
  const { out, rounds } = parameters(k);
  // Small enough that the sums stay ordinary numbers for ever: they stop growing near 2^22.
  const factor = k.op("f32v.const", [], 0.5);
  const totals = Array.from({ length: sums }, () => k.variable(k.op("f32v.const", [], 1)));
  k.loop(rounds, () => {
    for (let u = 0; u < unroll; u++) {
      for (const total of totals) k.update(total, "f32v.fma", [factor, factor, total]);
    }
  });
  k.op("f32v.store", [out, totals.reduce((a, b) => k.op("f32v.add", [a, b]))]);
  return k.finish();
}

/** INT8_ROUND_OPS operations in every round. */
export function int8Kernel(): Kernel {
  const k = new KernelBuilder(int8Name, width);
  const { out, rounds } = parameters(k);
  const left = k.op("i8v.splat", [], 3);
  const right = k.op("i8v.splat", [], 5);
  const totals = Array.from({ length: sums }, () => k.variable(k.op("i32v.const", [], 0)));
  k.loop(rounds, () => {
    for (let u = 0; u < unroll; u++) {
      for (const total of totals) k.update(total, "i32v.dot4", [left, right, total]);
    }
  });
  k.op("i32v.store", [out, totals.reduce((a, b) => k.op("i32v.add", [a, b]))]);
  return k.finish();
}

export function measureKernels(): Kernel[] {
  return [...STREAM_COUNTS.map(readKernel), f32Kernel(), int8Kernel()];
}

export function measureModule(memory: WasmMemory): WebAssembly.Module {
  const target = { relaxed: detectWasmFeatures().relaxed, memory64: false };
  const functions = measureKernels().map((kernel) => lowerToWasm(kernel, target));
  return new WebAssembly.Module(assembleModule(functions, memory));
}
