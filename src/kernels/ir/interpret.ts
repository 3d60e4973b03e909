// The interpreter of the kernel IR, which defines the meaning of a kernel: slow, lane by lane, over plain typed arrays,
// for
// vectors of any width. Lowerings are tested against it. meanings.ts computes each op; here are registers, loops and
// variables.

import { type BufferRange, linesOf, pointerOrigins, statementText } from "./bounds.ts";
import type { Kernel, Reg, Statement } from "./kernel.ts";
import { type AnyMeaning, meanings, type Semantics } from "./meanings.ts";
import { isVector } from "./ops.ts";
import { Memory, Vector } from "./state.ts";
import { verify } from "./verify.ts";

const leastDemanding: Semantics = { dot4: "i7", fused: false };

/**
 * Runs a kernel on `memory`; `ptr` arguments are byte offsets into it. `semantics` decides where the op table leaves a
 * choice to the target; without it, an operand that not every target takes is an error. With `buffers`, one for each
 * parameter, accesses through a pointer must lie in the buffer of the parameter that it comes from.
 */
export function interpret(
  kernel: Kernel,
  memory: ArrayBufferLike,
  args: readonly number[],
  semantics: Partial<Semantics> = {},
  buffers?: readonly (BufferRange | undefined)[],
): void {
  if (!verified.has(kernel)) verify(kernel); // which also ensures that no op writes a register that it reads
  verified.add(kernel);
  if (args.length !== kernel.params.length) {
    throw new Error(`${kernel.name}: ${args.length} arguments, expected ${kernel.params.length}`);
  }
  const machine = new Machine(kernel, memory, { ...leastDemanding, ...semantics }, buffers);
  kernel.params.forEach((param, index) => {
    machine.setScalar(param, args[index]!);
  });
  machine.run(kernel.body);
}

type PointerBuffers = ReadonlyMap<number, readonly (BufferRange | undefined)[]>;

/** Kernels are called many times, but verified and analysed once. */
const verified = new WeakSet<Kernel>();
const knownOrigins = new WeakMap<Kernel, ReturnType<typeof pointerOrigins>>();

function originsOf(kernel: Kernel): ReturnType<typeof pointerOrigins> {
  const origins = knownOrigins.get(kernel) ?? pointerOrigins(kernel);
  knownOrigins.set(kernel, origins);
  return origins;
}

class Machine {
  readonly #kernel: Kernel;
  readonly #memory: Memory;
  readonly #semantics: Semantics;
  readonly #width: number;
  /** By register id. An op's result keeps its Vector object, which loops write again. */
  readonly #values: (number | Vector)[];
  /** The buffers of each pointer, by register id; undefined: accesses are not checked. */
  readonly #buffers: PointerBuffers | undefined;

  constructor(
    kernel: Kernel,
    memory: ArrayBufferLike,
    semantics: Semantics,
    buffers: readonly (BufferRange | undefined)[] | undefined,
  ) {
    this.#kernel = kernel;
    this.#memory = new Memory(kernel.name, memory);
    this.#semantics = semantics;
    this.#width = kernel.width;
    this.#values = new Array(kernel.registers);
    if (!buffers) return;
    const origins = [...originsOf(kernel)];
    this.#buffers = new Map(origins.map(([id, params]) => [id, params.map((i) => buffers[i])]));
  }

  setScalar(reg: Reg, value: number): void {
    this.#values[reg.id] =
      reg.type === "i32" ? value | 0 : reg.type === "f32" ? Math.fround(value) : value;
  }

  run(statements: readonly Statement[]): void {
    for (const statement of statements) {
      if (statement.kind === "op") this.#op(statement);
      else if (statement.kind === "set") this.#set(statement.variable, statement.value);
      else {
        const count = this.#values[statement.count.id] as number;
        for (let round = 0; round < count; round++) this.run(statement.body);
      }
    }
  }

  #op(statement: Extract<Statement, { kind: "op" }>): void {
    const { op, args, imm, out } = statement;
    this.#memory.op = op;
    if (this.#buffers) this.#guard(statement, this.#buffers);
    const vector = out && isVector(out.type) ? this.#vector(out) : undefined;
    const meaning = meanings[op] as AnyMeaning;
    const result = meaning(
      args.map((arg) => this.#values[arg.id]!),
      vector,
      { imm, memory: this.#memory, semantics: this.#semantics },
    );
    if (out && result !== undefined) this.#values[out.id] = result;
  }

  #guard(statement: Statement & { kind: "op" }, buffers: PointerBuffers): void {
    this.#memory.buffers = buffers.get(statement.args[0]?.id ?? -1) ?? [];
    this.#memory.place = () =>
      statementText(this.#kernel, linesOf(this.#kernel).get(statement) ?? 0);
  }

  #set(variable: Reg, value: Reg): void {
    const from = this.#values[value.id]!;
    if (from instanceof Vector) this.#vector(variable).u8.set(from.u8);
    else this.#values[variable.id] = from;
  }

  #vector(reg: Reg): Vector {
    this.#values[reg.id] ??= new Vector(this.#width);
    return this.#values[reg.id] as Vector;
  }
}
