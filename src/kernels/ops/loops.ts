// The loop of elementwise kernels: n values, several vectors per round while there are enough of them, then one per round.
// n must be a multiple of the lanes of a vector.

import type { KernelBuilder } from "../ir/builder.ts";
import type { Reg } from "../ir/kernel.ts";

/** Vector registers that are enough for the larger register tiles of the attention kernels. */
export const manyRegisters = 32;

/** A pointer variable that moves through memory, and the bytes that one vector of values takes there. */
export interface Stream {
  readonly pointer: Reg<"ptr">;
  readonly step: number;
}

/** A stream of float32 values that starts at `base`; the parameter itself stays as it is. */
export function stream(k: KernelBuilder, base: Reg<"ptr">, bytesPerValue = 4): Stream {
  return { pointer: k.variable(base), step: bytesPerValue * k.lanes };
}

/**
 * Calls `body(i)` for each vector of the n values; vector i of the round lies i * step bytes after each stream's
 * pointer. Rounds of `unroll` vectors come first, then rounds of one (i = 0).
 */
export function forEachVector(
  k: KernelBuilder,
  n: Reg<"i32">,
  unroll: number,
  streams: readonly Stream[],
  body: (i: number) => void,
): void {
  let left = n;
  for (const vectors of unroll > 1 ? [unroll, 1] : [1]) {
    const perRound = vectors * k.lanes;
    const rounds = k.op("i32.shr_u", [left], Math.log2(perRound));
    k.loop(rounds, () => {
      for (let i = 0; i < vectors; i++) body(i);
      for (const { pointer, step } of streams) k.advance(pointer, vectors * step);
    });
    if (vectors > 1) left = remainder(k, left, rounds, perRound);
  }
}

/** n - rounds * perRound. */
export function remainder(
  k: KernelBuilder,
  n: Reg<"i32">,
  rounds: Reg<"i32">,
  perRound: number,
): Reg<"i32"> {
  return k.op("i32.sub", [n, k.op("i32.mul", [rounds, k.i32(perRound)])]);
}

export function load(k: KernelBuilder, from: Stream, i: number): Reg<"f32v"> {
  return k.op("f32v.load", [from.pointer], i * from.step);
}

export function store(k: KernelBuilder, to: Stream, i: number, value: Reg<"f32v">): void {
  k.op("f32v.store", [to.pointer, value], i * to.step);
}
