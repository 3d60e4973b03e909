// A pass over a kernel before it is lowered to arm64: 4 bytes that a load spreads over a whole vector need not be spread
// where the instructions that read them can take one lane of a register (products and dot products). Then they are loaded
// as they lie in memory, four neighbours at once where there are four.
//
//   a = i8v.load_splat32 [p]+16; dot4 a, w0, s0         q = i8v.load [p]+16
//   b = i8v.load_splat32 [p]+20; dot4 b, w1, s0   ->    dot4 q[0], w0, s0
//   c = i8v.load_splat32 [p]+24; ...                    dot4 q[1], w1, s0; ...
//
// "pairs" takes fewest instructions: a vector is loaded for two neighbours or more. "quads": only for four; the others by
// themselves, which keeps them in registers for a shorter time. "singles" takes fewest registers: a load for each, without
// the spreading. Which lane is read is in the immediate (lane + 1) of ops that have none; such a kernel is for the
// lowering only.
//
// A vector of 16 bytes is loaded only between bytes that the kernel reads anyway, through the same pointer and with nothing
// in between that could move it or change memory.

import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import { type OpName, shapeOf } from "../ir/ops.ts";

export const laneUses = ["pairs", "quads", "singles", "none"] as const;
export type LaneUse = (typeof laneUses)[number];

/** How many neighbours are worth a vector. */
const leastMembers: Readonly<Record<LaneUse, number>> = {
  pairs: 2,
  quads: 4,
  singles: Number.POSITIVE_INFINITY,
  none: Number.POSITIVE_INFINITY,
};

type Op = Extract<Statement, { kind: "op" }>;

const spreads: ReadonlySet<OpName> = new Set([
  "i8v.load_splat32",
  "i32v.load_splat",
  "f32v.load_splat",
]);

/** Ops that can take a lane, and which of their operands, if it is put first. */
const takers: Partial<Record<OpName, readonly number[]>> = {
  "i32v.dot4": [0, 1],
  "i32v.dot4_ss": [0, 1],
  "i32v.mul": [0, 1],
  "f32v.mul": [0, 1],
  "f32v.fma": [0, 1],
  "i32v.shl": [0], // as a product with a power of 2
};

export function useLanes(kernel: Kernel, use: LaneUse): Kernel {
  if (use === "none") return kernel;
  const pass = new LanePass(kernel, use);
  const body = pass.statements(kernel.body);
  return { ...kernel, body, registers: pass.registers };
}

/** Where a spread value is from now on. */
interface Place {
  readonly reg: Reg;
  readonly lane: number;
}

/** Loads through one pointer with nothing in between that matters: which bytes they read, and the spreads among them. */
interface Stretch {
  low: number;
  high: number;
  readonly spreads: Op[];
}

class LanePass {
  registers: number;
  readonly #use: LaneUse;
  /** Results that are only read where a lane will do; by id. */
  readonly #fit: ReadonlySet<number>;
  readonly #places = new Map<number, Place>();

  constructor(kernel: Kernel, use: LaneUse) {
    this.registers = kernel.registers;
    this.#use = use;
    this.#fit = fittingSpreads(kernel.body);
  }

  statements(list: readonly Statement[]): Statement[] {
    const loads = this.#plan(list);
    return list.flatMap((statement): Statement[] => {
      if (statement.kind === "loop") {
        return [{ ...statement, body: this.statements(statement.body) }];
      }
      if (statement.kind === "set") return [statement];
      const load = loads.get(statement);
      if (load) return [load];
      if (statement.out && this.#places.has(statement.out.id)) return []; // part of an earlier load
      return this.#reader(statement);
    });
  }

  /** What stands in the place of some of the spreads: loads for them and for others that follow. */
  #plan(list: readonly Statement[]): Map<Statement, Op> {
    const loads = new Map<Statement, Op>();
    for (const { low, high, spreads: all } of stretches(list)) {
      const left = all.filter(({ out }) => this.#fit.has(out!.id));
      while (left.length > 0) {
        const first = left.reduce((least, each) => (each.imm < least.imm ? each : least));
        const from = quadAt(first.imm, low, high);
        const near = left.filter(({ imm }) => isIn(imm, from));
        const lanes = new Set(near.map(({ imm }) => imm)).size;
        const isVector = lanes >= leastMembers[this.#use];
        const members = isVector ? near : [first];
        for (const member of members) left.splice(left.indexOf(member), 1);
        const [earliest, load] = this.#load(list, members, isVector ? from : undefined);
        loads.set(earliest, load);
      }
    }
    return loads;
  }

  #load(list: readonly Statement[], members: readonly Op[], from: number | undefined): [Op, Op] {
    const earliest = members.reduce((a, b) => (list.indexOf(b) < list.indexOf(a) ? b : a));
    const type = from === undefined ? "f32" : "f32v";
    const out: Reg = { id: this.registers++, type };
    const imm = from ?? earliest.imm;
    for (const member of members) {
      this.#places.set(member.out!.id, { reg: out, lane: (member.imm - imm) / 4 });
    }
    return [earliest, { kind: "op", op: `${type}.load`, args: earliest.args, imm, out }];
  }

  /** An op with the lane that it reads, first; or as it is. */
  #reader(statement: Op): Op[] {
    const { op, args } = statement;
    const index = (takers[op] ?? []).find((i) => this.#places.has(args[i]!.id));
    if (index === undefined) return [statement];
    const { reg, lane } = this.#places.get(args[index]!.id)!;
    if (op === "i32v.shl") {
      const power: Reg = { id: this.registers++, type: "i32v" };
      return [
        { kind: "op", op: "i32v.const", args: [], imm: 1 << statement.imm, out: power },
        { ...statement, op: "i32v.mul", args: [reg, power], imm: lane + 1 },
      ];
    }
    const others = [args[1 - index]!, ...args.slice(2)];
    return [{ ...statement, args: [reg, ...others], imm: lane + 1 }];
  }
}

/** A vector at `from` has the 4 bytes at `at` in one of its lanes. */
function isIn(at: number, from: number | undefined): boolean {
  if (from === undefined) return false;
  return at >= from && at <= from + 12 && (at - from) % 4 === 0;
}

/** Where a vector may be loaded that has the 4 bytes at `at` in one of its lanes. */
function quadAt(at: number, low: number, high: number): number | undefined {
  if (at + 16 <= high) return at;
  const from = at - 4 * Math.ceil((at + 16 - high) / 4);
  return from >= low ? from : undefined;
}

/** Results of spreading loads that only ops read that can take a lane, and one of each op's operands. */
function fittingSpreads(body: readonly Statement[]): Set<number> {
  const spread = new Set<number>();
  const unfit = new Set<number>();
  const look = (list: readonly Statement[]) => {
    for (const statement of list) {
      if (statement.kind === "loop") look(statement.body);
      else if (statement.kind === "set") unfit.add(statement.value.id);
      else {
        const { op, args, out } = statement;
        if (spreads.has(op)) spread.add(out!.id);
        const taken = takers[op] ?? [];
        let isTaken = false;
        args.forEach(({ id }, index) => {
          if (!spread.has(id)) return;
          if (isTaken || !taken.includes(index) || unfit.has(id)) unfit.add(id);
          else isTaken = true;
        });
      }
    }
  };
  look(body);
  return new Set([...spread].filter((id) => !unfit.has(id)));
}

function stretches(list: readonly Statement[]): Stretch[] {
  const done: Stretch[] = [];
  /** By the pointer's id. */
  let open = new Map<number, Stretch>();
  for (const statement of list) {
    if (statement.kind === "set") open.delete(statement.variable.id);
    else if (statement.kind === "loop" || isStore(statement)) open = new Map();
    else if (isLoad(statement)) {
      const { args, imm, op } = statement;
      const stretch = open.get(args[0]!.id) ?? { low: imm, high: imm, spreads: [] };
      if (!open.has(args[0]!.id)) {
        open.set(args[0]!.id, stretch);
        done.push(stretch);
      }
      stretch.low = Math.min(stretch.low, imm);
      stretch.high = Math.max(stretch.high, imm + 4); // at least so many bytes
      if (spreads.has(op)) stretch.spreads.push(statement);
    }
  }
  return done;
}

function isLoad({ op, out }: Op): boolean {
  return out !== undefined && shapeOf(op).imm === "disp";
}

/** Has no result, but a value besides the address: not only a hint. */
function isStore({ out, args }: Op): boolean {
  return out === undefined && args.length > 1;
}
