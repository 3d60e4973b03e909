// The emitter of the lowering to WebAssembly, below the table of ops: a function, locals of registers, scratch locals, and
// constants. Part of wasm.ts.
//
// With 64-bit addresses, parameters that are addresses are f64 and converted where the function starts: JavaScript passes
// an i64 as a BigInt, which it would have to allocate for every call. Below 2^53 every address is exact.

import { WasmFunction, type WasmType } from "../asm/wasm.ts";
import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import { isVector, type Type } from "../ir/ops.ts";

export interface WasmTarget {
  /** Relaxed SIMD: i32x4.relaxed_dot_i8x16_i7x16_add_s and f32x4.relaxed_madd. */
  relaxed: boolean;
  /** 64-bit addresses. */
  memory64: boolean;
  /** Guard mode: makes functions that check every access against the kernel's buffers (wasm-guard.ts). */
  guard?: GuardWasm | undefined;
}

export type GuardWasm = (
  kernel: Kernel,
  params: readonly WasmType[],
  memory64: boolean,
) => WasmFunction & { begin(statement: Statement): void };

/** Leaves the op's result on the stack. */
export type Lower = (l: WasmEmitter, args: readonly Reg[], imm: number) => void;

export class WasmEmitter {
  readonly f: WasmFunction;
  readonly target: WasmTarget;
  /** Says which statement the next instructions belong to. */
  readonly begin: (statement: Statement) => void;
  /** Local of each register, by id. */
  readonly #locals: number[] = [];
  /** Scratch locals of ops. */
  readonly #scratch: Partial<Record<WasmType, number[]>> = {};
  /** Local of each vector constant, by its bytes. */
  readonly #constants = new Map<string, number>();

  constructor(kernel: Kernel, target: WasmTarget) {
    this.target = target;
    const { name, params } = kernel;
    const types = params.map((param) => (this.#isWide(param) ? "f64" : this.#wasmType(param.type)));
    const guarded = target.guard?.(kernel, types, target.memory64);
    this.f = guarded ?? new WasmFunction(name, types);
    this.begin = (statement) => guarded?.begin(statement);
    params.forEach((param, index) => {
      this.#locals[param.id] = this.#isWide(param) ? this.f.local("i64") : index;
    });
    params.forEach((param, index) => {
      if (this.#isWide(param)) this.#convertAddress(param, index);
    });
  }

  /** The function, with its constants set where it starts. */
  finish(): WasmFunction {
    const body = this.f.bytes.splice(0);
    for (const [key, local] of this.#constants) {
      this.f.op16("v128.const", key.split(",").map(Number));
      this.f.op("local.set", local);
    }
    for (const byte of body) this.f.bytes.push(byte);
    return this.f;
  }

  get(reg: Reg): void {
    this.f.op("local.get", this.#local(reg));
  }

  /** Takes the value on the stack. */
  set(reg: Reg): void {
    this.f.op("local.set", this.#local(reg));
  }

  scratch(type: WasmType, index = 0): number {
    this.#scratch[type] ??= [];
    const list = this.#scratch[type];
    while (list.length <= index) list.push(this.f.local(type));
    return list[index]!;
  }

  /**
   * Pushes a vector constant. Each is set once, where the function starts: engines materialize constants in place, with
   * several instructions, even in a loop.
   */
  constant(bytes: Uint8Array): void {
    const key = bytes.join();
    const local = this.#constants.get(key) ?? this.f.local("v128");
    this.#constants.set(key, local);
    this.f.op("local.get", local);
  }

  /** Pushes one integer in all lanes. */
  splatI32(bits: number): void {
    this.constant(new Uint8Array(Int32Array.of(bits, bits, bits, bits).buffer));
  }

  /** Pushes one float in all lanes. */
  splatF32(value: number): void {
    this.constant(new Uint8Array(Float32Array.of(value, value, value, value).buffer));
  }

  #isWide(param: Reg): boolean {
    return param.type === "ptr" && this.target.memory64;
  }

  #convertAddress(param: Reg, index: number): void {
    this.f.op("local.get", index);
    this.f.op("i64.trunc_sat_f64_s");
    this.set(param);
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
