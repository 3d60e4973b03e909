// From the kernel IR to WebAssembly: every register becomes a local, every op a few instructions from the table below.
// The engine's own compiler does the rest (register allocation, scheduling).
//
// With relaxed SIMD, dot4 is one instruction and fma may fuse; without it both are spelled out.
// With 64-bit addresses, parameters that are addresses are f64 and converted where the function starts: JavaScript passes
// an i64 as a BigInt, which it would have to allocate for every call. Below 2^53 every address is exact.

import { type Instruction, WasmFunction, type WasmType } from "../asm/wasm.ts";
import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import { isVector, type OpName, type Type } from "../ir/ops.ts";
import { noPairs, noTiles } from "./machine.ts";

export interface WasmTarget {
  /** Relaxed SIMD: i32x4.relaxed_dot_i8x16_i7x16_add_s and f32x4.relaxed_madd. */
  relaxed: boolean;
  /** 64-bit addresses. */
  memory64: boolean;
}

export function lowerToWasm(kernel: Kernel, target: WasmTarget): WasmFunction {
  if (kernel.width !== 16) {
    throw new Error(`${kernel.name}: vectors of ${kernel.width} bytes; WebAssembly has 16`);
  }
  return new Lowering(kernel, target).run();
}

class Lowering {
  readonly f: WasmFunction;
  readonly target: WasmTarget;
  readonly #kernel: Kernel;
  /** Local of each register, by id. */
  readonly #locals: number[] = [];
  /** Locals that ops use for themselves. */
  readonly #scratch: Partial<Record<WasmType, number[]>> = {};
  /** Local of each vector constant, by its bytes. */
  readonly #constants = new Map<string, number>();

  constructor(kernel: Kernel, target: WasmTarget) {
    this.#kernel = kernel;
    this.target = target;
    this.f = new WasmFunction(
      kernel.name,
      kernel.params.map((param) => (this.#isWide(param) ? "f64" : this.#wasmType(param.type))),
    );
    kernel.params.forEach((param, index) => {
      this.#locals[param.id] = this.#isWide(param) ? this.f.local("i64") : index;
    });
  }

  run(): WasmFunction {
    this.#addresses();
    this.#statements(this.#kernel.body);
    this.#setConstants();
    return this.f;
  }

  #isWide(param: Reg): boolean {
    return param.type === "ptr" && this.target.memory64;
  }

  #addresses(): void {
    this.#kernel.params.forEach((param, index) => {
      if (!this.#isWide(param)) return;
      this.f.op("local.get", index);
      this.f.op("i64.trunc_sat_f64_s");
      this.f.op("local.set", this.#local(param));
    });
  }

  /**
   * Pushes a vector constant. Each is set once, where the function starts: engines make constants where they stand,
   * from several instructions, in a loop too.
   */
  constant(bytes: Uint8Array): void {
    const key = bytes.join();
    const local = this.#constants.get(key) ?? this.f.local("v128");
    this.#constants.set(key, local);
    this.f.op("local.get", local);
  }

  #setConstants(): void {
    const body = this.f.bytes.splice(0);
    for (const [key, local] of this.#constants) {
      this.f.op16("v128.const", key.split(",").map(Number));
      this.f.op("local.set", local);
    }
    for (const byte of body) this.f.bytes.push(byte);
  }

  get(reg: Reg): void {
    this.f.op("local.get", this.#local(reg));
  }

  scratch(type: WasmType, index = 0): number {
    this.#scratch[type] ??= [];
    const list = this.#scratch[type];
    while (list.length <= index) list.push(this.f.local(type));
    return list[index]!;
  }

  #statements(statements: readonly Statement[]): void {
    for (const statement of statements) {
      if (statement.kind === "op") this.#op(statement);
      else if (statement.kind === "set") {
        this.get(statement.value);
        this.f.op("local.set", this.#local(statement.variable));
      } else this.#loop(statement);
    }
  }

  #op({ op, args, imm, out }: Extract<Statement, { kind: "op" }>): void {
    lowerings[op](this, args, imm);
    if (out) this.f.op("local.set", this.#local(out));
  }

  #loop({ count, body }: Extract<Statement, { kind: "loop" }>): void {
    const { f } = this;
    const left = f.local("i32");
    this.get(count);
    f.op("local.tee", left);
    f.op("i32.const", 0);
    f.op("i32.gt_s");
    f.op("if");
    f.op("loop");
    this.#statements(body);
    f.op("local.get", left);
    f.op("i32.const", 1);
    f.op("i32.sub");
    f.op("local.tee", left);
    f.op("br_if", 0);
    f.op("end");
    f.op("end");
  }

  #local(reg: Reg): number {
    this.#locals[reg.id] ??= this.f.local(this.#wasmType(reg.type));
    return this.#locals[reg.id]!;
  }

  #wasmType(type: Type): WasmType {
    if (isVector(type)) return "v128";
    if (type === "ptr") return this.target.memory64 ? "i64" : "i32";
    return type;
  }
}

/** Leaves the op's result on the stack. */
type Lower = (l: Lowering, args: readonly Reg[], imm: number) => void;

/** Operands in order, then these instructions. */
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

/** Nothing to do but to see the same bits as another type. */
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
  "i32v.const": (l, _, imm) => constant(l, Int32Array.of(imm, imm, imm, imm)),
  "f32v.splat": simple("f32x4.splat"),
  "f32v.const": (l, _, imm) => constant(l, Float32Array.of(imm, imm, imm, imm)),
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
  "i32v.dot4": (l, args) =>
    l.target.relaxed
      ? simple("i32x4.relaxed_dot_i8x16_i7x16_add_s")(l, args, 0)
      : widenedDot4(l, args),
  "i32v.dot4_ss": widenedDot4,

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
  // f32x4.min and max are long on x86, because of NaNs and the signs of zeros.
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
};

function mulAdd(l: Lowering, a: Reg, b: Reg, c: Reg): void {
  l.get(a);
  l.get(b);
  l.f.op("f32x4.mul");
  l.get(c);
  l.f.op("f32x4.add");
}

function constant(l: Lowering, lanes: Int32Array<ArrayBuffer> | Float32Array<ArrayBuffer>): void {
  l.constant(new Uint8Array(lanes.buffer));
}

function splatBits(l: Lowering, bits: number): void {
  constant(l, Int32Array.of(bits, bits, bits, bits));
}

function maskedShift(instruction: Instruction, mask: (imm: number) => number): Lower {
  return (l, [x], imm) => {
    l.get(x!);
    l.f.op("i32.const", imm);
    l.f.op(instruction);
    l.constant(new Uint8Array(16).fill(mask(imm)));
    l.f.op("v128.and");
  };
}

/** All lanes into one: halves onto each other, twice. */
function reduce(combine: Instruction, extract: Instruction): Lower {
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
function lanes32(...lanes: number[]): number[] {
  return lanes.flatMap((lane) => [0, 1, 2, 3].map((byte) => lane * 4 + byte));
}

function addPairs(l: Lowering, getA: () => void, getB: () => void): void {
  for (const first of [0, 1]) {
    getA();
    getB();
    l.f.op16("i8x16.shuffle", lanes32(first, first + 2, first + 4, first + 6));
  }
  l.f.op("f32x4.add");
}

function storeSums(l: Lowering, [address, ...vectors]: readonly Reg[], imm: number): void {
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

/** Both operands widened to 16 bits, products of pairs, neighbours added. */
function widenedDot4(l: Lowering, [a, b, acc]: readonly Reg[]): void {
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

/**
 * Half to float: exponent and fraction moved into place, then multiplied by 2^112 to mend the exponent's bias, which is
 * right for subnormal halves too; infinities and NaNs get the exponent that the multiplication cannot reach.
 */
function loadF16(l: Lowering, [address]: readonly Reg[], imm: number): void {
  const half = l.scratch("v128", 0);
  l.get(address!);
  l.f.op("v128.load16x4_u", imm);
  l.f.op("local.tee", half);
  splatBits(l, 0x7fff);
  l.f.op("v128.and");
  l.f.op("i32.const", 13);
  l.f.op("i32x4.shl");
  constant(l, Float32Array.of(2 ** 112, 2 ** 112, 2 ** 112, 2 ** 112));
  l.f.op("f32x4.mul");
  l.f.op("local.get", half);
  splatBits(l, 0x7fff);
  l.f.op("v128.and");
  splatBits(l, 0x7bff); // the largest finite half
  l.f.op("i32x4.gt_s");
  splatBits(l, 0x7f800000);
  l.f.op("v128.and");
  l.f.op("v128.or");
  l.f.op("local.get", half);
  splatBits(l, 0x8000);
  l.f.op("v128.and");
  l.f.op("i32.const", 16);
  l.f.op("i32x4.shl");
  l.f.op("v128.or");
}

/** As above, without the exponent that infinities need: sign, exponent and fraction in one shift. */
function loadF16Finite(l: Lowering, [address]: readonly Reg[], imm: number): void {
  l.get(address!);
  l.f.op("v128.load16x4_s", imm);
  l.f.op("i32.const", 13);
  l.f.op("i32x4.shl");
  splatBits(l, 0x8fffe000 | 0);
  l.f.op("v128.and");
  constant(l, Float32Array.of(2 ** 112, 2 ** 112, 2 ** 112, 2 ** 112));
  l.f.op("f32x4.mul");
}

/**
 * Float to half, nearest even: as base/half.ts does it for one. Normal results round by an integer addition; those that
 * become subnormal halves round in the float unit (adding 0.5 puts the last place of a half where a float's is).
 */
function storeF16(l: Lowering, [address, value]: readonly Reg[], imm: number): void {
  const { f } = l;
  const [magnitude, normal, small, bits] = [0, 1, 2, 3].map((i) => l.scratch("v128", i)) as [
    number,
    number,
    number,
    number,
  ];
  l.get(value!);
  splatBits(l, 0x7fffffff);
  f.op("v128.and");
  f.op("local.set", magnitude);
  // (m - 0x38000000 + 0xfff + lastKept) >> 13
  f.op("local.get", magnitude);
  splatBits(l, 0x38000000 - 0xfff);
  f.op("i32x4.sub");
  f.op("local.get", magnitude);
  f.op("i32.const", 13);
  f.op("i32x4.shr_u");
  splatBits(l, 1);
  f.op("v128.and");
  f.op("i32x4.add");
  f.op("i32.const", 13);
  f.op("i32x4.shr_u");
  f.op("local.set", normal);
  // bits(m + 0.5) - bits(0.5)
  f.op("local.get", magnitude);
  constant(l, Float32Array.of(0.5, 0.5, 0.5, 0.5));
  f.op("f32x4.add");
  splatBits(l, 0x3f000000);
  f.op("i32x4.sub");
  f.op("local.set", small);
  // Below 2^-14: small; from 65520 on: infinity, or NaN.
  f.op("local.get", small);
  f.op("local.get", normal);
  splatBits(l, 0x38800000);
  f.op("local.get", magnitude);
  f.op("i32x4.gt_s");
  f.op("v128.bitselect");
  f.op("local.set", bits);
  splatBits(l, 0x7c00);
  f.op("local.get", bits);
  f.op("local.get", magnitude);
  splatBits(l, 0x477fefff);
  f.op("i32x4.gt_s");
  f.op("v128.bitselect");
  f.op("local.get", magnitude);
  splatBits(l, 0x7f800000);
  f.op("i32x4.gt_s");
  splatBits(l, 0x0200); // a quiet NaN
  f.op("v128.and");
  f.op("v128.or");
  l.get(value!);
  f.op("i32.const", 16);
  f.op("i32x4.shr_u");
  splatBits(l, 0x8000);
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
