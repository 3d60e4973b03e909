// Quantizers of types that only round, in WebAssembly (round-kernels.ts): values go through the kernels' memory some
// thousands at a time. Blocks whose scale is almost zero or infinite are left to the type's own quantizer.

import { byName } from "../../base/by-name.ts";
import type { DType } from "../../dtypes/dtype.ts";
import { assembleModule } from "../../kernels/asm/wasm.ts";
import type { Kernel } from "../../kernels/ir/kernel.ts";
import { lowerToWasm } from "../../kernels/lower/wasm.ts";
import {
  laneConstants,
  roundFiveBits,
  roundFiveBitsFromLeast,
  roundNibbles,
  roundNibblesFromLeast,
  roundSignedBytes,
} from "./round-kernels.ts";

/** Types with a kernel, and whether they search if there is an importance matrix, which kernels do not support. */
const kernels: Readonly<Record<string, { describe(name: string): Kernel; searches: boolean }>> =
  byName({
    q8_0: { describe: roundSignedBytes, searches: false },
    q4_0: { describe: roundNibbles, searches: true },
    q4_1: { describe: roundNibblesFromLeast, searches: true },
    q5_0: { describe: roundFiveBits, searches: true },
    q5_1: { describe: roundFiveBitsFromLeast, searches: true },
  });

/** Blocks at a time: their values stay in the caches. */
const atOnce = 512;
const blockElems = 32;
const pageBytes = 65536;
const xBytes = atOnce * blockElems * 4;
/** A block has at most 34 bytes, and the last store may extend beyond it. */
const outBytes = atOnce * 36;
const laneBytes = 4 * laneConstants.length;
const layout = {
  lanes: 0,
  x: laneBytes,
  out: laneBytes + xBytes,
  reach: laneBytes + xBytes + outBytes,
};
/** Magnitudes and spans between which all operations stay finite and normal. */
const [least, most] = [1e-30, 1e30];

type RoundKernel = (x: number, out: number, reach: number, blocks: number, lanes: number) => void;

export interface Rounder {
  round(values: Float32Array, bytes: Uint8Array, blocks: number): void;
  /** Whether it cannot be used with an importance matrix. */
  readonly searches: boolean;
}

/** undefined if there is no kernel for this type. */
export function roundingQuantizer(dtype: DType): Rounder | undefined {
  const known = kernels[dtype.name];
  return known && { round: compiled(dtype, known.describe), searches: known.searches };
}

function compiled(dtype: DType, describe: (name: string) => Kernel): Rounder["round"] {
  const pages = Math.ceil((layout.reach + 4 * atOnce) / pageBytes);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
  const name = `round.${dtype.name}`;
  const lowered = lowerToWasm(describe(name), { relaxed: false, memory64: false });
  const limits = { initial: pages, maximum: pages, shared: false, memory64: false };
  const module = new WebAssembly.Module(assembleModule([lowered], limits));
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  const kernel = exports[name] as RoundKernel;
  new Int32Array(memory.buffer, layout.lanes, laneConstants.length).set(laneConstants);
  const x = new Float32Array(memory.buffer, layout.x, atOnce * blockElems);
  const out = new Uint8Array(memory.buffer, layout.out, outBytes);
  const reach = new Float32Array(memory.buffer, layout.reach, atOnce);
  const { blockBytes } = dtype;
  return (values, bytes, blocks) => {
    for (let first = 0; first < blocks; first += atOnce) {
      const count = Math.min(atOnce, blocks - first);
      const from = first * blockElems;
      x.set(values.subarray(from, from + count * blockElems));
      kernel(layout.x, layout.out, layout.reach, count, layout.lanes);
      bytes.set(out.subarray(0, count * blockBytes), first * blockBytes);
      for (let block = 0; block < count; block++) {
        const size = reach[block]!;
        if (size > least && size < most) continue;
        const at = first + block;
        dtype.quantize!(values, at * blockElems, bytes, at * blockBytes, 1);
      }
    }
  };
}
