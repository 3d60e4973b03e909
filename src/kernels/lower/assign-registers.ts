// Register allocation: a physical register for every value of a linear list of instructions (linear.ts). Part of
// to-machine.ts.
//
// Linear scan. A value's live range is from its first write to its last read; a value that is read in a loop, but written
// before it, lives to the loop's end. Ranges get registers in the order in which they begin, and a register is free where a
// range ends. If scalars do not fit, the one with the fewest reads is spilled into the parameter block. Vectors are never
// spilled: a kernel whose vectors do not fit is refused, since a spilled sum would cost the gain of wide vectors.

import type { Kernel } from "../ir/kernel.ts";
import {
  isGeneral,
  type LinearInstruction,
  type LinearKernel,
  type Virtual,
  type VirtualOperand,
} from "./linear.ts";
import {
  KernelRefused,
  type MachineInstruction,
  type MachineKernel,
  type MachineParam,
  type MachineTarget,
  type Operand,
  type RegisterClass,
  SCRATCH_SLOTS,
} from "./machine.ts";

/** A live range. Instruction i reads at 2i and writes at 2i + 1. */
interface Life {
  readonly id: number;
  readonly registers: RegisterClass;
  start: number;
  end: number;
  /** The number of its reads and writes, a loop counting as 16 rounds. */
  weight: number;
  /** The value whose register it should share, if possible. */
  like: number | undefined;
  /** Values whose registers it must not have, though their ranges have ended. */
  readonly unlike: number[];
}

export interface Assigned {
  /** undefined: vectors do not fit. */
  readonly kernel: MachineKernel | undefined;
  /** The most vectors that are live at once. */
  readonly needed: number;
}

export function assignRegisters(
  kernel: Kernel,
  linear: LinearKernel,
  target: MachineTarget,
): Assigned {
  const lives = livesOf(kernel, linear, target);
  const vectors = assign(lives.values(), "vector", target.vectors);
  const needed = mostAlive(lives.values(), "vector");
  if (!vectors.registers) return { kernel: undefined, needed };
  const spilled = new Set<number>();
  for (;;) {
    const scalars = [...lives.values()].filter(({ id }) => !spilled.has(id));
    const generals = assign(scalars, "general", target.generals);
    if (generals.registers) {
      const offsets = spillOffsets(kernel, lives, spilled, target);
      const registers = new Map([...vectors.registers, ...generals.registers]);
      return {
        kernel: new Writer(kernel, target, lives, registers, offsets).write(linear),
        needed,
      };
    }
    spilled.add(generals.lightest);
  }
}

/**
 * The offsets in the block of spilled scalars: a parameter has its own slot, others a slot that is free during their live
 * range. Slots of parameters are free once the prologue has read them.
 */
function spillOffsets(
  kernel: Kernel,
  lives: ReadonlyMap<number, Life>,
  spilled: ReadonlySet<number>,
  target: MachineTarget,
): Map<number, number> {
  const slots = kernel.params.length + SCRATCH_SLOTS;
  const inSlots: Life[][] = Array.from({ length: slots }, () => []);
  const offsets = new Map<number, number>();
  const kept = [...spilled].map((id) => lives.get(id)!).sort((a, b) => a.start - b.start);
  for (const life of kept) {
    const own = kernel.params.findIndex(({ id }) => id === life.id);
    const slot =
      own >= 0 ? own : inSlots.findLastIndex((list) => list.every(({ end }) => end < life.start));
    if (slot < 0) {
      throw new KernelRefused(`${kernel.name}: too many scalars do not fit ${target.name}`);
    }
    inSlots[slot]!.push(life);
    offsets.set(life.id, 8 * (1 + slot));
  }
  return offsets;
}

function classOf({ type }: Virtual): RegisterClass {
  return isGeneral(type) ? "general" : "vector";
}

function livesOf(
  kernel: Kernel,
  { instructions }: LinearKernel,
  target: MachineTarget,
): Map<number, Life> {
  const lives = new Map<number, Life>();
  const ends = loopEnds(instructions);
  /** Start positions of the loops around the instruction. */
  const loops: number[] = [];
  const touch = (virtual: Virtual, at: number): Life => {
    let life = lives.get(virtual.id);
    if (!life) {
      life = {
        id: virtual.id,
        registers: classOf(virtual),
        start: at,
        end: at,
        weight: 0,
        like: undefined,
        unlike: [],
      };
      lives.set(virtual.id, life);
    }
    const outer = loops.find((begin) => life.start < 2 * begin);
    life.end = Math.max(life.end, outer === undefined ? at : 2 * ends.get(outer)! + 1);
    life.weight += 16 ** loops.length;
    return life;
  };
  for (const { id, type } of kernel.params) {
    touch({ kind: "virtual", id, type }, -1).weight = 0;
  }
  instructions.forEach((instruction, i) => {
    if (instruction.kind === "loop") {
      read(instruction.count, 2 * i, touch);
      loops.push(i);
      // Counters are never spilled.
      touch(instruction.counter, 2 * i + 1).weight = Number.POSITIVE_INFINITY;
    } else if (instruction.kind === "end") {
      loops.pop();
      touch(instruction.counter, 2 * i);
    } else if (instruction.kind === "op") {
      for (const arg of instruction.args) read(arg, 2 * i, touch);
      if (!instruction.out) return;
      const out = touch(instruction.out, 2 * i + 1);
      if (out.start === 2 * i + 1) relate(out, instruction, target);
    } else {
      if (instruction.kind === "copy") read(instruction.from, 2 * i, touch);
      const to = touch(instruction.to, 2 * i + 1);
      if (to.start === 2 * i + 1 && instruction.kind === "copy") to.like = instruction.from.id;
    }
  });
  for (const { id } of kernel.params) if (lives.get(id)!.weight === 0) lives.delete(id);
  return lives;
}

function read(
  operand: VirtualOperand,
  at: number,
  touch: (virtual: Virtual, at: number) => unknown,
): void {
  if (operand.kind === "virtual") touch(operand, at);
  else if (operand.kind === "memory") touch(operand.base, at);
}

/** Which operands a result may share its register with. */
function relate(
  out: Life,
  { op, args }: LinearInstruction & { kind: "op" },
  target: MachineTarget,
): void {
  const tied = target.tied(op);
  args.forEach((arg, index) => {
    const id = arg.kind === "virtual" ? arg.id : arg.kind === "memory" ? arg.base.id : undefined;
    if (id === undefined) return;
    if (index === tied) out.like = id;
    else if (tied !== undefined || !target.readsFirst(op)) out.unlike.push(id);
  });
}

/** The end of each loop, by where it begins. */
function loopEnds(instructions: readonly LinearInstruction[]): Map<number, number> {
  const ends = new Map<number, number>();
  const open: number[] = [];
  instructions.forEach(({ kind }, i) => {
    if (kind === "loop") open.push(i);
    if (kind === "end") ends.set(open.pop()!, i);
  });
  return ends;
}

interface Attempt {
  readonly registers: Map<number, number> | undefined;
  /** The value to spill, if it failed. */
  readonly lightest: number;
}

function assign(
  lives: Iterable<Life>,
  registerClass: RegisterClass,
  available: readonly number[],
): Attempt {
  const registers = new Map<number, number>();
  const sorted = [...lives]
    .filter((life) => life.registers === registerClass)
    .sort((a, b) => a.start - b.start);
  let active: Life[] = [];
  for (const life of sorted) {
    active = active.filter(({ end }) => end >= life.start);
    const taken = new Set(active.map(({ id }) => registers.get(id)!));
    for (const id of life.unlike) {
      const other = registers.get(id);
      if (other !== undefined) taken.add(other);
    }
    const liked = life.like === undefined ? undefined : registers.get(life.like);
    const register =
      liked !== undefined && !taken.has(liked)
        ? liked
        : available.find((candidate) => !taken.has(candidate));
    active.push(life);
    if (register === undefined) {
      const lightest = active.reduce((least, each) => (each.weight < least.weight ? each : least));
      return { registers: undefined, lightest: lightest.id };
    }
    registers.set(life.id, register);
  }
  return { registers, lightest: -1 };
}

function mostAlive(lives: Iterable<Life>, registerClass: RegisterClass): number {
  const changes = [...lives]
    .filter((life) => life.registers === registerClass)
    .flatMap(({ start, end }) => [
      { at: start, by: 1 },
      { at: end + 0.5, by: -1 },
    ])
    .sort((a, b) => a.at - b.at);
  let alive = 0;
  let most = 0;
  for (const { by } of changes) {
    alive += by;
    most = Math.max(most, alive);
  }
  return most;
}

/** The instructions with their registers; spilled scalars pass through the target's passing registers. */
class Writer {
  readonly #kernel: Kernel;
  readonly #target: MachineTarget;
  readonly #lives: ReadonlyMap<number, Life>;
  readonly #registers: ReadonlyMap<number, number>;
  readonly #spilled: ReadonlyMap<number, number>;
  readonly #instructions: MachineInstruction[] = [];
  readonly #written: { [C in RegisterClass]: Set<number> } = {
    general: new Set(),
    vector: new Set(),
  };
  /** Passing registers in use by the instruction at hand. */
  #passing = 0;

  constructor(
    kernel: Kernel,
    target: MachineTarget,
    lives: ReadonlyMap<number, Life>,
    registers: ReadonlyMap<number, number>,
    spilled: ReadonlyMap<number, number>,
  ) {
    this.#kernel = kernel;
    this.#target = target;
    this.#lives = lives;
    this.#registers = registers;
    this.#spilled = spilled;
  }

  write({ instructions }: LinearKernel): MachineKernel {
    const { name, width, params } = this.#kernel;
    const placed = params.flatMap(({ id, type }, index): MachineParam[] => {
      if (!this.#lives.has(id)) return [];
      const register = this.#registers.get(id);
      const to = register === undefined ? { offset: this.#spilled.get(id)! } : { register };
      if (register !== undefined) this.#note(isGeneral(type) ? "general" : "vector", register);
      return [{ type, from: 8 * (1 + index), to }];
    });
    for (const instruction of instructions) {
      this.#passing = 0;
      this.#instruction(instruction);
    }
    return {
      name,
      width,
      params: placed,
      instructions: this.#instructions,
      written: this.#written,
    };
  }

  #instruction(instruction: LinearInstruction): void {
    if (instruction.kind === "op") this.#op(instruction);
    else if (instruction.kind === "loop") {
      const count = this.#operand(instruction.count);
      const counter = this.#result(instruction.counter);
      this.#instructions.push({ kind: "loop", counter, count });
    } else if (instruction.kind === "end") {
      this.#instructions.push({ kind: "end", counter: this.#result(instruction.counter) });
    } else {
      const { to } = instruction;
      if (instruction.kind === "copy") this.#copy(to, this.#register(instruction.from));
      else this.#constant(to, this.#result(to), instruction.bits);
      this.#keep(to);
    }
  }

  #op({ op, args, imm, out }: LinearInstruction & { kind: "op" }): void {
    const operands = args.map((arg) => this.#operand(arg));
    const tied = this.#target.tied(op);
    const register = out ? this.#result(out) : -1;
    if (out && tied !== undefined) {
      const sum = operands[tied]!;
      if (sum.kind === "constant") this.#constant(out, register, sum.bits);
      else if (sum.kind === "register") this.#move(classOf(out), register, sum.register);
      operands[tied] = { kind: "register", register };
    }
    this.#instructions.push({ kind: "op", op, args: operands, imm, out: register });
    if (out) this.#keep(out);
  }

  #copy(to: Virtual, from: number): void {
    this.#move(classOf(to), this.#result(to), from);
  }

  #move(registers: RegisterClass, to: number, from: number): void {
    if (to !== from) this.#instructions.push({ kind: "copy", registers, to, from });
  }

  #constant(virtual: Virtual, to: number, bits: number): void {
    this.#instructions.push({ kind: "constant", registers: classOf(virtual), to, bits });
  }

  #operand(operand: VirtualOperand): Operand {
    if (operand.kind === "constant") return { kind: "constant", bits: operand.bits };
    if (operand.kind === "virtual") return { kind: "register", register: this.#register(operand) };
    const { disp, load } = operand;
    return { kind: "memory", base: this.#register(operand.base), disp, load };
  }

  /** The register that a value is in; reloads it from the block if it is spilled. */
  #register({ id }: Virtual): number {
    const register = this.#registers.get(id);
    if (register !== undefined) return register;
    const passing = this.#target.passing[this.#passing++]!;
    this.#note("general", passing);
    this.#instructions.push({ kind: "reload", register: passing, offset: this.#spilled.get(id)! });
    return passing;
  }

  /** The register of a result. A spilled one has the last passing register, since operands use the first ones. */
  #result(virtual: Virtual): number {
    const register = this.#registers.get(virtual.id) ?? this.#target.passing[2];
    this.#note(classOf(virtual), register);
    return register;
  }

  /** Stores a result in the block if it is spilled. */
  #keep({ id }: Virtual): void {
    const offset = this.#spilled.get(id);
    if (offset === undefined) return;
    this.#instructions.push({ kind: "spill", register: this.#target.passing[2], offset });
  }

  #note(registers: RegisterClass, register: number): void {
    this.#written[registers].add(register);
  }
}
