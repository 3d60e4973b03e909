// The kernels that measure this machine: one only reads, one only multiplies and adds floats, one only multiplies
// bytes, and with AMX tiles one multiplies bytes there. They are written in the kernel IR and lowered like every other
// kernel, so their speed is the limit of any kernel of this engine here.
//
// The reading kernel alternates between several streams, like the gemv kernels (docs/inside/kernels.md): a single stream
// does not keep the memory busy. The others load nothing in their loops, and have enough independent sums that none
// waits for the one before.

import type { NativeImage } from "../backends/cpu/native/entry.ts";
import type { NativeKernels } from "../backends/cpu/native/native.ts";
import { assembleModule, type WasmMemory } from "../kernels/asm/wasm.ts";
import { detectWasmFeatures } from "../kernels/features.ts";
import { KernelBuilder } from "../kernels/ir/builder.ts";
import type { Kernel, Reg } from "../kernels/ir/kernel.ts";
import {
  MOST_TILE_BYTES,
  MOST_TILE_ROWS,
  type TileShape,
  threeTiles,
  tileShape,
  tileStride,
} from "../kernels/ir/tiles.ts";
import { lowerToWasm } from "../kernels/lower/wasm.ts";

/** Bytes of a vector in WebAssembly. */
const wasmWidth = 16;
/** Bytes read from each stream per round: a cache line. */
export const STREAM_STEP = 64;
/** Independent sums: more than the latency of a multiply-add times the number issued per cycle. */
const sums = 12;
/** The number of updates of each sum per round. */
const unroll = 4;

/** Operations per round: two for a lane of a float sum, eight for a lane of an integer sum (four products). */
export function f32RoundOps(width: number = wasmWidth): number {
  return sums * unroll * (width / 4) * 2;
}

export function int8RoundOps(width: number = wasmWidth): number {
  return sums * unroll * (width / 4) * 8;
}

/** AMX tiles: each first factor is multiplied with each second factor, into a sum of its own. */
const tileSums: readonly number[] = [0, 1, 2, 3];
const tileFactors: readonly (readonly [number, number])[] = [
  [4, 6],
  [4, 7],
  [5, 6],
  [5, 7],
];
/** The largest tiles: 16 x 64 bytes times 64 x 16 bytes (16 rows of 16 x 4) give 16 x 16 sums. */
const wholeTile: TileShape = { rows: MOST_TILE_ROWS, bytes: MOST_TILE_BYTES };
const tileBytes: number = MOST_TILE_ROWS * MOST_TILE_BYTES;
/** Operations of one tile product: a multiply and an add for each of the 64 bytes of each sum. */
const tileProductOps: number = 2 * MOST_TILE_ROWS * (MOST_TILE_BYTES / 4) * MOST_TILE_BYTES;

export function int8TilesRoundOps(): number {
  return tileSums.length * unroll * tileProductOps;
}

/** Stream counts to try; which is best depends on the machine. */
export const STREAM_COUNTS: readonly number[] = [4, 8];

/** The signature of all of them: (from, out, rounds, stride). */
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

/** Reads `streams` streams that are `stride` bytes apart, STREAM_STEP bytes of each per round. */
export function readKernel(streams: number, width: number = wasmWidth): Kernel {
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
      for (let at = 0; at < STREAM_STEP; at += width) {
        k.update(seen[s]!, "i32v.or", [seen[s]!, k.op("i32v.load", [place], at)]);
      }
      k.advance(place, STREAM_STEP);
    });
  });
  // Stored, so that no compiler removes the reads.
  k.op("i32v.store", [out, seen.reduce((a, b) => k.op("i32v.or", [a, b]))]);
  return k.finish();
}

export const f32Name = "peak.f32";
export const int8Name = "peak.int8";
export const int8TilesName = "peak.int8.tiles";

/** f32RoundOps() operations per round. */
export function f32Kernel(width: number = wasmWidth): Kernel {
  const k = new KernelBuilder(f32Name, width);
  const { out, rounds } = parameters(k);
  // Small enough that the sums stay finite: they stop growing near 2^22.
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

/** int8RoundOps() operations per round. */
export function int8Kernel(width: number = wasmWidth): Kernel {
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

/**
 * int8TilesRoundOps() operations per round, on factors that are loaded once: the 4096 bytes at `from`. Four sums,
 * because a product starts every 16 cycles and takes 52. Nothing is stored: this is machine code, which no compiler
 * optimizes.
 */
export function int8TilesKernel(): Kernel {
  const k = new KernelBuilder(int8TilesName, MOST_TILE_BYTES);
  const { from, rounds } = parameters(k);
  const factors = [...new Set(tileFactors.flat())].sort();
  for (const tile of [...tileSums, ...factors]) {
    k.op("amx.shape", [], tileShape(tile, wholeTile));
  }
  for (const tile of tileSums) k.op("amx.zero", [], tile);
  factors.forEach((tile, i) => {
    k.op("amx.load", [k.plus(from, i * tileBytes)], tileStride(tile, MOST_TILE_BYTES));
  });
  k.loop(rounds, () => {
    for (let u = 0; u < unroll; u++) {
      tileFactors.forEach(([a, b], sum) => {
        k.op("amx.dot4_ss", [], threeTiles(sum, a, b));
      });
    }
  });
  return k.finish();
}

export function measureKernels(width: number = wasmWidth): Kernel[] {
  const reads = STREAM_COUNTS.map((streams) => readKernel(streams, width));
  return [...reads, f32Kernel(width), int8Kernel(width)];
}

/** The kernels as machine code; undefined if one of them has none. */
export function measureImage(native: NativeKernels): NativeImage | undefined {
  const { width, amx } = native.target;
  const kernels = [...measureKernels(width), ...(amx ? [int8TilesKernel()] : [])];
  const code = kernels.map(native.lower);
  const functions = code.filter((made) => typeof made !== "string");
  return functions.length === code.length ? native.link(functions) : undefined;
}

export function measureModule(memory: WasmMemory): WebAssembly.Module {
  const target = { relaxed: detectWasmFeatures().relaxed, memory64: false };
  const functions = measureKernels().map((kernel) => lowerToWasm(kernel, target));
  return new WebAssembly.Module(assembleModule(functions, memory));
}
