// The arm64 assembler: checks operands and puts them into the words of arm64-instructions.ts, resolves labels, and places
// constants after the code. It knows nothing of kernels or of the IR.
//
//   const code = new Arm64Code();
//   code.op("add.4s", 0, 1, 2);           // add v0.4s, v1.4s, v2.4s
//   code.op("ldr.q", 3, 0, 32);           // ldr q3, [x0, #32]
//   code.op("ldr.q_literal", 4, code.constant(bytes));
//   code.finish("name");
//
// Register 31 is the stack pointer or zero, as the instruction says.

import { type Arm64Instruction, type Arm64Row, arm64Instructions } from "./arm64-instructions.ts";
import type { NativeFunction } from "./native-function.ts";

/** Register 31, where it means the stack pointer, and where it reads as zero. */
export const SP = 31;
export const ZR = 31;

/** A position in the code, perhaps a later one. Made by label() and constant(). */
export class Label {
  /** Index of the word; undefined until it is placed. */
  at: number | undefined;
}

export type Arm64Operand = number | Label;

/** The bit position of a register's number, by its letter in the table. */
const registerFields: Readonly<Record<string, number>> = { d: 0, t: 0, n: 5, u: 10, a: 10, m: 16 };

interface Immediate {
  readonly least: number;
  readonly most: number;
  /** It must be a multiple of this. */
  readonly step?: number;
  /** The bits of a value, where they go. */
  readonly bits: (value: number) => number;
}

const displacement = (bytes: number): Immediate => ({
  least: 0,
  most: 4095 * bytes,
  step: bytes,
  bits: (value) => (value / bytes) << 10,
});

const pairDisplacement = (bytes: number): Immediate => ({
  least: -64 * bytes,
  most: 63 * bytes,
  step: bytes,
  bits: (value) => ((value / bytes) & 0x7f) << 15,
});

/** A left shift of lanes is encoded as lane + shift, a right shift as 2 * lane - shift. */
const shiftLeft = (lane: number): Immediate => ({
  least: 0,
  most: lane - 1,
  bits: (value) => (lane + value) << 16,
});

const shiftRight = (lane: number): Immediate => ({
  least: 1,
  most: lane,
  bits: (value) => (2 * lane - value) << 16,
});

const splitByte: Immediate = {
  least: 0,
  most: 255,
  bits: (value) => ((value >> 5) << 16) | ((value & 31) << 5),
};

/** The immediates of the table. Lane indices are encoded in two ways, so there are two names. */
export const immediates: Readonly<Record<string, Immediate>> = {
  imm12: { least: 0, most: 4095, bits: (value) => value << 10 },
  imm16: { least: 0, most: 0xffff, bits: (value) => value << 5 },
  simm9: { least: -256, most: 255, bits: (value) => (value & 0x1ff) << 12 },
  disp4: displacement(4),
  disp8: displacement(8),
  disp16: displacement(16),
  pair8: pairDisplacement(8),
  pair16: pairDisplacement(16),
  lsr32: { least: 0, most: 31, bits: (value) => value << 16 },
  shl8: shiftLeft(8),
  shl16: shiftLeft(16),
  shl32: shiftLeft(32),
  shr8: shiftRight(8),
  shr16: shiftRight(16),
  shr32: shiftRight(32),
  imm8: splitByte,
  float8: splitByte, // the byte, not the number: see float8()
  byte: { least: 0, most: 15, bits: (value) => value << 11 },
  lane: { least: 0, most: 3, bits: (value) => ((value & 1) << 21) | ((value >> 1) << 11) },
  from: { least: 0, most: 3, bits: (value) => value << 19 },
};

/** Bits of a distance in words, and where they go. */
const labelFields: Readonly<Record<string, readonly [bits: number, at: number]>> = {
  label19: [19, 5],
  label26: [26, 0],
};

/** Finds the operands in a row's text: registers, immediates, lanes, labels. */
export const operandPattern: RegExp =
  /\b[BHSDQVWX]([dnmatu])(?![a-z])|#([a-z]\w*)|\[(lane|from)\]|(label\d+)/g;

type Field =
  | { readonly kind: "register"; readonly at: number }
  | { readonly kind: "immediate"; readonly of: Immediate }
  | { readonly kind: "label"; readonly bits: number; readonly at: number };

function fieldsOf(operands: string): Field[] {
  return [...operands.matchAll(operandPattern)].map(([, register, immediate, lane, label]) => {
    if (register) return { kind: "register", at: registerFields[register]! };
    if (label) {
      const [bits, at] = labelFields[label]!;
      return { kind: "label", bits, at };
    }
    return { kind: "immediate", of: immediates[(immediate ?? lane)!]! };
  });
}

const fields = new Map(
  Object.entries(arm64Instructions).map(([name, [, operands]]) => [name, fieldsOf(operands)]),
);

/** A word that waits for its label. */
interface Fixup {
  readonly word: number;
  readonly label: Label;
  readonly bits: number;
  readonly at: number;
}

export class Arm64Code {
  readonly words: number[] = [];
  readonly #fixups: Fixup[] = [];
  /** By their bytes. */
  readonly #constants = new Map<string, { readonly label: Label; readonly bytes: Uint8Array }>();

  op(name: Arm64Instruction, ...operands: readonly Arm64Operand[]): void {
    const [row]: Arm64Row = arm64Instructions[name];
    const expected = fields.get(name)!;
    if (operands.length !== expected.length) {
      throw new Error(`arm64 ${name}: ${operands.length} operands, expected ${expected.length}`);
    }
    let word: number = row;
    expected.forEach((field, index) => {
      const operand = operands[index]!;
      if (field.kind === "label") this.#fixups.push(this.#fixup(name, field, operand));
      else if (typeof operand !== "number") throw new Error(`arm64 ${name}: a label as a number`);
      else if (field.kind === "register") word |= registerBits(name, operand) << field.at;
      else word |= immediateBits(name, operand, field.of);
    });
    this.words.push(word >>> 0);
  }

  /** A label for a branch; place() sets its position. */
  label(): Label {
    return new Label();
  }

  place(label: Label): void {
    if (label.at !== undefined) throw new Error(`arm64: a label is placed twice`);
    label.at = this.words.length;
  }

  /** 16 bytes that will be placed after the code, each value once. */
  constant(bytes: Uint8Array): Label {
    if (bytes.length !== 16) throw new Error(`arm64: a constant of ${bytes.length} bytes, not 16`);
    const key = bytes.join();
    const known = this.#constants.get(key) ?? { label: new Label(), bytes: bytes.slice() };
    this.#constants.set(key, known);
    return known.label;
  }

  /** The code, then its constants. Nothing can be appended afterwards. */
  finish(name: string): NativeFunction {
    const isPadded = this.#constants.size > 0;
    while (isPadded && this.words.length % 4 !== 0) this.words.push(0);
    for (const { label, bytes } of this.#constants.values()) {
      this.place(label);
      const view = new DataView(bytes.buffer, bytes.byteOffset, 16);
      for (let at = 0; at < 16; at += 4) this.words.push(view.getUint32(at, true));
    }
    for (const fixup of this.#fixups) this.#resolve(name, fixup);
    const code = new DataView(new ArrayBuffer(4 * this.words.length));
    this.words.forEach((word, index) => {
      code.setUint32(4 * index, word, true);
    });
    return { name, bytes: new Uint8Array(code.buffer) };
  }

  #fixup(
    name: Arm64Instruction,
    { bits, at }: { readonly bits: number; readonly at: number },
    operand: Arm64Operand,
  ): Fixup {
    if (!(operand instanceof Label)) throw new Error(`arm64 ${name}: ${operand} is no label`);
    return { word: this.words.length, label: operand, bits, at };
  }

  #resolve(name: string, { word, label, bits, at }: Fixup): void {
    if (label.at === undefined) throw new Error(`${name}: a label was never placed`);
    const distance = label.at - word;
    const limit = 2 ** (bits - 1);
    if (distance < -limit || distance >= limit) {
      throw new Error(`${name}: ${distance} words to a label, at most ${limit} can be reached`);
    }
    const field = (distance & (2 ** bits - 1)) << at;
    this.words[word] = (this.words[word]! | field) >>> 0;
  }
}

function registerBits(name: string, register: number): number {
  if (Number.isInteger(register) && register >= 0 && register < 32) return register;
  throw new Error(`arm64 ${name}: register ${register}, expected 0..31`);
}

function immediateBits(name: string, value: number, of: Immediate): number {
  const { least, most, step = 1, bits } = of;
  if (Number.isInteger(value) && value >= least && value <= most && value % step === 0) {
    return bits(value);
  }
  const steps = step === 1 ? "" : ` in steps of ${step}`;
  throw new Error(`arm64 ${name}: immediate ${value}, expected ${least}..${most}${steps}`);
}

/** The byte of fmov for a number: sign, three bits of exponent, four of fraction; undefined: it has no such encoding. */
export function float8(value: number): number | undefined {
  const magnitude = Math.abs(value);
  const exponent = Math.floor(Math.log2(magnitude));
  const fraction = (magnitude / 2 ** exponent - 1) * 16;
  if (!(exponent >= -3 && exponent <= 4) || !Number.isInteger(fraction)) return undefined;
  return (value < 0 ? 0x80 : 0) | (((exponent + 7) & 7) << 4) | fraction;
}
