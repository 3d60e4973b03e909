// The x86-64 assembler: operands, and a writer that encodes the instructions of x64-instructions.ts, operands in the order
// of Intel's manual (destination first). It knows nothing of kernels or of the IR.
//
//   const a = new X64Assembler("f");
//   a.op("vpdpbusd", zmm(0), zmm(1), memory(rsi, 64, { broadcast: true }));
//
// Constants lie after the code and are addressed relative to the instruction pointer.

import type { NativeFunction } from "./native-function.ts";
import {
  type Condition,
  conditions,
  type GeneralRow,
  type Instruction,
  rowOf,
  type VectorRow,
} from "./x64-instructions.ts";

export type RegisterKind = "r32" | "r64" | "xmm" | "ymm" | "zmm" | "k" | "tmm";

export interface Register {
  readonly kind: RegisterKind;
  readonly number: number;
}

export interface MemoryOperand {
  readonly kind: "memory";
  /** undefined: relative to the end of the instruction, where `label` is. */
  readonly base: Register | undefined;
  readonly index: Register | undefined;
  readonly scale: 1 | 2 | 4 | 8;
  readonly displacement: number;
  readonly label: Label | undefined;
  /** One 32-bit value for all lanes. */
  readonly broadcast: boolean;
}

export type Operand = Register | MemoryOperand | number;

/** A position in the code. */
export interface Label {
  /** Bytes from the start; undefined until it is bound. */
  at: number | undefined;
}

export const r32 = (number: number): Register => ({ kind: "r32", number });
export const r64 = (number: number): Register => ({ kind: "r64", number });
export const xmm = (number: number): Register => ({ kind: "xmm", number });
export const ymm = (number: number): Register => ({ kind: "ymm", number });
export const zmm = (number: number): Register => ({ kind: "zmm", number });
export const tmm = (number: number): Register => ({ kind: "tmm", number });
export const maskRegister = (number: number): Register => ({ kind: "k", number });

export interface MemoryOptions {
  readonly index?: Register;
  readonly scale?: 1 | 2 | 4 | 8;
  readonly broadcast?: boolean;
}

export function memory(base: Register, displacement = 0, options: MemoryOptions = {}): Operand {
  const { index, scale = 1, broadcast = false } = options;
  return { kind: "memory", base, index, scale, displacement, label: undefined, broadcast };
}

export function memoryAt(label: Label, broadcast = false): Operand {
  const nowhere = { base: undefined, index: undefined, scale: 1, displacement: 0 } as const;
  return { kind: "memory", ...nowhere, label, broadcast };
}

const vectorBytes: Readonly<Record<RegisterKind, number>> = {
  ...{ r32: 0, r64: 0, k: 0, tmm: 0 },
  ...{ xmm: 16, ymm: 32, zmm: 64 },
};

/** No-ops of 1 to 9 bytes, as the manual recommends. */
const nops: readonly (readonly number[])[] = [
  [0x90],
  [0x66, 0x90],
  [0x0f, 0x1f, 0x00],
  [0x0f, 0x1f, 0x40, 0x00],
  [0x0f, 0x1f, 0x44, 0x00, 0x00],
  [0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
  [0x0f, 0x1f, 0x80, 0, 0, 0, 0],
  [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
  [0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
];

const codeAlignment = 64;

interface Constant {
  readonly label: Label;
  readonly bytes: Uint8Array;
}

export class X64Assembler {
  readonly name: string;
  readonly bytes: number[] = [];
  /** Four bytes at `at` that wait for a label; they count from `end`. */
  readonly #fixups: { at: number; end: number; label: Label }[] = [];
  /** By their bytes. */
  readonly #constants = new Map<string, Constant>();

  constructor(name: string) {
    this.name = name;
  }

  op(name: Instruction, ...operands: Operand[]): void {
    const row = rowOf(name);
    if (row.kind === "vector") this.#vector(name, row, operands);
    else this.#general(name, row, operands);
  }

  ret(): void {
    this.bytes.push(0xc3);
  }

  vzeroupper(): void {
    this.bytes.push(0xc5, 0xf8, 0x77);
  }

  tilerelease(): void {
    this.bytes.push(0xc4, 0xe2, 0x78, 0x49, 0xc0);
  }

  /** A constant of 32 bits, sign-extended or zero-extended as the register's kind says, in the shortest way. */
  moveImmediate(to: Register, value: number): void {
    if (to.kind === "r64") this.op("mov", to, value);
    else {
      this.#added([0xb8], to);
      this.#i32(value);
    }
  }

  label(): Label {
    return { at: undefined };
  }

  bind(label: Label): void {
    label.at = this.bytes.length;
  }

  jump(condition: Condition, to: Label): void {
    const code = conditions[condition];
    const near = to.at === undefined ? Number.NaN : to.at - (this.bytes.length + 2);
    if (near >= -128) this.bytes.push(0x70 + code, near & 0xff);
    else {
      this.bytes.push(0x0f, 0x80 + code);
      this.#relative(to, 0);
    }
  }

  /** Fills with no-ops up to the next multiple of `alignment` bytes. */
  align(alignment: number): void {
    let missing = -this.bytes.length & (alignment - 1);
    while (missing > 0) {
      const nop = nops[Math.min(missing, nops.length) - 1]!;
      this.bytes.push(...nop);
      missing -= nop.length;
    }
  }

  /** A label after the code for these bytes, aligned to their number (which is a power of two). */
  constant(bytes: Uint8Array): Label {
    const key = bytes.join();
    const constant = this.#constants.get(key) ?? { label: this.label(), bytes };
    this.#constants.set(key, constant);
    return constant.label;
  }

  finish(): NativeFunction {
    // The longest first: then each is aligned to its length.
    const constants = [...this.#constants.values()];
    for (const { label, bytes } of constants.sort((a, b) => b.bytes.length - a.bytes.length)) {
      while (this.bytes.length % Math.min(bytes.length, codeAlignment) !== 0) this.bytes.push(0xcc);
      this.bind(label);
      this.bytes.push(...bytes);
    }
    const bytes = Uint8Array.from(this.bytes);
    const view = new DataView(bytes.buffer);
    for (const { at, end, label } of this.#fixups) {
      if (label.at === undefined) this.#fail("a label that is used is bound nowhere");
      view.setInt32(at, label.at - end, true);
    }
    return { name: this.name, bytes };
  }

  #general(name: Instruction, row: GeneralRow, operands: readonly Operand[]): void {
    const [first, second, third] = operands;
    const immediate = operands.find((operand) => typeof operand === "number");
    const size = immediate === undefined || isByte(immediate) ? "i8" : "i32";
    const wanted = third !== undefined ? (`rm${size}` as const) : undefined;
    if (wanted && row[wanted]) {
      this.#legacy(row[wanted], first as Register, second!, size === "i8" ? 1 : 4);
      this.#immediate(immediate!, size);
    } else if (typeof second === "number") {
      const short = size === "i8" && row.mi8 !== undefined;
      const opcode = short ? row.mi8 : (row.mi32 ?? this.#noForm(name, operands));
      this.#legacy(opcode, row.digit, first!, short ? 1 : 4, first as Register);
      this.#immediate(second, short ? "i8" : "i32");
    } else if (second === undefined) {
      if (row.o) this.#added(row.o, first as Register);
      else this.#legacy(row.m ?? this.#noForm(name, operands), row.digit, first!, 0);
    } else if (isMemory(second) || !row.mr) {
      this.#legacy(row.rm ?? this.#noForm(name, operands), first as Register, second, 0);
    } else this.#legacy(row.mr, second as Register, first!, 0);
  }

  /** push, pop and the shortest mov: the register is part of the opcode. */
  #added([opcode]: readonly number[], register: Register): void {
    if (register.number >= 8) this.bytes.push(0x41);
    this.bytes.push(opcode! + (register.number & 7));
  }

  /** REX where it is needed, the opcode, the operand bytes. `sized` says how wide, where `reg` is a digit. */
  #legacy(
    opcode: readonly number[],
    reg: Register | number,
    rm: Operand,
    behind: number,
    sized?: Register,
  ): void {
    const number = typeof reg === "number" ? reg : reg.number;
    const { x, b } = extensions(rm);
    const widthFrom = sized ?? (typeof reg === "number" ? rm : reg);
    const wide = isRegister(widthFrom) && widthFrom.kind === "r64";
    const rex = (wide ? 8 : 0) | (number >= 8 ? 4 : 0) | (x << 1) | b;
    if (rex !== 0) this.bytes.push(0x40 | rex);
    this.bytes.push(...opcode);
    this.#modRM(number, rm, 1, behind);
  }

  #vector(name: Instruction, row: VectorRow, operands: readonly Operand[]): void {
    if (operands.length !== row.places.length) this.#noForm(name, operands);
    const at = (place: string): Operand | undefined => operands[row.places.indexOf(place)];
    const reg = (at("r") as Register | undefined)?.number ?? row.digit;
    const v = at("v") as Register | undefined;
    const rm = at("m") ?? xmm(0); // tilezero has none
    const imm = at("i") as number | undefined;
    const registers = operands.filter(isRegister);
    const length = Math.max(16, ...registers.map(({ kind }) => vectorBytes[kind]));
    const isBroadcast = isMemory(rm) && rm.broadcast;
    const needsEvex =
      row.forms === "evex" ||
      length === 64 ||
      isBroadcast ||
      (row.places[0] === "v" && isMemory(rm)) || // shifts read memory in EVEX only
      registers.some(({ number }) => number >= 16);
    if ((needsEvex && row.forms === "vex") || (isBroadcast && !row.broadcast)) {
      this.#noForm(name, operands);
    }
    const behind = imm === undefined ? 0 : 1;
    if (needsEvex) {
      this.#evex(row, length, reg, v?.number ?? 0, rm, isBroadcast);
      this.#modRM(reg, rm, isBroadcast ? 4 : memoryBytes(row, length), behind);
    } else {
      this.#vex(row, length, reg, v?.number ?? 0, rm);
      this.#modRM(reg, rm, 1, behind);
    }
    if (imm !== undefined) this.bytes.push(imm & 0xff);
  }

  #vex(row: VectorRow, length: number, reg: number, v: number, rm: Operand): void {
    const { x, b } = extensions(rm);
    const notR = reg >= 8 ? 0 : 0x80;
    const last = ((~v & 15) << 3) | (length === 32 ? 4 : 0) | row.prefix;
    if (x === 0 && b === 0 && !row.wide && row.map === 1) this.bytes.push(0xc5, notR | last);
    else {
      const second = notR | (x ? 0 : 0x40) | (b ? 0 : 0x20) | row.map;
      this.bytes.push(0xc4, second, (row.wide ? 0x80 : 0) | last);
    }
    this.bytes.push(row.opcode);
  }

  #evex(
    row: VectorRow,
    length: number,
    reg: number,
    v: number,
    rm: Operand,
    isBroadcast: boolean,
  ): void {
    const { b } = extensions(rm);
    const x = isRegister(rm) ? (rm.number >> 4) & 1 : extensions(rm).x;
    const first = (reg & 8 ? 0 : 0x80) | (x ? 0 : 0x40) | (b ? 0 : 0x20) | (reg & 16 ? 0 : 0x10);
    const second = (row.wide ? 0x80 : 0) | ((~v & 15) << 3) | 4 | row.prefix;
    const lengthBits = length === 64 ? 0x40 : length === 32 ? 0x20 : 0;
    const third = lengthBits | (isBroadcast ? 0x10 : 0) | (v & 16 ? 0 : 8);
    this.bytes.push(0x62, first | row.map, second, third, row.opcode);
  }

  /** ModRM, SIB and displacement. Short displacements count in `unit` bytes; `behind` bytes follow the displacement. */
  #modRM(reg: number, rm: Operand, unit: number, behind: number): void {
    const middle = (reg & 7) << 3;
    if (isRegister(rm)) {
      this.bytes.push(0xc0 | middle | (rm.number & 7));
      return;
    }
    const { base, index, scale, displacement, label } = rm as MemoryOperand;
    if (displacement >= 2 ** 31) this.#fail(`displacement ${displacement}, expected below 2^31`);
    if (!base) {
      this.bytes.push(middle | 5);
      this.#relative(label!, behind);
      return;
    }
    const low = base.number & 7;
    const short = displacement / unit;
    const isShort = Number.isInteger(short) && isByte(short);
    // A base of rbp or r13 needs a displacement; rsp and r12 need a SIB byte.
    const mode = displacement === 0 && low !== 5 ? 0 : isShort ? 0x40 : 0x80;
    if (index || low === 4) {
      const scaleBits = Math.log2(scale) << 6;
      this.bytes.push(mode | middle | 4, scaleBits | (((index?.number ?? 4) & 7) << 3) | low);
    } else this.bytes.push(mode | middle | low);
    if (mode === 0x40) this.bytes.push(short & 0xff);
    else if (mode === 0x80) this.#i32(displacement);
  }

  #relative(label: Label, behind: number): void {
    const at = this.bytes.length;
    this.#fixups.push({ at, end: at + 4 + behind, label });
    this.#i32(0);
  }

  #immediate(value: number, size: "i8" | "i32"): void {
    if (size === "i8") this.bytes.push(value & 0xff);
    else this.#i32(value);
  }

  #i32(value: number): void {
    if (value < -(2 ** 31) || value >= 2 ** 32) this.#fail(`${value} does not fit 32 bits`);
    this.bytes.push(value & 0xff, (value >> 8) & 0xff, (value >> 16) & 0xff, (value >>> 24) & 0xff);
  }

  #noForm(name: Instruction, operands: readonly Operand[]): never {
    const kinds = operands.map((operand) => (typeof operand === "number" ? "imm" : operand.kind));
    return this.#fail(`${name} has no form for operands (${kinds.join(", ")})`);
  }

  #fail(what: string): never {
    throw new Error(`${this.name}: ${what}`);
  }
}

function isRegister(operand: Operand): operand is Register {
  return typeof operand !== "number" && operand.kind !== "memory";
}

function isMemory(operand: Operand): operand is MemoryOperand {
  return typeof operand !== "number" && operand.kind === "memory";
}

function isByte(value: number): boolean {
  return value >= -128 && value <= 127;
}

/** The upper bits of an index (or nothing) and of a register or base, for prefixes. */
function extensions(rm: Operand): { x: number; b: number } {
  if (isRegister(rm)) return { x: 0, b: (rm.number >> 3) & 1 };
  const { base, index } = rm as MemoryOperand;
  return { x: ((index?.number ?? 0) >> 3) & 1, b: ((base?.number ?? 0) >> 3) & 1 };
}

function memoryBytes({ memory }: VectorRow, length: number): number {
  if (typeof memory === "number") return memory;
  return memory === "whole" ? length : memory === "half" ? length / 2 : length / 4;
}
