// A kernel as text, for golden tests and for people: one statement a line, loop bodies indented. The text is no format:
// nothing parses it.
//
//   kernel axpy(x: ptr, y: ptr, n: i32), vectors of 16 bytes
//     loop n
//       v0 = f32v.load [x + 16]
//
// The first line is line 1; the verifier counts the same way.

import type { Kernel, Reg, Statement } from "./kernel.ts";
import { type OpShape, ops } from "./ops.ts";

export function print(kernel: Kernel): string {
  const names = new RegisterNames(kernel);
  const params = kernel.params.map((param) => `${names.of(param)}: ${param.type}`).join(", ");
  const lines = [`kernel ${kernel.name}(${params}), vectors of ${kernel.width} bytes`];
  const add = (statements: readonly Statement[], indent: string): void => {
    for (const statement of statements) {
      lines.push(indent + printStatement(statement, names));
      if (statement.kind === "loop") add(statement.body, `${indent}  `);
    }
  };
  add(kernel.body, "  ");
  return `${lines.join("\n")}\n`;
}

/** One statement without its body. Prints invalid ones too: the verifier quotes them. */
export function printStatement(statement: Statement, names: RegisterNames): string {
  if (statement.kind === "loop") return `loop ${names.of(statement.count)}`;
  if (statement.kind === "set") {
    return `${names.of(statement.variable)} = ${names.of(statement.value)}`;
  }
  const { op, out } = statement;
  const operands = printOperands(statement, names);
  const call = operands.length > 0 ? `${op} ${operands.join(", ")}` : op;
  return out === undefined ? call : `${names.of(out)} = ${call}`;
}

function printOperands(
  { op, args, imm }: Extract<Statement, { kind: "op" }>,
  names: RegisterNames,
): string[] {
  const shape: OpShape | undefined = Object.hasOwn(ops, op) ? ops[op] : undefined;
  const operands = args.map((arg) => names.of(arg));
  const constant = Object.is(imm, -0) ? "-0" : String(imm);
  if (shape?.imm === "disp") {
    const [pointer = "?", ...values] = operands;
    return [imm === 0 ? `[${pointer}]` : `[${pointer} + ${constant}]`, ...values];
  }
  return shape?.imm === undefined && imm === 0 ? operands : [...operands, constant];
}

/** Names of registers: their own where they have one, otherwise v0, v1, ... in order of appearance. */
export class RegisterNames {
  readonly #names = new Map<number, string>();

  constructor(kernel: Kernel) {
    const registers = [...new Map(registersOf(kernel).map((reg) => [reg.id, reg])).values()];
    const taken = new Set<string>();
    for (const { id, name } of registers) {
      if (name === undefined) continue;
      let unique = name;
      for (let again = 2; taken.has(unique); again++) unique = `${name}.${again}`;
      taken.add(unique);
      this.#names.set(id, unique);
    }
    let next = 0;
    for (const { id } of registers) {
      if (this.#names.has(id)) continue;
      while (taken.has(`v${next}`)) next++;
      this.#names.set(id, `v${next++}`);
    }
  }

  of(reg: Reg): string {
    return this.#names.get(reg.id)!;
  }
}

/** Every mention of a register, in the order of the text. */
function registersOf(kernel: Kernel): Reg[] {
  const found: Reg[] = [...kernel.params];
  const visit = (statements: readonly Statement[]): void => {
    for (const statement of statements) {
      if (statement.kind === "set") found.push(statement.variable, statement.value);
      else if (statement.kind === "loop") {
        found.push(statement.count);
        visit(statement.body);
      } else {
        if (statement.out) found.push(statement.out);
        found.push(...statement.args);
      }
    }
  };
  visit(kernel.body);
  return found;
}
