// The longer sequences of the lowering to WebAssembly: shifts of bytes, reductions, and dot products of bytes without
// relaxed SIMD. Part of wasm.ts, which has the table of ops.

import type { Instruction } from "../asm/wasm.ts";
import type { Reg } from "../ir/kernel.ts";
import type { Lower, WasmEmitter } from "./wasm-emit.ts";

/** A shift of bytes: a shift of wider lanes, whose foreign bits `mask` clears. */
export function maskedShift(instruction: Instruction, mask: (imm: number) => number): Lower {
  return (l, [x], imm) => {
    l.get(x!);
    l.f.op("i32.const", imm);
    l.f.op(instruction);
    l.constant(new Uint8Array(16).fill(mask(imm)));
    l.f.op("v128.and");
  };
}

/** Reduces all lanes to one: combines halves, twice. */
export function reduce(combine: Instruction, extract: Instruction): Lower {
  return (l, [x]) => {
    const t = l.scratch("v128");
    l.get(x!);
    l.f.op("local.tee", t);
    l.f.op("local.get", t);
    l.f.op("local.get", t);
    l.f.op16("i8x16.shuffle", lanes32(2, 3, 0, 1));
    l.f.op(combine);
    l.f.op("local.tee", t);
    l.f.op("local.get", t);
    l.f.op("local.get", t);
    l.f.op16("i8x16.shuffle", lanes32(1, 0, 3, 2));
    l.f.op(combine);
    l.f.op(extract, 0);
  };
}

/** Byte indices of an i8x16.shuffle that moves 32-bit lanes (0-3 of the first operand, 4-7 of the second). */
export function lanes32(...lanes: number[]): number[] {
  return lanes.flatMap((lane) => [0, 1, 2, 3].map((byte) => lane * 4 + byte));
}

/** Interleaves `size` bytes of two vectors each, from byte `from` on. */
export function zipBytes(size: 1 | 2, from: 0 | 8): Lower {
  const order = Array.from({ length: 16 }, (_, i) => {
    const operand = i % (2 * size) < size ? 0 : 16;
    return operand + from + Math.floor(i / (2 * size)) * size + (i % size);
  });
  return (l, [a, b]) => {
    l.get(a!);
    l.get(b!);
    l.f.op16("i8x16.shuffle", order);
  };
}

export function addPairs(l: WasmEmitter, getA: () => void, getB: () => void): void {
  for (const first of [0, 1]) {
    getA();
    getB();
    l.f.op16("i8x16.shuffle", lanes32(first, first + 2, first + 4, first + 6));
  }
  l.f.op("f32x4.add");
}

export function storeSums(
  l: WasmEmitter,
  [address, ...vectors]: readonly Reg[],
  imm: number,
): void {
  const halves = [l.scratch("v128", 0), l.scratch("v128", 1)];
  halves.forEach((half, i) => {
    const [a, b] = vectors.slice(2 * i, 2 * i + 2);
    addPairs(
      l,
      () => l.get(a!),
      () => l.get(b!),
    );
    l.f.op("local.set", half);
  });
  l.get(address!);
  const [getA, getB] = halves.map((half) => () => l.f.op("local.get", half));
  addPairs(l, getA!, getB!);
  l.f.op("v128.store", imm);
}

/** Widens both operands to 16 bits, multiplies and adds pairs, then adds neighbours. */
export function widenedDot4(l: WasmEmitter, [a, b, acc]: readonly Reg[]): void {
  const [low, high] = [l.scratch("v128", 0), l.scratch("v128", 1)];
  for (const [half, local] of [
    ["low", low],
    ["high", high],
  ] as const) {
    l.get(a!);
    l.f.op(`i16x8.extend_${half}_i8x16_s`);
    l.get(b!);
    l.f.op(`i16x8.extend_${half}_i8x16_s`);
    l.f.op("i32x4.dot_i16x8_s");
    l.f.op("local.set", local);
  }
  l.f.op("local.get", low);
  l.f.op("local.get", high);
  l.f.op16("i8x16.shuffle", lanes32(0, 2, 4, 6));
  l.f.op("local.get", low);
  l.f.op("local.get", high);
  l.f.op16("i8x16.shuffle", lanes32(1, 3, 5, 7));
  l.f.op("i32x4.add");
  l.get(acc!);
  l.f.op("i32x4.add");
}

/** Without relaxed SIMD: sums of the products of the odd bytes and of the even ones. */
export function widenedDot2(l: WasmEmitter, [a, b]: readonly Reg[]): void {
  const wide = (reg: Reg, isOdd: boolean) => {
    l.get(reg);
    if (!isOdd) {
      l.f.op("i32.const", 8);
      l.f.op("i16x8.shl");
    }
    l.f.op("i32.const", 8);
    l.f.op("i16x8.shr_s");
  };
  for (const isOdd of [false, true]) {
    wide(a!, isOdd);
    wide(b!, isOdd);
    l.f.op("i16x8.mul");
  }
  l.f.op("i16x8.add");
}
