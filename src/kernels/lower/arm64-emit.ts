// The emitter of the lowering to arm64, below the table of ops: addresses, constants, parameters, loops, and the registers
// that must be saved for the caller. It encodes a MachineKernel (machine.ts); arm64.ts has the ops.
//
// Registers: x0 is the parameter block throughout, x16 and x17 are the emitter's scratch registers, spilled scalars pass
// through x13 to x15, x18 belongs to the platform. v31 is a scratch register in kernels with an op that needs one.

import { Arm64Code, float8, type Label, SP } from "../asm/arm64.ts";
import { type Arm64Instruction, arm64Instructions } from "../asm/arm64-instructions.ts";
import type { NativeFunction } from "../asm/native-function.ts";
import type { MachineInstruction, MachineKernel, MachineParam, Operand } from "./machine.ts";

const BLOCK = 0;
/** For addresses and constants; the second where both are needed at once. */
const SCRATCH = 17;
const SCRATCH2 = 16;
/** The emitter's scratch vector. */
export const SCRATCH_VECTOR = 31;

export const passingRegisters = [13, 14, 15] as const;
/** Caller-saved registers first. */
export const generalRegisters: readonly number[] = [...range(1, 12), ...range(19, 28)];
export const vectorRegisters: readonly number[] = [
  ...range(0, 7),
  ...range(16, 31),
  ...range(8, 15),
];

function range(first: number, last: number): number[] {
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

/** A load or store with its two forms: a displacement that is a multiple of its size, or a small one of any kind. */
export interface MemoryForm {
  readonly scaled: Arm64Instruction;
  readonly unscaled: Arm64Instruction;
  readonly bytes: number;
}

/** The pair instruction that a load or store and that of the next 16 bytes become. */
const pairForms: Partial<Record<Arm64Instruction, Arm64Instruction>> = {
  "ldr.q": "ldp.q",
  "str.q": "stp.q",
};
/** The largest displacement of a pair. */
const MOST_PAIR_DISP = 63 * 16;

/** The load or store that the code ends with. */
interface LastAccess {
  readonly instruction: Arm64Instruction;
  readonly register: number;
  readonly base: number;
  readonly disp: number;
}

type MachineOp = Extract<MachineInstruction, { kind: "op" }>;

interface OpenLoop {
  readonly start: Label;
  readonly end: Label;
}

export class Arm64Emitter {
  /**
   * The estimated cost of the body. Vector arithmetic counts 2 and other instructions 1, since processors issue twice as many
   * instructions per cycle as they have vector units. Each loop counts as 16 rounds.
   */
  weight = 0;
  readonly #code: Arm64Code = new Arm64Code();
  readonly #loops: OpenLoop[] = [];
  /** undefined: the code ends with something else, or with a label. */
  #last: LastAccess | undefined;
  readonly #op: (emitter: Arm64Emitter, op: MachineOp) => void;

  constructor(op: (emitter: Arm64Emitter, op: MachineOp) => void) {
    this.#op = op;
  }

  emit(kernel: MachineKernel): NativeFunction {
    const saved = savedPairs(kernel);
    this.#save(saved);
    this.#params(kernel.params);
    this.weight = 0;
    for (const instruction of kernel.instructions) this.#instruction(instruction);
    this.#restore(saved);
    this.op("ret");
    return this.#code.finish(kernel.name);
  }

  op(name: Arm64Instruction, ...operands: readonly (number | Label)[]): void {
    this.#code.op(name, ...operands);
    this.#last = undefined;
    this.weight += (isVectorWork(name) ? 2 : 1) * 16 ** this.#loops.length;
  }

  /** A load into, or a store of, a register: `disp` bytes from the address in `base`. */
  memory(form: MemoryForm, register: number, base: number, disp: number): void {
    const { scaled, unscaled, bytes } = form;
    if (disp % bytes === 0 && disp <= 4095 * bytes) this.#access(scaled, register, base, disp);
    else if (disp < 256) this.op(unscaled, register, base, disp);
    else {
      this.addTo(SCRATCH2, base, disp);
      this.op(scaled, register, SCRATCH2, 0);
    }
  }

  /** Joins two adjacent accesses to neighbouring memory into a pair, in either order, unless a load changes the address. */
  #access(instruction: Arm64Instruction, register: number, base: number, disp: number): void {
    const last = this.#last;
    const pair = pairForms[instruction];
    const isNext =
      pair !== undefined &&
      last?.instruction === instruction &&
      last.base === base &&
      last.register !== register &&
      Math.abs(last.disp - disp) === 16 &&
      Math.min(last.disp, disp) <= MOST_PAIR_DISP;
    if (!isNext) {
      this.op(instruction, register, base, disp);
      this.#last = { instruction, register, base, disp };
      return;
    }
    const isBehind = disp > last.disp;
    const registers = isBehind ? [last.register, register] : [register, last.register];
    this.#code.words.pop();
    this.weight -= 16 ** this.#loops.length;
    this.op(pair, ...registers, base, Math.min(last.disp, disp));
  }

  /** to = from + bytes, for a displacement (0 to 2^32 - 1) or a signed constant. */
  addTo(to: number, from: number, bytes: number): void {
    const size = Math.abs(bytes);
    if (size >= 2 ** 24) {
      // A displacement of 2^31 or more is not negative: the upper half of the register is 0.
      const register = to === from ? SCRATCH : to;
      this.integer(register, bytes);
      this.op(bytes < 0 ? "add.sxtw" : "add.x", to, from, register);
      return;
    }
    const sign = bytes < 0 ? "sub" : "add";
    const [low, high] = [size & 4095, size >> 12];
    if (high > 0) this.op(`${sign}.imm_lsl12`, to, from, high);
    if (low > 0 || high === 0) this.op(`${sign}.imm`, to, high > 0 ? to : from, low);
  }

  /** A general register with the 32 bits of `value`. */
  integer(to: number, value: number): void {
    const [low, high] = [value & 0xffff, (value >>> 16) & 0xffff];
    if (high === 0xffff && low !== 0xffff) this.op("movn.w", to, low ^ 0xffff);
    else if (low === 0 && high !== 0) this.op("movz.w_lsl16", to, high);
    else {
      this.op("movz.w", to, low);
      if (high !== 0) this.op("movk.w_lsl16", to, high);
    }
  }

  /** The general register of an operand; a constant is moved into `scratch`. */
  general(operand: Operand, scratch: number = SCRATCH): number {
    if (operand.kind === "register") return operand.register;
    if (operand.kind === "memory") throw new Error("arm64: an operand in memory");
    this.integer(scratch, operand.bits);
    return scratch;
  }

  /** As general(), for the other operand of an op with two. */
  secondGeneral(operand: Operand): number {
    return this.general(operand, SCRATCH2);
  }

  /** A vector register with `bits` in every lane. */
  vector(to: number, bits: number): void {
    const made = immediateOf(bits);
    if (made) this.op(made.instruction, to, made.byte);
    else {
      const lanes = Int32Array.of(bits, bits, bits, bits);
      this.op("ldr.q_literal", to, this.#code.constant(new Uint8Array(lanes.buffer)));
    }
  }

  move(to: number, from: number): void {
    if (to !== from) this.op("orr.16b", to, from, from);
  }

  #instruction(instruction: MachineInstruction): void {
    if (instruction.kind === "op") this.#op(this, instruction);
    else if (instruction.kind === "copy") {
      const { registers, to, from } = instruction;
      if (registers === "vector") this.move(to, from);
      else this.op("mov.x", to, from);
    } else if (instruction.kind === "constant") {
      const { registers, to, bits } = instruction;
      if (registers === "vector") this.vector(to, bits);
      else this.integer(to, bits);
    } else if (instruction.kind === "loop") this.#loop(instruction.counter, instruction.count);
    else if (instruction.kind === "end") this.#end(instruction.counter);
    else {
      const { kind, register, offset } = instruction;
      this.op(kind === "reload" ? "ldr.x" : "str.x", register, BLOCK, offset);
    }
  }

  #loop(counter: number, count: Operand): void {
    const loop = { start: this.#code.label(), end: this.#code.label() };
    if (count.kind === "constant") {
      if (count.bits <= 0) this.op("b", loop.end);
      else this.integer(counter, count.bits);
    } else {
      // subs instead of cmp also copies the count.
      this.op("subs.w_imm", counter, this.general(count), 0);
      this.op("b.le", loop.end);
    }
    this.#loops.push(loop);
    this.#place(loop.start);
  }

  #end(counter: number): void {
    const { start, end } = this.#loops.at(-1)!;
    this.op("subs.w_imm", counter, counter, 1);
    this.op("b.ne", start);
    this.#loops.pop();
    this.#place(end);
  }

  #place(label: Label): void {
    this.#code.place(label);
    this.#last = undefined;
  }

  /** Loads the parameters, which are f64, from the block. */
  #params(params: readonly MachineParam[]): void {
    this.op("fcvtzs.x_d", BLOCK, 0);
    // They pass through a vector register that no parameter is assigned to.
    const taken = new Set(params.map(({ to }) => ("register" in to ? to.register : -1)));
    const passing = vectorRegisters.find((register) => !taken.has(register))!;
    if (params.some(({ type }) => type === "ptr")) {
      this.op("ldr.d", passing, BLOCK, 0);
      this.op("fcvtzs.x_d", SCRATCH2, passing);
    }
    for (const { type, from, to } of params) {
      this.op("ldr.d", passing, BLOCK, from);
      if (type === "f32") {
        if (!("register" in to)) throw new Error("arm64: an f32 in the parameter block");
        this.op("fcvt.s_d", to.register, passing);
        continue;
      }
      const register = "register" in to ? to.register : SCRATCH;
      this.op(type === "ptr" ? "fcvtzs.x_d" : "fcvtzs.w_d", register, passing);
      if (type === "ptr") this.op("add.x", register, register, SCRATCH2);
      if ("offset" in to) this.op("str.x", register, BLOCK, to.offset);
    }
  }

  #save(pairs: readonly Pair[]): void {
    pairs.forEach(([kind, first, second], i) => {
      if (i === 0) this.op(`stp.${kind}_pre`, first, second, SP, -16 * pairs.length);
      else this.op(`stp.${kind}`, first, second, SP, 16 * i);
    });
  }

  #restore(pairs: readonly Pair[]): void {
    for (const [i, [kind, first, second]] of [...pairs.entries()].reverse()) {
      if (i === 0) this.op(`ldp.${kind}_post`, first, second, SP, 16 * pairs.length);
      else this.op(`ldp.${kind}`, first, second, SP, 16 * i);
    }
  }
}

type Pair = readonly [kind: "x" | "d", first: number, second: number];

/** The callee-saved registers that are written, in pairs (x19 and x20, v8 and v9, ...): of vectors, the lower halves. */
function savedPairs({ written }: MachineKernel): Pair[] {
  const pairs = (kind: Pair[0], first: number, all: ReadonlySet<number>, count: number): Pair[] =>
    Array.from(
      { length: count / 2 },
      (_, i): Pair => [kind, first + 2 * i, first + 2 * i + 1],
    ).filter(([, one, other]) => all.has(one) || all.has(other));
  return [...pairs("x", 19, written.general, 10), ...pairs("d", 8, written.vector, 8)];
}

/** Whether it computes with vectors, and does not only load or store them. */
function isVectorWork(name: Arm64Instruction): boolean {
  return arm64Instructions[name][1].startsWith("Vd");
}

/** The instruction that makes a constant without a load: a byte, a shifted byte or its complement, or a float. */
function immediateOf(
  bits: number,
): { readonly instruction: Arm64Instruction; readonly byte: number } | undefined {
  const low = bits & 255;
  if (bits === Math.imul(low, 0x01010101)) return { instruction: "movi.16b", byte: low };
  for (const [kind, value] of [
    ["movi", bits],
    ["mvni", ~bits],
  ] as const) {
    for (const [suffix, shift] of shifts) {
      const byte = (value >>> shift) & 255;
      if (byte << shift === value) return { instruction: `${kind}.4s${suffix}`, byte };
    }
  }
  const byte = float8(new Float32Array(Int32Array.of(bits).buffer)[0]!);
  return byte === undefined ? undefined : { instruction: "fmov.4s", byte };
}

const shifts = [
  ["", 0],
  ["_lsl8", 8],
  ["_lsl16", 16],
  ["_lsl24", 24],
] as const;
