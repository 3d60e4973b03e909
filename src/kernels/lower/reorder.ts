// List scheduling of a loop body without branches: orders statements so that reads of a register follow its write, writes
// follow earlier reads, and loads and stores keep their order around stores. Part of schedule.ts.

import type { Statement } from "../ir/kernel.ts";
import { type OpName, shapeOf } from "../ir/ops.ts";
import { readsOf } from "./loop-bodies.ts";
import { isStore, isWholeLoad } from "./pipeline.ts";

/** The order of the statements of a loop's body. */
export type LoadOrder =
  /** As the kernel is written: each load before its first use. */
  | "written"
  /** Loads first, as far as they depend on nothing else. */
  | "early"
  /** The longest critical path first, which interleaves the chains of dot products. */
  | "interleaved";

/** Statements that stay together: an op, and the assignment of its result to a variable. */
interface Unit {
  readonly statements: readonly Statement[];
  /** Indices of the units that must come before, and of those that depend on this one. */
  readonly before: Set<number>;
  readonly after: Set<number>;
  readonly isPrefetch: boolean;
  readonly isLoad: boolean;
  /** The length in cycles of the critical path from here to the end of the body. */
  height: number;
}

/** Approximate latencies in cycles, 1 for other ops. Only the order of heights matters. */
const LOAD_CYCLES = 6;
const cycles: Partial<Record<OpName, number>> = {
  "i32v.dot4": 5,
  "i32v.dot4_ss": 6,
  "f32v.fma": 4,
  "f32v.mul": 4,
  "f32v.add": 4,
  "f32v.from_i32v": 4,
};

/** Of the units that are ready, the one with the smallest rank comes next; of equal ranks, the first as written. */
type Rank = (unit: Unit) => number;

const ranks: Readonly<Record<Exclude<LoadOrder, "written">, Rank>> = {
  early: ({ isPrefetch, isLoad }) => (isPrefetch ? 0 : isLoad ? 1 : 2),
  interleaved: ({ isPrefetch, height }) => (isPrefetch ? Number.NEGATIVE_INFINITY : -height),
};

export function reorder(statements: readonly Statement[], order: LoadOrder): readonly Statement[] {
  if (order === "written" || !statements.every(isKnown)) return statements;
  const units = unitsOf(statements);
  connect(units);
  for (const unit of units.toReversed()) {
    const rest = [...unit.after].map((index) => units[index]!.height);
    unit.height = cyclesOf(unit) + Math.max(0, ...rest);
  }
  return arranged(units, ranks[order]);
}

/** A body with other effects than loads, stores and prefetches is not reordered. */
function isKnown(statement: Statement): boolean {
  if (statement.kind !== "op") return statement.kind === "set";
  const { imm, out } = shapeOf(statement.op);
  return out !== undefined || imm === "disp";
}

function unitsOf(statements: readonly Statement[]): Unit[] {
  const units: Unit[] = [];
  for (let i = 0; i < statements.length; i++) {
    const statement = statements[i]!;
    const next = statements[i + 1];
    const isOp = statement.kind === "op";
    const isPair = isOp && next?.kind === "set" && next.value.id === statement.out?.id;
    units.push({
      statements: isPair ? [statement, next] : [statement],
      before: new Set(),
      after: new Set(),
      isPrefetch: isOp && statement.op === "ptr.prefetch",
      isLoad: isOp && isWholeLoad(statement),
      height: 0,
    });
    if (isPair) i++;
  }
  return units;
}

function connect(units: readonly Unit[]): void {
  const link = (from: number | undefined, to: number) => {
    if (from === undefined || from === to) return;
    units[from]!.after.add(to);
    units[to]!.before.add(from);
  };
  const writer = new Map<number, number>();
  const readers = new Map<number, number[]>();
  let lastStore: number | undefined;
  let loads: number[] = [];
  units.forEach(({ statements }, at) => {
    for (const statement of statements) {
      for (const { id } of readsOf(statement)) {
        link(writer.get(id), at);
        readers.set(id, [...(readers.get(id) ?? []), at]);
      }
    }
    for (const statement of statements) {
      const out = statement.kind === "set" ? statement.variable : outOf(statement);
      if (out) {
        link(writer.get(out.id), at);
        for (const reader of readers.get(out.id) ?? []) link(reader, at);
        readers.set(out.id, []);
        writer.set(out.id, at);
      }
      if (statement.kind !== "op" || shapeOf(statement.op).imm !== "disp") continue;
      if (statement.op === "ptr.prefetch") continue;
      link(lastStore, at);
      if (isStore(statement)) {
        for (const load of loads) link(load, at);
        loads = [];
        lastStore = at;
      } else loads.push(at);
    }
  });
}

function outOf(statement: Statement) {
  return statement.kind === "op" ? statement.out : undefined;
}

function cyclesOf({ statements: [first] }: Unit): number {
  if (first?.kind !== "op") return 0;
  const { imm, out } = shapeOf(first.op);
  return imm === "disp" && out !== undefined ? LOAD_CYCLES : (cycles[first.op] ?? 1);
}

function arranged(units: readonly Unit[], rank: Rank): Statement[] {
  const waiting = units.map(({ before }) => before.size);
  // Sorted by rank, then by index: the first is taken.
  const ready: number[] = [];
  const ranked = units.map(rank);
  const isSooner = (a: number, b: number) =>
    ranked[a]! < ranked[b]! || (ranked[a] === ranked[b] && a < b);
  const insert = (index: number) => {
    let at = ready.length;
    while (at > 0 && isSooner(index, ready[at - 1]!)) at--;
    ready.splice(at, 0, index);
  };
  for (const [index, count] of waiting.entries()) if (count === 0) insert(index);
  const done: Statement[] = [];
  for (let next = ready.shift(); next !== undefined; next = ready.shift()) {
    done.push(...units[next]!.statements);
    for (const after of units[next]!.after) if (--waiting[after]! === 0) insert(after);
  }
  return done;
}
