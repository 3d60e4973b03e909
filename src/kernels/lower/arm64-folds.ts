// A peephole pass over a kernel before it is lowered to arm64: patterns of ops that arm64 does in fewer instructions become
// ops that are lowered to these. Results that nothing reads any more are dropped.
//
//   the top bits of bytes     and(32-bit lanes >> s, bytes of 0xff >> s)   ->   bytes >> s
//   fields of several bytes   or(the top bits of a, of b >> 2, of c >> 4)  ->   one op for a shift and two insertions (SRI)
//   a shifted difference      (a - b) << n of splat loads                  ->   (a << n) - (b << n), which arm64-lanes.ts
//                                                                               turns into multiplications by lane
//   dot products of casts     dot4(cast of a splat load, ...)              ->   dot4(the load, ...), for the same reason
//
// Kernels have the left-hand side because most targets cannot shift bytes, and only this one inserts bits.

import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import type { OpName } from "../ir/ops.ts";

type Op = Extract<Statement, { kind: "op" }>;
type Results = ReadonlyMap<number, Op>;

export function foldOps(kernel: Kernel): Kernel {
  const results = new Map<number, Op>();
  collect(kernel.body, results);
  let { registers } = kernel;
  const newReg = (): Reg => ({ id: registers++, type: "i32v" });
  const body = fold(kernel.body, results, newReg);
  return { ...kernel, body: withoutUnread(body, readsIn(body)), registers };
}

/** The number of reads of each register. */
function readsIn(
  list: readonly Statement[],
  reads: Map<number, number> = new Map(),
): Map<number, number> {
  const read = ({ id }: Reg) => reads.set(id, (reads.get(id) ?? 0) + 1);
  for (const statement of list) {
    if (statement.kind === "op") statement.args.forEach(read);
    else if (statement.kind === "set") read(statement.value);
    else {
      read(statement.count);
      readsIn(statement.body, reads);
    }
  }
  return reads;
}

/** From the end backwards, so that the operands of a dropped op are dropped, too. */
function withoutUnread(list: readonly Statement[], reads: Map<number, number>): Statement[] {
  const kept: Statement[] = [];
  for (const statement of list.toReversed()) {
    if (statement.kind === "loop") {
      kept.push({ ...statement, body: withoutUnread(statement.body, reads) });
    } else if (statement.kind === "set" || !statement.out || reads.get(statement.out.id)) {
      kept.push(statement);
    } else for (const { id } of statement.args) reads.set(id, reads.get(id)! - 1);
  }
  return kept.reverse();
}

/** Collects the op of each register that is set once. */
function collect(list: readonly Statement[], results: Map<number, Op>): void {
  for (const statement of list) {
    if (statement.kind === "loop") collect(statement.body, results);
    else if (statement.kind === "op" && statement.out) results.set(statement.out.id, statement);
  }
}

function fold(list: readonly Statement[], results: Results, newReg: () => Reg): Statement[] {
  return list.flatMap((statement): Statement[] => {
    if (statement.kind === "set") return [statement];
    if (statement.kind === "loop") {
      return [{ ...statement, body: fold(statement.body, results, newReg) }];
    }
    if (statement.op === "i8v.and") return [byteShift(statement, results)];
    if (statement.op === "i8v.or") return [insertions(statement, results)];
    if (dots.has(statement.op)) {
      return [{ ...statement, args: statement.args.map((arg) => withoutCast(arg, results)) }];
    }
    return statement.op === "i32v.shl"
      ? shiftedDifference(statement, results, newReg)
      : [statement];
  });
}

const casts: ReadonlySet<OpName> = new Set(["i8v.as_i32v", "i32v.as_i8v"]);

const dots: ReadonlySet<OpName> = new Set(["i32v.dot4", "i32v.dot4_ss"]);

/** The operand of a cast, unless it is a variable, which may have changed since. */
function withoutCast(reg: Reg, results: Results): Reg {
  const raw = uncast(reg, results);
  return results.has(raw.id) ? raw : reg;
}

/** The register whose bits a register has under another type. */
function uncast(reg: Reg, results: Results): Reg {
  const made = results.get(reg.id);
  return made && casts.has(made.op) ? uncast(made.args[0]!, results) : reg;
}

/** The bytes of `raw`, whose 32-bit lanes are shifted right by `by`, masked by `mask`. */
interface Field {
  readonly raw: Reg;
  readonly by: number;
  readonly mask: number;
}

/** undefined: the op is something else. */
function fieldOf({ op, args }: Op, results: Results): Field | undefined {
  if (op !== "i8v.and") return undefined;
  for (const [value, mask] of [args, args.toReversed()]) {
    const constant = results.get(mask!.id);
    const shift = results.get(uncast(value!, results).id);
    if (constant?.op !== "i8v.splat" || shift?.op !== "i32v.shr_u" || shift.imm > 7) continue;
    const raw = uncast(shift.args[0]!, results);
    // A variable may have changed since the lanes were shifted.
    if (results.has(raw.id)) return { raw, by: shift.imm, mask: constant.imm & 255 };
  }
  return undefined;
}

function byteShift(statement: Op, results: Results): Op {
  const field = fieldOf(statement, results);
  if (!field || field.mask !== 0xff >> field.by) return statement;
  return { ...statement, op: "i8v.shr_u", args: [field.raw], imm: field.by };
}

/**
 * i8v.or of several registers, that of the uppermost field first. Each is shifted right by an octal digit of the immediate
 * (the lowest digit is the first register's), and replaces the bits of those before it from there downwards.
 */
function insertions(statement: Op, results: Results): Op {
  const fields = leavesOf(statement, results)?.sort((a, b) => b.mask - a.mask);
  if (!fields) return statement;
  let above = 0;
  for (const { by, mask } of fields.toReversed()) {
    // The field must reach from where the last one ended to the byte's top, so that nothing else is inserted.
    if (mask + above + 1 !== 1 << (8 - by) || (mask & above) !== 0) return statement;
    above |= mask;
  }
  const imm = fields.reduce((digits, { by }, i) => digits + by * 8 ** i, 0);
  return { ...statement, args: fields.map(({ raw }) => raw), imm };
}

function leavesOf({ args }: Op, results: Results): Field[] | undefined {
  const leaves: Field[] = [];
  for (const arg of args) {
    const made = results.get(arg.id);
    const field = made && fieldOf(made, results);
    const more = field ? [field] : made?.op === "i8v.or" ? leavesOf(made, results) : undefined;
    if (!more) return undefined;
    leaves.push(...more);
  }
  return leaves;
}

function shiftedDifference(statement: Op, results: Results, newReg: () => Reg): Op[] {
  const difference = results.get(statement.args[0]!.id);
  if (difference?.op !== "i32v.sub") return [statement];
  const isSpread = ({ id }: Reg) => results.get(id)?.op === "i32v.load_splat";
  if (!difference.args.every(isSpread)) return [statement];
  const shifted = difference.args.map((arg): Op => ({ ...statement, args: [arg], out: newReg() }));
  const args = shifted.map(({ out }) => out!);
  return [...shifted, { ...difference, args, out: statement.out }];
}
