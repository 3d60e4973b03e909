// Software pipelining of a loop: the weights of a round are loaded in the round before, each vector right after its last
// read, into the same register. Part of schedule.ts.
//
//   loop n: { v = load p; use v; p += 64 }
//   v = load p; loop n - 1: { use v; v = load p + 64; p += 64 }; use v; p += 64
//
// The loop loads the same bytes as before. A loop with stores, or with pointers that do not just step, stays as it is.

import type { Reg, Statement } from "../ir/kernel.ts";
import { isVector, type OpName, shapeOf } from "../ir/ops.ts";
import {
  type OpStatement,
  type Rewriting,
  readsOf,
  type StraightBody,
  straighten,
} from "./loop-bodies.ts";

export interface Pipelined {
  /** Before the first round. */
  readonly front: Statement[];
  /** Statements of every round but the last. */
  readonly body: Statement[];
  readonly last: Statement[];
}

/** Ops that give the same bits another type: a read of their result is a read of the loaded value. */
const casts: ReadonlySet<OpName> = new Set(["i8v.as_i32v", "i32v.as_i8v", "i32v.as_f32v"]);

/** Whole vectors are weights. Splat loads are activations, which are memory operands on most targets. */
export function isWholeLoad({ op, out }: OpStatement): boolean {
  return shapeOf(op).imm === "disp" && out !== undefined && isVector(out.type) && !isSplat(op);
}

function isSplat(op: OpName): boolean {
  return op.includes("splat");
}

export function isStore({ op }: OpStatement): boolean {
  const { imm, out } = shapeOf(op);
  return imm === "disp" && out === undefined && op !== "ptr.prefetch";
}

/** undefined: there is nothing to load sooner. */
export function pipeline(
  rewriting: Rewriting,
  body: readonly Statement[],
  locals: Set<number>,
): Pipelined | undefined {
  const straight = straighten(rewriting, body, locals);
  if (!straight || straight.statements.some((one) => one.kind === "op" && isStore(one))) {
    return undefined;
  }
  const loads = loadsAhead(straight);
  if (loads.size === 0) return undefined;
  const front: Statement[] = [];
  const kept = new Map<number, Reg>();
  for (const { op, args, imm, out } of loads.values()) {
    const loaded = rewriting.op(front, op, [straight.rootBefore(args[0]!, front)], imm);
    const variable = rewriting.fresh(out!);
    front.push({ kind: "set", variable, value: loaded });
    kept.set(out!.id, variable);
  }
  const round = (isLast: boolean): Statement[] => [
    ...roundOf(rewriting, straight, loads, kept, isLast),
    ...straight.end,
  ];
  return { front, body: round(false), last: rewriting.copy(round(true), locals) };
}

/** The loads whose address in the next round is known, by result. */
function loadsAhead({ statements, stepOf }: StraightBody): Map<number, OpStatement> {
  const loads = new Map<number, OpStatement>();
  for (const statement of statements) {
    if (statement.kind !== "op" || !isWholeLoad(statement)) continue;
    const step = stepOf(statement.args[0]!) ?? 0;
    if (step !== 0 && statement.imm + step >= 0) loads.set(statement.out!.id, statement);
  }
  for (const statement of statements) {
    if (statement.kind === "set") loads.delete(statement.value.id);
  }
  return loads;
}

function roundOf(
  rewriting: Rewriting,
  { statements, stepOf }: StraightBody,
  loads: ReadonlyMap<number, OpStatement>,
  kept: ReadonlyMap<number, Reg>,
  isLast: boolean,
): Statement[] {
  const after = isLast ? new Map<number, OpStatement[]>() : lastReaders(statements, loads);
  const round: Statement[] = [];
  statements.forEach((statement, index) => {
    if (statement.kind !== "op") round.push(statement);
    else if (!loads.has(statement.out?.id ?? -1)) {
      round.push({ ...statement, args: statement.args.map((arg) => kept.get(arg.id) ?? arg) });
    }
    for (const { op, args, imm, out } of after.get(index) ?? []) {
      const value = rewriting.op(round, op, args, imm + stepOf(args[0]!)!);
      round.push({ kind: "set", variable: kept.get(out!.id)!, value });
    }
  });
  return round;
}

/** For each statement (by index), the loads that it is the last to read. */
function lastReaders(
  statements: readonly Statement[],
  loads: ReadonlyMap<number, OpStatement>,
): Map<number, OpStatement[]> {
  const loadOf = new Map([...loads.keys()].map((id) => [id, id]));
  const last = new Map<number, number>();
  statements.forEach((statement, index) => {
    // An op and the variable that it writes stay together.
    const next = statements[index + 1];
    const isPair =
      statement.kind === "op" && next?.kind === "set" && next.value.id === statement.out?.id;
    for (const { id } of readsOf(statement)) {
      const load = loadOf.get(id);
      if (load === undefined) continue;
      last.set(load, isPair ? index + 1 : index);
      if (statement.kind === "op" && casts.has(statement.op)) loadOf.set(statement.out!.id, load);
    }
    const own = statement.kind === "op" ? statement.out?.id : undefined;
    if (own !== undefined && loads.has(own) && !last.has(own)) last.set(own, index);
  });
  const after = new Map<number, OpStatement[]>();
  for (const [load, index] of last) {
    after.set(index, [...(after.get(index) ?? []), loads.get(load)!]);
  }
  return after;
}
