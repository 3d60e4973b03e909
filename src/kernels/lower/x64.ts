// The lowering of the kernel IR to x86-64 machine code: AVX-512 with VNNI (vectors of 64 bytes, or 32), or AVX2 with or
// without VNNI (32 bytes). to-machine.ts assigns registers; here the list of instructions is encoded, one row of x64-ops.ts
// for each op.
//
// An i32 is kept sign-extended in its 64-bit register, so that it can be added to an address.
// The calling convention is that of Linux and macOS (System V); machine.ts describes the argument.

import type { NativeFunction } from "../asm/native-function.ts";
import {
  type Label,
  memory,
  memoryAt,
  type Register,
  r32,
  r64,
  X64Assembler,
  type Operand as X64Operand,
  xmm,
  ymm,
  zmm,
} from "../asm/x64.ts";
import { type Instruction, rowOf, type VectorRow } from "../asm/x64-instructions.ts";
import type { Kernel, Statement } from "../ir/kernel.ts";
import type { OpName } from "../ir/ops.ts";
import { shapeOfTile } from "../ir/tiles.ts";
import type {
  MachineInstruction,
  MachineKernel,
  MachineParam,
  MachineTarget,
  Operand,
} from "./machine.ts";
import { toMachine } from "./to-machine.ts";
import { expandForX64 } from "./x64-expand.ts";
import { ruleOf } from "./x64-ops.ts";
import type { Lowering, Scratch, X64Target } from "./x64-rules.ts";

const [rax, rcx, rdx, rbx, rbp, rsi, rdi] = [0, 1, 2, 3, 5, 6, 7];
const calleeSaved: readonly number[] = [rbx, rbp, 12, 13, 14, 15];

/** The parameter block. */
const block = r64(rdi);
const passing = [rax, rcx, rdx] as const;
/** Caller-saved registers first; rbp and r13 last, since addresses with them are longer. */
const generals: readonly number[] = [rsi, 8, 9, 10, 11, rbx, 14, 15, 12, 13, rbp];

export function lowerToX64(kernel: Kernel, { isa }: X64Target): NativeFunction {
  const isEvex = isa === "avx512";
  const expanded = expandForX64(kernel, isa !== "avx2");
  const needs = Math.max(0, ...opsOf(expanded.body).map((op) => scratchOf(op, isa)));
  const numbers = Array.from({ length: isEvex ? 32 : 16 }, (_, number) => number);
  const scratch = numbers.slice(0, needs);
  const target: MachineTarget = {
    name: `x64 ${isa}`,
    width: isEvex && kernel.width !== 32 ? 64 : 32,
    vectors: numbers.slice(needs),
    generals,
    passing,
    tied: (op) => ruleOf(op, isa).tied,
    readsFirst: (op) => ruleOf(op, isa).readsFirst,
    foldsLoad: (op, index, load) => {
      const { memoryAt: places, foldsSplat } = ruleOf(op, isa);
      return places.includes(index) && (load in wholeLoads || (foldsSplat && load in splatLoads));
    },
    foldsConstant: (op, index) => ruleOf(op, isa).memoryAt.includes(index),
    copiesConstants: true,
  };
  const tiles = tileConfiguration(kernel.body);
  return new KernelLowering(toMachine(expanded, target), isa, scratch, tiles).run();
}

/** The operand of ldtilecfg for a kernel with AMX tiles: palette 1, and the row bytes and rows of each tile. */
function tileConfiguration(body: readonly Statement[]): Uint8Array | undefined {
  const shapes = body.flatMap((statement) =>
    statement.kind === "op" && statement.op === "amx.shape" ? [shapeOfTile(statement.imm)] : [],
  );
  if (shapes.length === 0) return undefined;
  const configuration = new Uint8Array(64);
  configuration[0] = 1;
  for (const { tile, rows, bytes } of shapes) {
    configuration[16 + 2 * tile] = bytes;
    configuration[48 + tile] = rows;
  }
  return configuration;
}

/** Loads that can be a memory operand, and those that can be a broadcast operand. */
const wholeLoads: Partial<Record<OpName, true>> = {
  ...{ "i8v.load": true, "i32v.load": true, "f32v.load": true, "f32.load": true },
};
const splatLoads: Partial<Record<OpName, true>> = {
  ...{ "i8v.load_splat32": true, "i32v.load_splat": true, "f32v.load_splat": true },
};

function scratchOf(op: OpName, isa: X64Target["isa"]): Scratch {
  return ruleOf(op, isa).scratch;
}

function opsOf(statements: readonly Statement[]): OpName[] {
  return statements.flatMap((statement) => {
    if (statement.kind === "loop") return opsOf(statement.body);
    return statement.kind === "op" ? [statement.op] : [];
  });
}

class KernelLowering implements Lowering {
  readonly a: X64Assembler;
  readonly isa: X64Target["isa"];
  /** AVX-512 and its encoding. */
  readonly isEvex: boolean;
  /** Bytes of a vector. */
  readonly width: number;
  readonly #kernel: MachineKernel;
  readonly #scratch: readonly number[];
  readonly #tiles: Uint8Array | undefined;
  /** The labels of the loops around the instruction. */
  readonly #loops: { readonly top: Label; readonly end: Label }[] = [];

  constructor(
    kernel: MachineKernel,
    isa: X64Target["isa"],
    scratch: readonly number[],
    tiles: Uint8Array | undefined,
  ) {
    this.a = new X64Assembler(kernel.name);
    this.isa = isa;
    this.isEvex = isa === "avx512";
    this.width = kernel.width;
    this.#kernel = kernel;
    this.#scratch = scratch;
    this.#tiles = tiles;
  }

  run(): NativeFunction {
    const { a } = this;
    const { params, instructions: list, written } = this.#kernel;
    const saved = calleeSaved.filter((register) => written.general.has(register));
    for (const register of saved) a.op("push", r64(register));
    a.op("vcvttsd2si", block, xmm(0));
    this.#params(params);
    if (this.#tiles) a.op("ldtilecfg", this.constant(this.#tiles));
    list.forEach((instruction, i) => {
      this.#instruction(instruction, list[i + 1]);
    });
    if (this.#tiles) a.tilerelease();
    a.vzeroupper();
    for (const register of saved.reverse()) a.op("pop", r64(register));
    a.ret();
    return a.finish();
  }

  #params(params: readonly MachineParam[]): void {
    const { a } = this;
    const [base, value] = [r64(passing[0]), r64(passing[1])];
    if (params.some(({ type }) => type === "ptr")) a.op("vcvttsd2si", base, memory(block, 0));
    for (const { type, from, to } of params) {
      if (type === "f32") {
        const register = xmm((to as { register: number }).register);
        a.op("vcvtsd2ss", register, register, memory(block, from));
        continue;
      }
      const register = "register" in to ? r64(to.register) : value;
      a.op("vcvttsd2si", register, memory(block, from));
      if (type === "ptr") a.op("add", register, base);
      if ("offset" in to) a.op("mov", memory(block, to.offset), register);
    }
  }

  #instruction(instruction: MachineInstruction, next: MachineInstruction | undefined): void {
    const { a } = this;
    if (instruction.kind === "op") {
      const { op, args, imm, out } = instruction;
      ruleOf(op, this.isa).lower(this, args, imm, out);
    } else if (instruction.kind === "copy") {
      const { registers, to, from } = instruction;
      if (registers === "general") a.op("mov", r64(to), r64(from));
      else a.op("vmovaps", this.vector(to), this.vector(from));
    } else if (instruction.kind === "constant") {
      if (instruction.registers === "general") this.integer(instruction.to, instruction.bits);
      else this.splat(instruction.to, instruction.bits);
    } else if (instruction.kind === "loop") this.#loop(instruction, next);
    else if (instruction.kind === "end") this.#end(instruction.counter);
    else {
      const [register, slot] = [r64(instruction.register), memory(block, instruction.offset)];
      if (instruction.kind === "reload") a.op("mov", register, slot);
      else a.op("mov", slot, register);
    }
  }

  #loop(
    { counter, count }: Extract<MachineInstruction, { kind: "loop" }>,
    next: MachineInstruction | undefined,
  ): void {
    const { a } = this;
    const loop = { top: a.label(), end: a.label() };
    this.#loops.push(loop);
    if (count.kind === "constant") this.integer(counter, count.bits);
    else if (count.kind === "register" && count.register !== counter) {
      a.op("mov", r32(counter), r32(count.register));
    }
    if (count.kind !== "constant" || count.bits <= 0) {
      a.op("test", r32(counter), r32(counter));
      a.jump("le", loop.end);
    }
    if (next?.kind !== "loop") a.align(32);
    a.bind(loop.top);
  }

  #end(counter: number): void {
    const { top, end } = this.#loops.pop()!;
    this.a.op("dec", r32(counter));
    this.a.jump("ne", top);
    this.a.bind(end);
  }

  /** A whole vector register. */
  vector(number: number): Register {
    return this.width === 64 ? zmm(number) : ymm(number);
  }

  /** A scratch general register for an op without a result: spilled results pass through it otherwise. */
  get spare(): number {
    return passing[2];
  }

  /** A scratch vector register of the current op. */
  scratch(index: number): number {
    return this.#scratch[index]!;
  }

  /** The same 32 bits in every lane of a vector, or in an f32. */
  splat(to: number, bits: number): void {
    if (bits === 0) this.zero(to);
    else this.a.op("vpbroadcastd", this.vector(to), memoryAt(this.a.constant(littleEndian(bits))));
  }

  zero(to: number): void {
    if (to < 16) this.a.op("vpxor", xmm(to), xmm(to), xmm(to));
    else this.a.op("vpxord", this.vector(to), this.vector(to), this.vector(to));
  }

  integer(to: number, value: number): void {
    // A move into 32 bits clears the others, and is shorter.
    this.a.moveImmediate(value >= 0 ? r32(to) : r64(to), value);
  }

  /** An operand that may be in memory, as a vector. */
  source(name: Instruction, operand: Operand): X64Operand {
    if (operand.kind === "register") return this.vector(operand.register);
    if (operand.kind === "memory") return this.address(operand);
    const { broadcast, forms } = rowOf(name) as VectorRow;
    const lane = littleEndian(operand.bits);
    if (this.isEvex && broadcast && forms !== "vex") return memoryAt(this.a.constant(lane), true);
    return this.constant(Uint8Array.from({ length: this.width }, (_, i) => lane[i & 3]!));
  }

  /** The same for the lowest lane alone. */
  sourceSingle(operand: Operand): X64Operand {
    if (operand.kind === "register") return xmm(operand.register);
    if (operand.kind === "memory") return this.address(operand);
    return memoryAt(this.a.constant(littleEndian(operand.bits)));
  }

  constant(bytes: Uint8Array): X64Operand {
    return memoryAt(this.a.constant(bytes));
  }

  address({ base, disp, load }: Extract<Operand, { kind: "memory" }>): X64Operand {
    return memory(r64(base), disp, { broadcast: load in splatLoads });
  }
}

function littleEndian(bits: number): Uint8Array {
  return Uint8Array.of(bits, bits >> 8, bits >> 16, bits >> 24);
}
