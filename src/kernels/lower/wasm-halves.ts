// Half floats in WebAssembly, which has no instructions for them: loads and a store of four, as sequences of integer
// instructions. Part of wasm.ts, which has the table of ops; they give the results of base/half.ts.

import type { Reg } from "../ir/kernel.ts";
import type { WasmEmitter } from "./wasm-emit.ts";

/**
 * Half to float: exponent and fraction are shifted to a float's bits, then multiplied by 2^112 to correct the bias of the
 * exponent, which also handles subnormal halves. The exponent of infinities and NaNs is set afterwards.
 */
export function loadF16(l: WasmEmitter, [address]: readonly Reg[], imm: number): void {
  const half = l.scratch("v128", 0);
  l.get(address!);
  l.f.op("v128.load16x4_u", imm);
  l.f.op("local.tee", half);
  l.splatI32(0x7fff);
  l.f.op("v128.and");
  l.f.op("i32.const", 13);
  l.f.op("i32x4.shl");
  l.splatF32(2 ** 112);
  l.f.op("f32x4.mul");
  l.f.op("local.get", half);
  l.splatI32(0x7fff);
  l.f.op("v128.and");
  l.splatI32(0x7bff); // the largest finite half
  l.f.op("i32x4.gt_s");
  l.splatI32(0x7f800000);
  l.f.op("v128.and");
  l.f.op("v128.or");
  l.f.op("local.get", half);
  l.splatI32(0x8000);
  l.f.op("v128.and");
  l.f.op("i32.const", 16);
  l.f.op("i32x4.shl");
  l.f.op("v128.or");
}

/** As above, without infinities and NaNs: sign, exponent and fraction in one shift. */
export function loadF16Finite(l: WasmEmitter, [address]: readonly Reg[], imm: number): void {
  l.get(address!);
  l.f.op("v128.load16x4_s", imm);
  l.f.op("i32.const", 13);
  l.f.op("i32x4.shl");
  l.splatI32(0x8fffe000 | 0);
  l.f.op("v128.and");
  l.splatF32(2 ** 112);
  l.f.op("f32x4.mul");
}

/**
 * Float to half, ties to even, as base/half.ts. Normal results are rounded by an integer addition, subnormal ones by adding
 * 0.5, after which the last bit of a float is the last bit of a half.
 */
export function storeF16(l: WasmEmitter, [address, value]: readonly Reg[], imm: number): void {
  const { f } = l;
  const [magnitude, normal, small, bits] = [0, 1, 2, 3].map((i) => l.scratch("v128", i)) as [
    number,
    number,
    number,
    number,
  ];
  l.get(value!);
  l.splatI32(0x7fffffff);
  f.op("v128.and");
  f.op("local.set", magnitude);
  pushNormalHalves(l, magnitude);
  f.op("local.set", normal);
  pushSmallHalves(l, magnitude);
  f.op("local.set", small);
  // Below 2^-14: small; from 65520 on: infinity, or NaN.
  f.op("local.get", small);
  f.op("local.get", normal);
  l.splatI32(0x38800000);
  f.op("local.get", magnitude);
  f.op("i32x4.gt_s");
  f.op("v128.bitselect");
  f.op("local.set", bits);
  l.splatI32(0x7c00);
  f.op("local.get", bits);
  f.op("local.get", magnitude);
  l.splatI32(0x477fefff);
  f.op("i32x4.gt_s");
  f.op("v128.bitselect");
  f.op("local.get", magnitude);
  l.splatI32(0x7f800000);
  f.op("i32x4.gt_s");
  l.splatI32(0x0200); // a quiet NaN
  f.op("v128.and");
  f.op("v128.or");
  l.get(value!);
  f.op("i32.const", 16);
  f.op("i32x4.shr_u");
  l.splatI32(0x8000);
  f.op("v128.and");
  f.op("v128.or");
  f.op("local.set", bits);
  // Four 16-bit results in 32-bit lanes: narrow (unsigned saturation leaves 0..65535 alone) and store 8 bytes.
  l.get(address!);
  f.op("local.get", bits);
  f.op("local.get", bits);
  f.op("i16x8.narrow_i32x4_u");
  f.op("v128.store64_lane", imm, 0);
}

/** Magnitudes that become normal halves: (m - 0x38000000 + 0xfff + lastKept) >> 13, of their bits. */
function pushNormalHalves(l: WasmEmitter, magnitude: number): void {
  const { f } = l;
  f.op("local.get", magnitude);
  l.splatI32(0x38000000 - 0xfff);
  f.op("i32x4.sub");
  f.op("local.get", magnitude);
  f.op("i32.const", 13);
  f.op("i32x4.shr_u");
  l.splatI32(1);
  f.op("v128.and");
  f.op("i32x4.add");
  f.op("i32.const", 13);
  f.op("i32x4.shr_u");
}

/** Magnitudes that become subnormal: bits(m + 0.5) - bits(0.5). */
function pushSmallHalves(l: WasmEmitter, magnitude: number): void {
  const { f } = l;
  f.op("local.get", magnitude);
  l.splatF32(0.5);
  f.op("f32x4.add");
  l.splatI32(0x3f000000);
  f.op("i32x4.sub");
}
