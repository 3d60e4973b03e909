// What a kernel means, by running it: slowly, lane by lane, over plain typed arrays, for vectors of any width. Lowerings
// are tested against this. What each op does is in meanings.ts; here are registers, loops and variables.

import type { Kernel, Reg, Statement } from "./kernel.ts";
import { type AnyMeaning, meanings, type Semantics } from "./meanings.ts";
import { isVector } from "./ops.ts";
import { Memory, Vector } from "./state.ts";
import { verify } from "./verify.ts";

const leastDemanding: Semantics = { dot4: "i7", fused: false };

/**
 * Runs a kernel on `memory`; `ptr` arguments are byte offsets into it. `semantics` chooses where the table leaves a
 * choice to the target; without it, an operand that any target may refuse is an error.
 */
export function interpret(
  kernel: Kernel,
  memory: ArrayBufferLike,
  args: readonly number[],
  semantics: Partial<Semantics> = {},
): void {
  verify(kernel); // among others: no op writes the register that it reads
  if (args.length !== kernel.params.length) {
    throw new Error(`${kernel.name}: ${args.length} arguments, expected ${kernel.params.length}`);
  }
  const machine = new Machine(kernel, memory, { ...leastDemanding, ...semantics });
  kernel.params.forEach((param, index) => {
    machine.setScalar(param, args[index]!);
  });
  machine.run(kernel.body);
}

class Machine {
  readonly #memory: Memory;
  readonly #semantics: Semantics;
  readonly #width: number;
  /** By register id. An op's result keeps its vector: loops write it again. */
  readonly #values: (number | Vector)[];

  constructor(kernel: Kernel, memory: ArrayBufferLike, semantics: Semantics) {
    this.#memory = new Memory(kernel.name, memory);
    this.#semantics = semantics;
    this.#width = kernel.width;
    this.#values = new Array(kernel.registers);
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

  #op({ op, args, imm, out }: Extract<Statement, { kind: "op" }>): void {
    this.#memory.op = op;
    const vector = out && isVector(out.type) ? this.#vector(out) : undefined;
    const meaning = meanings[op] as AnyMeaning;
    const result = meaning(
      args.map((arg) => this.#values[arg.id]!),
      vector,
      { imm, memory: this.#memory, semantics: this.#semantics },
    );
    if (out && result !== undefined) this.#values[out.id] = result;
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
