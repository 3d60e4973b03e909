// The lowering of the kernel IR to WebAssembly: every register becomes a local, every op a few instructions from the table
// below. The engine's compiler does the rest (register allocation, scheduling).
//
// With relaxed SIMD, dot4 is one instruction and fma may fuse; without it, both are sequences.
// wasm-emit.ts has locals and constants, wasm-lanes.ts and wasm-halves.ts the longer sequences.

import type { Instruction, WasmFunction } from "../asm/wasm.ts";
import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import type { OpName } from "../ir/ops.ts";
import { noPairs, noTiles, noZips } from "./machine.ts";
import { type Lower, WasmEmitter, type WasmTarget } from "./wasm-emit.ts";
import { loadF16, loadF16Finite, storeF16 } from "./wasm-halves.ts";
import {
  addPairs,
  lanes32,
  maskedShift,
  reduce,
  storeSums,
  widenedDot2,
  widenedDot4,
  zipBytes,
} from "./wasm-lanes.ts";

export type { WasmTarget } from "./wasm-emit.ts";

export function lowerToWasm(kernel: Kernel, target: WasmTarget): WasmFunction {
  if (kernel.width !== 16) {
    throw new Error(`${kernel.name}: vectors of ${kernel.width} bytes; WebAssembly has 16`);
  }
  const emitter = new WasmEmitter(kernel, target);
  lowerStatements(emitter, kernel.body);
  return emitter.finish();
}

function lowerStatements(l: WasmEmitter, statements: readonly Statement[]): void {
  for (const statement of statements) {
    if (statement.kind === "op") {
      const { op, args, imm, out } = statement;
      l.begin(statement);
      lowerings[op](l, args, imm);
      if (out) l.set(out);
    } else if (statement.kind === "set") {
      l.get(statement.value);
      l.set(statement.variable);
    } else lowerLoop(l, statement);
  }
}

function lowerLoop(l: WasmEmitter, { count, body }: Extract<Statement, { kind: "loop" }>): void {
  const { f } = l;
  const left = f.local("i32");
  l.get(count);
  f.op("local.tee", left);
  f.op("i32.const", 0);
  f.op("i32.gt_s");
  f.op("if");
  f.op("loop");
  lowerStatements(l, body);
  f.op("local.get", left);
  f.op("i32.const", 1);
  f.op("i32.sub");
  f.op("local.tee", left);
  f.op("br_if", 0);
  f.op("end");
  f.op("end");
}

/** Pushes the operands in order, then appends these instructions. */
function simple(...instructions: Instruction[]): Lower {
  return (l, args) => {
    for (const arg of args) l.get(arg);
    for (const instruction of instructions) l.f.op(instruction);
  };
}

/** A load or store: address (and value), then the instruction with its displacement. */
function memory(instruction: Instruction, ...then: Instruction[]): Lower {
  return (l, args, imm) => {
    for (const arg of args) l.get(arg);
    l.f.op(instruction, imm);
    for (const next of then) l.f.op(next);
  };
}

function shift(instruction: Instruction): Lower {
  return (l, [x], imm) => {
    l.get(x!);
    l.f.op("i32.const", imm);
    l.f.op(instruction);
  };
}

/** A cast: the same bits as another type. */
const reinterpret: Lower = (l, [x]) => l.get(x!);

const lowerings: { readonly [O in OpName]: Lower } = {
  "i32.const": (l, _, imm) => l.f.op("i32.const", imm | 0),
  "i32.add": simple("i32.add"),
  "i32.sub": simple("i32.sub"),
  "i32.mul": simple("i32.mul"),
  "i32.shr_u": shift("i32.shr_u"),
  "i32.load": memory("i32.load"),
  "i32.store": memory("i32.store"),
  "f32.const": (l, _, imm) => l.f.op("f32.const", imm),
  "f32.add": simple("f32.add"),
  "f32.sub": simple("f32.sub"),
  "f32.mul": simple("f32.mul"),
  "f32.div": simple("f32.div"),
  "f32.max": simple("f32.max"),
  "f32.sqrt": simple("f32.sqrt"),
  "f32.from_i32": simple("f32.convert_i32_s"),
  "f32.load": memory("f32.load"),
  "f32.store": memory("f32.store"),
  "ptr.add": (l, [base, bytes]) => {
    l.get(base!);
    l.get(bytes!);
    if (l.target.memory64) l.f.op("i64.extend_i32_s");
    l.f.op(l.target.memory64 ? "i64.add" : "i32.add");
  },
  "ptr.add_product": (l, [base, ...factors]) => {
    l.get(base!);
    for (const factor of factors) {
      l.get(factor);
      if (l.target.memory64) l.f.op("i64.extend_i32_s");
    }
    l.f.op(l.target.memory64 ? "i64.mul" : "i32.mul");
    l.f.op(l.target.memory64 ? "i64.add" : "i32.add");
  },
  "ptr.prefetch": () => {}, // there is no instruction for it

  "i8v.load": memory("v128.load"),
  "i32v.load": memory("v128.load"),
  "f32v.load": memory("v128.load"),
  "i8v.store": memory("v128.store"),
  "i32v.store": memory("v128.store"),
  "f32v.store": memory("v128.store"),
  "i8v.load_splat32": memory("v128.load32_splat"),
  "i32v.load_splat": memory("v128.load32_splat"),
  "f32v.load_splat": memory("v128.load32_splat"),
  "f32v.load_f16": loadF16,
  "f32v.load_f16_finite": loadF16Finite,
  "f32v.load_bf16": (l, [address], imm) => {
    l.get(address!);
    l.f.op("v128.load16x4_u", imm);
    l.f.op("i32.const", 16);
    l.f.op("i32x4.shl");
  },
  "f32v.store_f16": storeF16,
  "i32v.load_i8": memory(
    "v128.load32_zero",
    "i16x8.extend_low_i8x16_s",
    "i32x4.extend_low_i16x8_s",
  ),
  "i32v.load_i16": memory("v128.load16x4_s"),

  "i8v.splat": (l, _, imm) => l.constant(new Uint8Array(16).fill(imm)),
  "i32v.splat": simple("i32x4.splat"),
  "i32v.const": (l, _, imm) => l.splatI32(imm),
  "f32v.splat": simple("f32x4.splat"),
  "f32v.const": (l, _, imm) => l.splatF32(imm),
  "f32v.as_i32v": reinterpret,
  "i32v.as_f32v": reinterpret,
  "i32v.as_i8v": reinterpret,
  "i8v.as_i32v": reinterpret,

  "i8v.and": simple("v128.and"),
  "i8v.or": simple("v128.or"),
  "i8v.xor": simple("v128.xor"),
  "i8v.add": simple("i8x16.add"),
  "i8v.sub": simple("i8x16.sub"),
  // On x86 a shift of bytes is several instructions; a shift of 16-bit lanes and a mask are two.
  "i8v.shr_u": maskedShift("i16x8.shr_u", (imm) => 0xff >> imm),
  "i8v.shl": maskedShift("i16x8.shl", (imm) => (0xff << imm) & 0xff),
  "i8v.lookup16": (l, args) =>
    simple(l.target.relaxed ? "i8x16.relaxed_swizzle" : "i8x16.swizzle")(l, args, 0),
  "i8v.zip8_low": zipBytes(1, 0),
  "i8v.zip8_high": zipBytes(1, 8),
  "i8v.zip16_low": zipBytes(2, 0),
  "i8v.zip16_high": zipBytes(2, 8),
  "i32v.dot4": (l, args) =>
    l.target.relaxed
      ? simple("i32x4.relaxed_dot_i8x16_i7x16_add_s")(l, args, 0)
      : widenedDot4(l, args),
  "i32v.dot4_ss": widenedDot4,

  "i8v.as_i16v": reinterpret,
  "i32v.as_i16v": reinterpret,
  "i16v.as_i32v": reinterpret,
  "i16v.add": simple("i16x8.add"),
  "i16v.mul": simple("i16x8.mul"),
  "i16v.shl": shift("i16x8.shl"),
  "i16v.shr_s": shift("i16x8.shr_s"),
  "i16v.dot2": (l, args) =>
    l.target.relaxed ? simple("i16x8.relaxed_dot_i8x16_i7x16_s")(l, args, 0) : widenedDot2(l, args),
  "i32v.dot2": simple("i32x4.dot_i16x8_s"),

  "i32v.add": simple("i32x4.add"),
  "i32v.sub": simple("i32x4.sub"),
  "i32v.mul": simple("i32x4.mul"),
  "i32v.and": simple("v128.and"),
  "i32v.or": simple("v128.or"),
  "i32v.max_s": simple("i32x4.max_s"),
  "i32v.min_s": simple("i32x4.min_s"),
  "i32v.shl": shift("i32x4.shl"),
  "i32v.shr_u": shift("i32x4.shr_u"),
  "i32v.select": (l, [mask, a, b]) => {
    l.get(a!);
    l.get(b!);
    l.get(mask!);
    l.f.op("v128.bitselect");
  },
  "i32v.shr_s": shift("i32x4.shr_s"),
  "i32v.sum": reduce("i32x4.add", "i32x4.extract_lane"),
  "i8v.pack_i32": (l, [a, b, c, d]) => {
    l.get(a!);
    l.get(b!);
    l.f.op("i16x8.narrow_i32x4_s");
    l.get(c!);
    l.get(d!);
    l.f.op("i16x8.narrow_i32x4_s");
    l.f.op("i8x16.narrow_i16x8_s");
  },

  "f32v.add": simple("f32x4.add"),
  "f32v.sub": simple("f32x4.sub"),
  "f32v.mul": simple("f32x4.mul"),
  "f32v.div": simple("f32x4.div"),
  // f32x4.min and max are several instructions on x86, because of NaNs and the signs of zeros.
  "f32v.min": simple("f32x4.pmin"),
  "f32v.max": simple("f32x4.pmax"),
  "f32v.lt": simple("f32x4.lt"),
  "f32v.abs": simple("f32x4.abs"),
  "f32v.neg": simple("f32x4.neg"),
  "f32v.sqrt": simple("f32x4.sqrt"),
  "f32v.fma": (l, args) =>
    l.target.relaxed
      ? simple("f32x4.relaxed_madd")(l, args, 0)
      : mulAdd(l, args[0]!, args[1]!, args[2]!),
  "f32v.swap_pairs": (l, [x]) => {
    l.get(x!);
    l.get(x!);
    l.f.op16("i8x16.shuffle", lanes32(1, 0, 3, 2));
  },
  "f32v.add_pairs": (l, [a, b]) =>
    addPairs(
      l,
      () => l.get(a!),
      () => l.get(b!),
    ),
  "f32v.store_sums": storeSums,
  "i32v.from_f32v": (l, args) =>
    simple(
      "f32x4.nearest",
      l.target.relaxed ? "i32x4.relaxed_trunc_f32x4_s" : "i32x4.trunc_sat_f32x4_s",
    )(l, args, 0),
  "f32v.from_i32v": simple("f32x4.convert_i32x4_s"),
  "f32v.sum": reduce("f32x4.add", "f32x4.extract_lane"),
  "f32v.hmax": reduce("f32x4.max", "f32x4.extract_lane"),
  ...noTiles("WebAssembly"),
  ...noPairs("WebAssembly"),
  ...noZips("WebAssembly"),
};

function mulAdd(l: WasmEmitter, a: Reg, b: Reg, c: Reg): void {
  l.get(a);
  l.get(b);
  l.f.op("f32x4.mul");
  l.get(c);
  l.f.op("f32x4.add");
}
