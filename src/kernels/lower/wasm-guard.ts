// WebAssembly for guard mode (docs/inside/processors.md): every memory access is checked against the buffers that the kernel was given.
// The engine checks against the whole memory only, where a kernel that leaves its buffer reaches another one.
//
// The checks are on the emitted instructions, not on ops, so a load that reads more than its op says is found. A guarded
// function has more parameters, all f64: for each pointer the range of its buffer (from, to), then the address of a report.
// On an access outside, it writes a report (i32 line of the kernel, i32 bytes, i64 address) and traps.

import { type Instruction, WasmFunction, type WasmType } from "../asm/wasm.ts";
import { linesOf, pointerOrigins } from "../ir/bounds.ts";
import type { Kernel, Statement } from "../ir/kernel.ts";
import type { GuardWasm } from "./wasm-emit.ts";

/** Bytes that an instruction accesses, and the type that it stores. */
const accesses: { readonly [I in Instruction]?: readonly [bytes: number, stored?: WasmType] } = {
  "i32.load": [4],
  "f32.load": [4],
  "i32.store": [4, "i32"],
  "f32.store": [4, "f32"],
  "v128.load": [16],
  "v128.load8x8_s": [8],
  "v128.load16x4_s": [8],
  "v128.load16x4_u": [8],
  "v128.load32_splat": [4],
  "v128.load32_zero": [4],
  "v128.store": [16, "v128"],
  "v128.store64_lane": [8, "v128"],
};

/** Locals with the first and the last address of a buffer. */
interface Limits {
  readonly from: number;
  readonly to: number;
}

/** The parameters that a guarded function has besides the kernel's own. */
function guardParams(kernel: Kernel): WasmType[] {
  const pointers = kernel.params.filter(({ type }) => type === "ptr").length;
  return new Array<WasmType>(2 * pointers + 1).fill("f64");
}

export const guardedFunction: GuardWasm = (kernel, params, memory64) =>
  new GuardedFunction(kernel, params, memory64);

/** A function that emits a check before each access. begin() says which statement the next instructions belong to. */
class GuardedFunction extends WasmFunction {
  readonly #origins: ReadonlyMap<number, readonly number[]>;
  readonly #lines: ReadonlyMap<Statement, number>;
  readonly #memory64: boolean;
  /** The limits of each pointer, by number of the kernel's parameter. */
  readonly #limits = new Map<number, Limits>();
  readonly #report: number;
  readonly #address: number;
  readonly #whole: number;
  readonly #stored = new Map<WasmType, number>();
  #now: { readonly line: number; readonly limits: readonly Limits[] } | undefined;

  constructor(kernel: Kernel, params: readonly WasmType[], memory64: boolean) {
    super(kernel.name, [...params, ...guardParams(kernel)]);
    this.#origins = pointerOrigins(kernel);
    this.#lines = linesOf(kernel);
    this.#memory64 = memory64;
    let next = params.length;
    const converted = (to: WasmType) => {
      const local = this.local(to);
      super.op("local.get", next++);
      super.op("i64.trunc_sat_f64_s");
      if (to === "i32") super.op("i32.wrap_i64");
      super.op("local.set", local);
      return local;
    };
    kernel.params.forEach(({ type }, index) => {
      if (type !== "ptr") return;
      this.#limits.set(index, { from: converted("i64"), to: converted("i64") });
    });
    this.#report = converted(memory64 ? "i64" : "i32");
    this.#address = this.local(memory64 ? "i64" : "i32");
    this.#whole = this.local("i64");
  }

  begin(statement: Statement): void {
    const pointer = statement.kind === "op" ? statement.args[0] : undefined;
    const origins = pointer?.type === "ptr" ? (this.#origins.get(pointer.id) ?? []) : [];
    const limits = origins.map((param) => this.#limits.get(param)!);
    this.#now = { line: this.#lines.get(statement)!, limits };
  }

  override op(name: Instruction, imm: number | bigint = 0, lane?: number): void {
    const access = accesses[name];
    if (access) this.#check(access[0], Number(imm), access[1]);
    super.op(name, imm, lane);
  }

  /** The address is on the stack, and above it the value to store. Both are there afterwards, too. */
  #check(bytes: number, displacement: number, stored: WasmType | undefined): void {
    const value = stored && this.#storedLocal(stored);
    if (value !== undefined) super.op("local.set", value);
    super.op("local.tee", this.#address);
    super.op("local.get", this.#address);
    if (!this.#memory64) super.op("i64.extend_i32_u");
    super.op("i64.const", displacement);
    super.op("i64.add");
    super.op("local.set", this.#whole);
    this.#pushIsOutside(bytes);
    super.op("if");
    this.#writeReport(bytes);
    super.op("unreachable");
    super.op("end");
    if (value !== undefined) super.op("local.get", value);
  }

  /** 1 where the access is in none of the buffers. */
  #pushIsOutside(bytes: number): void {
    super.op("i32.const", 1);
    for (const { from, to } of this.#now!.limits) {
      super.op("local.get", this.#whole);
      super.op("local.get", from);
      super.op("i64.lt_s");
      super.op("local.get", this.#whole);
      super.op("i64.const", bytes);
      super.op("i64.add");
      super.op("local.get", to);
      super.op("i64.gt_s");
      super.op("i32.or");
      super.op("i32.and");
    }
  }

  #writeReport(bytes: number): void {
    for (const [at, value] of [
      [0, this.#now!.line],
      [4, bytes],
    ] as const) {
      super.op("local.get", this.#report);
      super.op("i32.const", value);
      super.op("i32.store", at);
    }
    super.op("local.get", this.#report);
    super.op("local.get", this.#whole);
    super.op("i64.store", 8);
  }

  #storedLocal(type: WasmType): number {
    const local = this.#stored.get(type) ?? this.local(type);
    this.#stored.set(type, local);
    return local;
  }
}
