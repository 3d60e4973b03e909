// The verifier of the kernel IR: operands as the op table says, registers defined before use, results of ops set once,
// immediates in range. Every lowering can translate a kernel that passes, unless it lacks an op or registers.
//
// For tests, debugging and the interpreter; kernels that are lowered are not verified at run time.

import type { Kernel, Reg, Statement } from "./kernel.ts";
import { isVector, type OpShape, ops, type Type } from "./ops.ts";
import { printStatement, RegisterNames } from "./print.ts";
import { wrongTiles } from "./tiles.ts";

const widths: readonly number[] = [16, 32, 64];
const u32 = 2 ** 32;

/** Throws an error that names the statement and its line in the printed kernel. */
export function verify(kernel: Kernel): void {
  new Verifier(kernel).run();
}

type OpStatement = Extract<Statement, { kind: "op" }>;

class Verifier {
  readonly #kernel: Kernel;
  readonly #names: RegisterNames;
  /** The type each id was first seen with. */
  readonly #types = new Map<number, Type>();
  /** Results of ops, which are set once in the whole kernel. */
  readonly #results = new Set<number>();
  /** Variables and parameters, which may be set again. */
  readonly #variables = new Set<number>();
  /** Registers defined so far: one set for the kernel and one for each loop around the statement. */
  readonly #scopes: Set<number>[] = [new Set()];
  #line = 1;
  #where = "";

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.#names = new RegisterNames(kernel);
  }

  run(): void {
    const { width, params, body } = this.#kernel;
    this.#where = "its head";
    if (!widths.includes(width)) {
      this.#fail(`vectors of ${width} bytes, expected ${widths.join(", ")}`);
    }
    for (const param of params) {
      this.#checkRegister(param);
      if (isVector(param.type)) {
        this.#fail(`parameter ${this.#name(param)} is a vector; pass its address`);
      }
      if (this.#variables.has(param.id)) {
        this.#fail(`parameter ${this.#name(param)} has register ${param.id}, which is taken`);
      }
      this.#define(param);
      this.#variables.add(param.id);
    }
    this.#statements(body);
  }

  #statements(statements: readonly Statement[]): void {
    for (const statement of statements) {
      this.#line++;
      this.#where = printStatement(statement, this.#names);
      if (statement.kind === "op") this.#op(statement);
      else if (statement.kind === "set") this.#set(statement.variable, statement.value);
      else {
        this.#use(statement.count, "i32", "the count");
        this.#scopes.push(new Set());
        this.#statements(statement.body);
        this.#scopes.pop();
      }
    }
  }

  #op(statement: OpStatement): void {
    const { op, args, out } = statement;
    if (!Object.hasOwn(ops, op)) this.#fail("no such op in the table");
    const shape: OpShape = ops[op];
    if (args.length !== shape.args.length) {
      this.#fail(`${args.length} operands, expected ${shape.args.length}`);
    }
    args.forEach((arg, index) => {
      this.#use(arg, shape.args[index]!, `operand ${index + 1}`);
    });
    this.#immediate(statement, shape);
    if (out?.type !== shape.out) {
      this.#fail(`the result is ${out?.type ?? "none"}, expected ${shape.out ?? "none"}`);
    }
    if (!out) return;
    this.#checkRegister(out);
    if (this.#results.has(out.id) || this.#variables.has(out.id)) {
      this.#fail(`${this.#name(out)} is set already; the result of an op is a register of its own`);
    }
    this.#results.add(out.id);
    this.#define(out);
  }

  #set(variable: Reg, value: Reg): void {
    this.#use(value, variable.type, "the value");
    this.#checkRegister(variable);
    if (this.#results.has(variable.id)) {
      this.#fail(`${this.#name(variable)} is the result of an op, not a variable`);
    }
    this.#variables.add(variable.id);
    this.#define(variable);
  }

  #use(reg: Reg, type: Type, what: string): void {
    this.#checkRegister(reg);
    if (!this.#scopes.some((scope) => scope.has(reg.id))) {
      const isElsewhere = this.#results.has(reg.id) || this.#variables.has(reg.id);
      const how = isElsewhere ? "outside the loop that defines it" : "before it is defined";
      this.#fail(`${what}, ${this.#name(reg)}, is used ${how}`);
    }
    if (reg.type !== type) {
      this.#fail(`${what}, ${this.#name(reg)}, is ${reg.type}, expected ${type}`);
    }
  }

  /** Checks that its id is one of the kernel's, and has one type everywhere. */
  #checkRegister(reg: Reg): void {
    const { registers } = this.#kernel;
    if (!Number.isInteger(reg.id) || reg.id < 0 || reg.id >= registers) {
      this.#fail(`register ${reg.id}, expected a whole number below ${registers}`);
    }
    const type = this.#types.get(reg.id) ?? reg.type;
    if (type !== reg.type) this.#fail(`${this.#name(reg)} is ${reg.type} here, ${type} before`);
    this.#types.set(reg.id, type);
  }

  #immediate({ op, imm }: OpStatement, { imm: kind, out }: OpShape): void {
    if (kind === undefined) {
      if (imm !== 0) this.#fail(`an immediate of ${imm}; ${op} has none`);
    } else if (kind === "disp") this.#checkWhole("displacement", imm, 0, u32 - 1);
    else if (kind === "shift")
      this.#checkWhole("shift", imm, 0, out === "i8v" ? 7 : out === "i16v" ? 15 : 31);
    else if (kind !== "value") {
      const wrong = wrongTiles(kind, imm);
      if (wrong !== undefined) this.#fail(`an immediate of ${imm}: ${wrong}`);
    } else if (out === "i8v") this.#checkWhole("constant", imm, -128, 255);
    else if (out === "i32" || out === "i32v") this.#checkWhole("constant", imm, -u32 / 2, u32 - 1);
    else if (Number.isNaN(imm) || Number.isFinite(imm) !== Number.isFinite(Math.fround(imm))) {
      this.#fail(`constant ${imm}, expected a number that f32 can hold`);
    }
  }

  #checkWhole(what: string, value: number, low: number, high: number): void {
    if (Number.isInteger(value) && value >= low && value <= high) return;
    this.#fail(`${what} ${value}, expected a whole number from ${low} to ${high}`);
  }

  #define(reg: Reg): void {
    this.#scopes.at(-1)!.add(reg.id);
  }

  #name(reg: Reg): string {
    return this.#names.of(reg);
  }

  #fail(what: string): never {
    throw new Error(`kernel ${this.#kernel.name}, line ${this.#line} (${this.#where}): ${what}`);
  }
}
