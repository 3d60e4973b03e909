// A kernel as a linear list of instructions over virtual registers, simplified. Part of to-machine.ts.
//
// simplify() resolves bit casts and constants, turns `variable = op(...)` into an op that writes the variable, drops results
// that nothing reads, and folds loads into the op that reads them. flatten() linearizes the loops and puts constants that
// cannot be operands into registers: those in `kept` once, at the beginning, the others before each use.

import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import { isVector, type OpName, shapeOf, type Type } from "../ir/ops.ts";
import type { MachineTarget } from "./machine.ts";

/** A virtual register: one of the kernel's, or a new one with a higher id. */
export interface Virtual {
  readonly kind: "virtual";
  readonly id: number;
  readonly type: Type;
}

export type VirtualOperand =
  | Virtual
  | { readonly kind: "constant"; readonly bits: number; readonly type: Type }
  | {
      readonly kind: "memory";
      readonly base: Virtual;
      readonly disp: number;
      readonly load: OpName;
    };

interface SimpleOp {
  kind: "op";
  op: OpName;
  args: VirtualOperand[];
  imm: number;
  out: Virtual | undefined;
}

type SimpleStatement =
  | SimpleOp
  | { kind: "copy"; to: Virtual; from: VirtualOperand }
  | { kind: "loop"; counter: Virtual; count: VirtualOperand; body: SimpleStatement[] };

export interface SimpleKernel {
  readonly body: SimpleStatement[];
  /** Virtual registers so far. */
  readonly registers: number;
  /** Constants that are operands somewhere (bits), the most often read first. */
  readonly constants: readonly number[];
}

export type LinearInstruction =
  | SimpleOp
  | { kind: "copy"; to: Virtual; from: Virtual }
  | { kind: "constant"; to: Virtual; bits: number }
  | { kind: "loop"; counter: Virtual; count: VirtualOperand }
  | { kind: "end"; counter: Virtual };

export interface LinearKernel {
  readonly instructions: readonly LinearInstruction[];
  readonly registers: number;
}

/** Ops that give the same bits another type. */
const casts: ReadonlySet<OpName> = new Set([
  "f32v.as_i32v",
  "i32v.as_f32v",
  "i32v.as_i8v",
  "i8v.as_i32v",
]);

const floatBits = new DataView(new ArrayBuffer(4));

/** The bits that each constant op puts into a 32-bit lane (or a scalar). */
const constantBits: Partial<Record<OpName, (imm: number) => number>> = {
  "i32.const": (imm) => imm | 0,
  "i32v.const": (imm) => imm | 0,
  "i8v.splat": (imm) => Math.imul(imm & 255, 0x01010101),
  "f32.const": bitsOf,
  "f32v.const": bitsOf,
};

function bitsOf(value: number): number {
  floatBits.setFloat32(0, value);
  return floatBits.getInt32(0);
}

export function isGeneral(type: Type): boolean {
  return type === "i32" || type === "ptr";
}

export function simplify(kernel: Kernel, target: MachineTarget): SimpleKernel {
  const simplifier = new Simplifier(kernel, target);
  const body = simplifier.statements(kernel.body);
  const uses = countUses(body);
  dropUnused(body, uses);
  foldLoads(body, { uses, target, variables: simplifier.variables });
  return { body, registers: simplifier.registers, constants: constantsOf(body, target) };
}

class Simplifier {
  registers: number;
  readonly variables: Set<number> = new Set();
  readonly #target: MachineTarget;
  /** The operand that replaces a register of the kernel. */
  readonly #meaning = new Map<number, VirtualOperand>();
  /** The number of reads of each register. */
  readonly #reads = new Map<number, number>();

  constructor(kernel: Kernel, target: MachineTarget) {
    this.registers = kernel.registers;
    this.#target = target;
    for (const param of kernel.params) this.variables.add(param.id);
    this.#look(kernel.body);
  }

  statements(list: readonly Statement[]): SimpleStatement[] {
    const simple: SimpleStatement[] = [];
    for (let i = 0; i < list.length; i++) {
      const statement = list[i]!;
      if (statement.kind === "set") {
        simple.push({
          kind: "copy",
          to: virtual(statement.variable),
          from: this.#resolve(statement.value),
        });
      } else if (statement.kind === "loop") {
        const { count, body } = statement;
        const counter: Virtual = { kind: "virtual", id: this.registers++, type: "i32" };
        simple.push({
          kind: "loop",
          counter,
          count: this.#resolve(count),
          body: this.statements(body),
        });
      } else {
        const op = this.#op(statement, list, i);
        if (!op) continue;
        const next = list[i + 1];
        if (
          op.kind === "op" &&
          next?.kind === "set" &&
          this.#writesInPlace(op, next.variable, next.value)
        ) {
          op.out = virtual(next.variable);
          i++;
        }
        simple.push(op);
      }
    }
    return simple;
  }

  /** Simplifies statement `at` of the list; undefined: it disappears. */
  #op(
    { op, args, imm, out }: Extract<Statement, { kind: "op" }>,
    list: readonly Statement[],
    at: number,
  ): SimpleStatement | undefined {
    const constant = constantBits[op];
    if (constant) {
      this.#meaning.set(out!.id, { kind: "constant", bits: constant(imm), type: out!.type });
      return undefined;
    }
    if (casts.has(op)) {
      const from = this.#resolve(args[0]!);
      // A variable may change while its old value is still read under another name: then it is copied.
      const isVariable = this.variables.has(args[0]!.id);
      if (isVariable && !this.#isReadBefore(list, at + 1, out!, args[0]!)) {
        return { kind: "copy", to: virtual(out!), from };
      }
      this.#meaning.set(out!.id, from);
      return undefined;
    }
    const operands = args.map((arg) => this.#resolve(arg));
    return { kind: "op", op, args: operands, imm, out: out && virtual(out) };
  }

  /** Whether `op` may write the variable that the next statement sets to its result. */
  #writesInPlace({ op, args, out }: SimpleOp, variable: Reg, value: Reg): boolean {
    if (out?.id !== value.id || this.#reads.get(value.id) !== 1) return false;
    const tied = this.#target.tied(op);
    return args.every((arg, index) => {
      if (arg.kind !== "virtual" || arg.id !== variable.id) return true;
      return tied === undefined ? this.#target.readsFirst(op) : index === tied;
    });
  }

  /** Whether all reads of `result` come after `at` in the same list, before the variable changes. */
  #isReadBefore(list: readonly Statement[], at: number, result: Reg, variable: Reg): boolean {
    let left = this.#reads.get(result.id) ?? 0;
    for (let i = at; i < list.length && left > 0; i++) {
      const statement = list[i]!;
      if (statement.kind === "loop") return false;
      const reads = statement.kind === "op" ? statement.args : [statement.value];
      // A cast gives it yet another name, whose reads are not followed.
      const isCast = statement.kind === "op" && casts.has(statement.op);
      const found = reads.filter(({ id }) => id === result.id).length;
      if (found > 0 && (isCast || statement.kind === "set")) return false;
      left -= found;
      if (statement.kind === "set" && statement.variable.id === variable.id) break;
    }
    return left === 0;
  }

  #resolve(reg: Reg): VirtualOperand {
    return this.#meaning.get(reg.id) ?? virtual(reg);
  }

  #look(list: readonly Statement[]): void {
    const read = ({ id }: Reg) => this.#reads.set(id, (this.#reads.get(id) ?? 0) + 1);
    for (const statement of list) {
      if (statement.kind === "op") statement.args.forEach(read);
      else if (statement.kind === "set") {
        read(statement.value);
        this.variables.add(statement.variable.id);
      } else {
        read(statement.count);
        this.#look(statement.body);
      }
    }
  }
}

function virtual({ id, type }: Reg): Virtual {
  return { kind: "virtual", id, type };
}

type Uses = Map<number, number>;

function countUses(list: readonly SimpleStatement[], uses: Uses = new Map()): Uses {
  const use = (operand: VirtualOperand) => {
    if (operand.kind === "virtual") uses.set(operand.id, (uses.get(operand.id) ?? 0) + 1);
  };
  for (const statement of list) {
    if (statement.kind === "op") statement.args.forEach(use);
    else if (statement.kind === "copy") use(statement.from);
    else {
      use(statement.count);
      countUses(statement.body, uses);
    }
  }
  return uses;
}

/** Drops results that nothing reads, from the end backwards, so that their operands are dropped, too. */
function dropUnused(list: SimpleStatement[], uses: Uses): void {
  for (let i = list.length - 1; i >= 0; i--) {
    const statement = list[i]!;
    if (statement.kind === "loop") {
      dropUnused(statement.body, uses);
      continue;
    }
    const out = statement.kind === "op" ? statement.out : statement.to;
    if (!out || uses.get(out.id)) continue;
    for (const arg of statement.kind === "op" ? statement.args : [statement.from]) {
      if (arg.kind === "virtual") uses.set(arg.id, uses.get(arg.id)! - 1);
    }
    list.splice(i, 1);
  }
}

interface Folding {
  readonly uses: Uses;
  readonly target: MachineTarget;
  readonly variables: ReadonlySet<number>;
}

/** A load that a single op reads becomes its operand, if neither memory nor the pointer changes in between. */
function foldLoads(list: SimpleStatement[], folding: Folding): void {
  const { uses, target, variables } = folding;
  const folded = new Set<SimpleStatement>();
  list.forEach((statement, at) => {
    if (statement.kind === "loop") foldLoads(statement.body, folding);
    if (!isPlainLoad(statement) || variables.has(statement.out!.id)) return;
    if (uses.get(statement.out!.id) !== 1) return;
    const reader = readerOf(list, at, statement);
    if (!reader) return;
    const index = reader.args.findIndex((arg) => isSame(arg, statement.out!));
    if (target.tied(reader.op) === index) return;
    if (!target.foldsLoad(reader.op, index, statement.op)) return;
    if (reader.args.some(({ kind }) => kind === "memory")) return;
    const base = statement.args[0] as Virtual;
    reader.args[index] = { kind: "memory", base, disp: statement.imm, load: statement.op };
    folded.add(statement);
  });
  for (let i = list.length - 1; i >= 0; i--) if (folded.has(list[i]!)) list.splice(i, 1);
}

function isPlainLoad(statement: SimpleStatement): statement is SimpleOp {
  if (statement.kind !== "op" || !statement.out || !isLoad(statement.op)) return false;
  return statement.args[0]!.kind === "virtual";
}

function isLoad(op: OpName): boolean {
  const { imm, out } = shapeOf(op);
  return imm === "disp" && out !== undefined && !isGeneral(out);
}

/** The op of the same list that reads the result of the load at `at`; undefined if anything changes in between. */
function readerOf(
  list: readonly SimpleStatement[],
  at: number,
  load: SimpleOp,
): SimpleOp | undefined {
  const base = load.args[0]!;
  for (let i = at + 1; i < list.length; i++) {
    const statement = list[i]!;
    if (statement.kind === "loop") return undefined;
    if (statement.kind === "copy") {
      if (isSame(statement.from, load.out!) || isSame(base, statement.to)) return undefined;
      continue;
    }
    if (statement.args.some((arg) => isSame(arg, load.out!))) return statement;
    if (!statement.out || isSame(base, statement.out)) return undefined;
  }
  return undefined;
}

function isSame(operand: VirtualOperand, { id }: Virtual): boolean {
  return operand.kind === "virtual" && operand.id === id;
}

/** The bits of constants that must or should be in registers, the most often read first. */
function constantsOf(body: readonly SimpleStatement[], target: MachineTarget): number[] {
  const weights = new Map<number, number>();
  const look = (list: readonly SimpleStatement[], weight: number) => {
    for (const statement of list) {
      if (statement.kind === "loop") look(statement.body, weight * 16);
      else if (statement.kind === "op") {
        statement.args.forEach((arg, index) => {
          if (arg.kind !== "constant" || isGeneral(arg.type) || arg.bits === 0) return;
          // A constant that cannot be an operand costs an instruction at each use unless it is kept in a register.
          const cost = target.foldsConstant(statement.op, index) ? 1 : 2;
          weights.set(arg.bits, (weights.get(arg.bits) ?? 0) + weight * cost);
        });
      }
    }
  };
  look(body, 1);
  return [...weights].sort((a, b) => b[1] - a[1]).map(([bits]) => bits);
}

export function flatten(
  { body, registers }: SimpleKernel,
  target: MachineTarget,
  kept: ReadonlySet<number>,
): LinearKernel {
  const instructions: LinearInstruction[] = [];
  let count = registers;
  const vector = (): Virtual => ({ kind: "virtual", id: count++, type: "i32v" });
  const keptIn = new Map([...kept].map((bits) => [bits, vector()]));
  for (const [bits, to] of keptIn) instructions.push({ kind: "constant", to, bits });

  const inRegister = (bits: number): Virtual => {
    const known = keptIn.get(bits);
    if (known) return known;
    const to = vector();
    instructions.push({ kind: "constant", to, bits });
    return to;
  };
  /** Leaves at most one operand that is not in a register. */
  const operands = ({ op, args }: SimpleOp): VirtualOperand[] => {
    let hasMemory = args.some(({ kind }) => kind === "memory");
    return args.map((arg, index) => {
      if (arg.kind !== "constant" || isGeneral(arg.type) || target.tied(op) === index) return arg;
      if (hasMemory || kept.has(arg.bits) || !target.foldsConstant(op, index)) {
        return inRegister(arg.bits);
      }
      hasMemory = true;
      return arg;
    });
  };
  const walk = (list: readonly SimpleStatement[]) => {
    for (const statement of list) {
      if (statement.kind === "op") {
        const args = operands(statement);
        instructions.push({ ...statement, args });
      } else if (statement.kind === "copy") {
        const { to, from } = statement;
        if (from.kind === "virtual") instructions.push({ kind: "copy", to, from });
        else if (from.kind === "constant") {
          const isCopied = target.copiesConstants && (isVector(to.type) || to.type === "f32");
          const known = isCopied ? keptIn.get(from.bits) : undefined;
          if (known) instructions.push({ kind: "copy", to, from: known });
          else instructions.push({ kind: "constant", to, bits: from.bits });
        }
      } else {
        const { counter, count: times } = statement;
        instructions.push({ kind: "loop", counter, count: times });
        walk(statement.body);
        instructions.push({ kind: "end", counter });
      }
    }
  };
  walk(body);
  return { instructions, registers: count };
}
