// Builds a kernel: a TypeScript function of tile sizes and types (ops/) calls these methods, one per instruction. A loop in
// TypeScript unrolls; k.loop() makes a loop of the kernel.
//
//   const k = new KernelBuilder("axpy", 16);
//   const [x, y, n] = [k.param("ptr", "x"), k.param("ptr", "y"), k.param("i32", "n")];
//   k.loop(n, () => { ... k.advance(x, 16); });

import type { Kernel, Reg, Statement } from "./kernel.ts";
import { type OpName, ops, type Type } from "./ops.ts";

type Regs<A extends readonly Type[]> = { [I in keyof A]: Reg<A[I]> };
type ArgsOf<O extends OpName> = (typeof ops)[O]["args"] extends infer A extends readonly Type[]
  ? Regs<A>
  : never;
type OutOf<O extends OpName> = (typeof ops)[O]["out"] extends infer T extends Type
  ? Reg<T>
  : undefined;

export class KernelBuilder {
  readonly name: string;
  /** Bytes of a vector register, and the number of its 32-bit lanes. */
  readonly width: number;
  readonly lanes: number;
  readonly #params: Reg[] = [];
  readonly #body: Statement[] = [];
  #open: Statement[] = this.#body;
  #registers = 0;

  constructor(name: string, width: number) {
    this.name = name;
    this.width = width;
    this.lanes = width / 4;
  }

  param<T extends Type>(type: T, name: string): Reg<T> {
    const reg = this.#register(type, name);
    this.#params.push(reg);
    return reg;
  }

  /** Appends an op and returns its result. The immediate is a displacement, a constant or a shift, as the op says. */
  op<O extends OpName>(op: O, args: ArgsOf<O>, imm = 0): OutOf<O> {
    const { out: type } = ops[op];
    const out = type === undefined ? undefined : this.#register(type);
    this.#open.push({ kind: "op", op, args: args as readonly Reg[], imm, out });
    return out as OutOf<O>;
  }

  /** A register that can be set again, starting as `value`. */
  variable<T extends Type>(value: Reg<T>, name?: string): Reg<T> {
    const variable = this.#register(value.type, name);
    this.set(variable, value);
    return variable;
  }

  set<T extends Type>(variable: Reg<T>, value: Reg<T>): void {
    this.#open.push({ kind: "set", variable, value });
  }

  /** variable = op(...): an accumulator, a pointer that moves. */
  update<O extends OpName>(variable: OutOf<O> & Reg, op: O, args: ArgsOf<O>, imm = 0): void {
    this.set(variable, this.op(op, args, imm) as Reg);
  }

  loop(count: Reg<"i32">, body: () => void): void {
    const outer = this.#open;
    const inner: Statement[] = [];
    this.#open = inner;
    body();
    this.#open = outer;
    outer.push({ kind: "loop", count, body: inner });
  }

  i32(value: number): Reg<"i32"> {
    return this.op("i32.const", [], value);
  }

  f32(value: number): Reg<"f32"> {
    return this.op("f32.const", [], value);
  }

  /** Moves a pointer variable by a constant. */
  advance(pointer: Reg<"ptr">, bytes: number): void {
    this.update(pointer, "ptr.add", [pointer, this.i32(bytes)]);
  }

  /** pointer + bytes. */
  plus(pointer: Reg<"ptr">, bytes: number): Reg<"ptr"> {
    return bytes === 0 ? pointer : this.op("ptr.add", [pointer, this.i32(bytes)]);
  }

  /** base + index * bytes. */
  at(base: Reg<"ptr">, index: Reg<"i32">, bytes: number): Reg<"ptr"> {
    return this.op("ptr.add", [base, this.op("i32.mul", [index, this.i32(bytes)])]);
  }

  finish(): Kernel {
    return {
      name: this.name,
      width: this.width,
      params: this.#params,
      body: this.#body,
      registers: this.#registers,
    };
  }

  #register<T extends Type>(type: T, name?: string): Reg<T> {
    const id = this.#registers++;
    return name === undefined ? { id, type } : { id, type, name };
  }
}
