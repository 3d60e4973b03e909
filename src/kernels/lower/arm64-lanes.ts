// A pass over a kernel before it is lowered to arm64: a splat load of 4 bytes becomes a plain load where the instructions that
// read it can take one lane of a register (multiplications and dot products). Up to four neighbours are loaded at once.
//
//   a = i8v.load_splat32 [p]+16; dot4 a, w0, s0         q = i8v.load [p]+16
//   b = i8v.load_splat32 [p]+20; dot4 b, w1, s0   ->    dot4 q[0], w0, s0
//   c = i8v.load_splat32 [p]+24; ...                    dot4 q[1], w1, s0; ...
//
// "pairs" needs the fewest instructions: a vector is loaded for two neighbours or more. "quads": only for four; the others
// are loaded one by one, which shortens their live ranges. "singles" needs the fewest registers: a load for each, without
// the splat. The lane is in the immediate (lane + 1) of ops that have none, which only the lowering understands.
//
// A vector of 16 bytes is loaded only within the range of bytes that the kernel reads anyway, through the same pointer, with
// nothing in between that moves the pointer or writes memory.

import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import { type OpName, shapeOf } from "../ir/ops.ts";

export const laneUses = ["pairs", "quads", "singles", "none"] as const;
export type LaneUse = (typeof laneUses)[number];

/** The fewest neighbours for which a vector is loaded. */
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

/** Ops that can take a lane, and which of their operands it may be; it becomes the first. */
const takers: Partial<Record<OpName, readonly number[]>> = {
  "i32v.dot4": [0, 1],
  "i32v.dot4_ss": [0, 1],
  "i32v.mul": [0, 1],
  "f32v.mul": [0, 1],
  "f32v.fma": [0, 1],
  "i32v.shl": [0], // as a multiplication by a power of 2
};

export function useLanes(kernel: Kernel, use: LaneUse): Kernel {
  if (use === "none") return kernel;
  const pass = new LanePass(kernel, use);
  const body = pass.statements(kernel.body);
  return { ...kernel, body, registers: pass.registers };
}

/** The register and lane that a splat value is in from now on. */
interface Place {
  readonly reg: Reg;
  readonly lane: number;
}

/** Loads through one pointer with no write in between: the bytes that they read, and the splat loads among them. */
interface Stretch {
  low: number;
  high: number;
  readonly spreads: Op[];
}

class LanePass {
  registers: number;
  readonly #use: LaneUse;
  /** Results that only ops that can take a lane read; by id. */
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

  /** The loads that replace some of the splat loads, and cover others that follow. */
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

  /** An op with the lane that it reads as its first operand; or unchanged. */
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

/** The address of a vector within [low, high) that has the 4 bytes at `at` in one of its lanes. */
function quadAt(at: number, low: number, high: number): number | undefined {
  if (at + 16 <= high) return at;
  const from = at - 4 * Math.ceil((at + 16 - high) / 4);
  return from >= low ? from : undefined;
}

/** Results of splat loads that are read only by ops that can take a lane; at most one operand of each op. */
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
      stretch.high = Math.max(stretch.high, imm + 4); // the end of this load, at least
      if (spreads.has(op)) stretch.spreads.push(statement);
    }
  }
  return done;
}

function isLoad({ op, out }: Op): boolean {
  return out !== undefined && shapeOf(op).imm === "disp";
}

/** Has no result, but an operand besides the address: unlike a prefetch. */
function isStore({ out, args }: Op): boolean {
  return out === undefined && args.length > 1;
}
