// A pass over a kernel before it is lowered to arm64: two ops that one instruction of arm64 can do become one op of the IR
// that is lowered to it. What is left over unread is dropped later (linear.ts).
//
//   a field's upper bits   and(32-bit lanes >> s, bytes of 0xff >> s)   ->   bytes >> s
//
// Kernels write the first because most targets cannot shift bytes.

import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import type { OpName } from "../ir/ops.ts";

type Op = Extract<Statement, { kind: "op" }>;

export function foldOps(kernel: Kernel): Kernel {
  const results = new Map<number, Op>();
  collect(kernel.body, results);
  return { ...kernel, body: fold(kernel.body, results) };
}

/** What computes each register that is set once. */
function collect(list: readonly Statement[], results: Map<number, Op>): void {
  for (const statement of list) {
    if (statement.kind === "loop") collect(statement.body, results);
    else if (statement.kind === "op" && statement.out) results.set(statement.out.id, statement);
  }
}

function fold(list: readonly Statement[], results: ReadonlyMap<number, Op>): Statement[] {
  return list.map((statement) => {
    if (statement.kind === "loop") return { ...statement, body: fold(statement.body, results) };
    return statement.kind === "op" ? byteShift(statement, results) : statement;
  });
}

const casts: ReadonlySet<OpName> = new Set(["i8v.as_i32v", "i32v.as_i8v"]);

/** The register whose bits a register has under another type. */
function uncast(reg: Reg, results: ReadonlyMap<number, Op>): Reg {
  const made = results.get(reg.id);
  return made && casts.has(made.op) ? uncast(made.args[0]!, results) : reg;
}

function byteShift(statement: Op, results: ReadonlyMap<number, Op>): Op {
  if (statement.op !== "i8v.and") return statement;
  for (const [value, mask] of [statement.args, statement.args.toReversed()]) {
    const shift = results.get(uncast(value!, results).id);
    const constant = results.get(mask!.id);
    if (shift?.op !== "i32v.shr_u" || constant?.op !== "i8v.splat") continue;
    const raw = uncast(shift.args[0]!, results);
    // A variable may have changed since the lanes were shifted.
    if (!results.has(raw.id) || shift.imm > 7 || constant.imm !== 0xff >> shift.imm) continue;
    return { ...statement, op: "i8v.shr_u", args: [raw], imm: shift.imm };
  }
  return statement;
}
