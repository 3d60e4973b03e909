// Executes prepared machine code (lower/machine.ts) with the meanings of the IR's ops: registers that are few and full of
// garbage, operands in memory. A value that lost its register, or a folded load that moved too far, comes out wrong.

import { type AnyMeaning, meanings, type Semantics } from "../../src/kernels/ir/meanings.ts";
import { isVector, type OpName, shapeOf, type Type } from "../../src/kernels/ir/ops.ts";
import { Memory, Vector } from "../../src/kernels/ir/state.ts";
import type {
  MachineInstruction,
  MachineKernel,
  Operand,
} from "../../src/kernels/lower/machine.ts";

const GARBAGE = 0x5a;

export function runMachine(
  kernel: MachineKernel,
  memory: ArrayBufferLike,
  args: readonly number[],
  semantics: Semantics,
): void {
  new Simulator(kernel, memory, semantics).run(args);
}

class Simulator {
  readonly #kernel: MachineKernel;
  readonly #memory: Memory;
  readonly #semantics: Semantics;
  readonly #generals: number[] = new Array(32).fill(Number.NaN);
  readonly #vectors: Vector[];
  /** By offset. */
  readonly #block = new Map<number, number>();

  constructor(kernel: MachineKernel, memory: ArrayBufferLike, semantics: Semantics) {
    this.#kernel = kernel;
    this.#memory = new Memory(kernel.name, memory);
    this.#semantics = semantics;
    this.#vectors = Array.from({ length: 32 }, () => this.#garbage());
  }

  run(args: readonly number[]): void {
    for (const { type, from, to } of this.#kernel.params) {
      const value = args[from / 8 - 1]!;
      if ("offset" in to) this.#block.set(to.offset, value);
      else this.#write(type, to.register, value);
    }
    this.#span(0, this.#kernel.instructions.length);
  }

  #span(from: number, to: number): void {
    const { instructions } = this.#kernel;
    for (let i = from; i < to; i++) {
      const instruction = instructions[i]!;
      if (instruction.kind === "loop") i = this.#loop(instruction, i);
      else this.#step(instruction);
    }
  }

  /** Returns where its end is. */
  #loop({ counter, count }: MachineInstruction & { kind: "loop" }, begin: number): number {
    const end = this.#endOf(begin);
    const times = this.#scalar(count);
    this.#generals[counter] = times;
    if (times <= 0) return end;
    do {
      this.#span(begin + 1, end);
    } while (--this.#generals[counter]! !== 0);
    return end;
  }

  #endOf(begin: number): number {
    let depth = 0;
    for (let i = begin; ; i++) {
      const { kind } = this.#kernel.instructions[i]!;
      if (kind === "loop") depth++;
      if (kind === "end" && --depth === 0) return i;
    }
  }

  #step(instruction: MachineInstruction): void {
    if (instruction.kind === "op") this.#op(instruction);
    else if (instruction.kind === "copy") {
      const { registers, to, from } = instruction;
      if (registers === "general") this.#generals[to] = this.#generals[from]!;
      else this.#vectors[to]!.u8.set(this.#vectors[from]!.u8);
    } else if (instruction.kind === "constant") {
      const { registers, to, bits } = instruction;
      if (registers === "general") this.#generals[to] = bits;
      else this.#vectors[to]!.i32.fill(bits);
    } else if (instruction.kind === "reload") {
      this.#generals[instruction.register] = this.#block.get(instruction.offset)!;
    } else if (instruction.kind === "spill") {
      this.#block.set(instruction.offset, this.#generals[instruction.register]!);
    }
  }

  #op({ op, args, imm, out }: MachineInstruction & { kind: "op" }): void {
    const shape = shapeOf(op);
    const values = args.map((arg, index) => this.#value(shape.args[index]!, arg));
    const result = shape.out && isVector(shape.out) ? this.#garbage() : undefined;
    const scalar = this.#call(op, values, result, imm);
    if (result) this.#vectors[out] = result;
    else if (shape.out) this.#write(shape.out, out, scalar!);
  }

  #call(op: OpName, values: (number | Vector)[], out: Vector | undefined, imm: number) {
    this.#memory.op = op;
    const context = { imm, memory: this.#memory, semantics: this.#semantics };
    return (meanings[op] as AnyMeaning)(values, out, context);
  }

  #value(type: Type, operand: Operand): number | Vector {
    if (!isVector(type) && type !== "f32") return this.#scalar(operand);
    const vector = this.#vector(operand);
    return type === "f32" ? vector.f32[0]! : vector;
  }

  #scalar(operand: Operand): number {
    if (operand.kind === "constant") return operand.bits;
    if (operand.kind === "register") return this.#generals[operand.register]!;
    throw new Error("a scalar in memory");
  }

  #vector(operand: Operand): Vector {
    if (operand.kind === "register") {
      const copy = this.#garbage();
      copy.u8.set(this.#vectors[operand.register]!.u8);
      return copy;
    }
    const vector = this.#garbage();
    if (operand.kind === "constant") vector.i32.fill(operand.bits);
    else {
      const value = this.#call(operand.load, [this.#generals[operand.base]!], vector, operand.disp);
      if (value !== undefined) vector.f32[0] = value;
    }
    return vector;
  }

  #write(type: Type, register: number, value: number): void {
    if (type === "f32") this.#vectors[register]!.f32[0] = value;
    else this.#generals[register] = value;
  }

  #garbage(): Vector {
    const vector = new Vector(this.#kernel.width);
    vector.u8.fill(GARBAGE);
    return vector;
  }
}
