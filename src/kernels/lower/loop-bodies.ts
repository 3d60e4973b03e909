// Analyses and rewrites the bodies of innermost loops: which registers are local to a body, copies with new registers, and
// pointers without their increments. Part of schedule.ts.
//
// straighten() moves all increments to the end of the round: a load at `p` after `p += 64` becomes one at `p + 64`.
// Loads then depend on no increment, and several unrolled rounds have one increment, at the end.

import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import { shapeOf } from "../ir/ops.ts";

export type OpStatement = Extract<Statement, { kind: "op" }>;
export type LoopStatement = Extract<Statement, { kind: "loop" }>;

/** A kernel that is being rewritten: makes new registers, and knows how the old ones are used. */
export class Rewriting {
  registers: number;
  readonly #kernel: Kernel;
  readonly #reads: ReadonlyMap<number, number>;
  readonly #constants = new Map<number, number>();

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    this.registers = kernel.registers;
    this.#reads = countReads(kernel.body);
    this.#findConstants(kernel.body);
  }

  /** The kernel with its innermost loops replaced by other statements. */
  innermost(replace: (loop: LoopStatement) => Statement[]): Kernel {
    const walk = (list: readonly Statement[]): Statement[] =>
      list.flatMap((statement) => {
        if (statement.kind !== "loop") return [statement];
        const isInnermost = !statement.body.some(({ kind }) => kind === "loop");
        return isInnermost ? replace(statement) : [{ ...statement, body: walk(statement.body) }];
      });
    const body = walk(this.#kernel.body);
    return { ...this.#kernel, body, registers: this.registers };
  }

  fresh<R extends Reg>(like: R): R {
    return { id: this.registers++, type: like.type } as R;
  }

  /** Appends an op with a result. */
  op(list: Statement[], op: OpStatement["op"], args: readonly Reg[], imm = 0): Reg {
    const out: Reg = { id: this.registers++, type: shapeOf(op).out! };
    list.push({ kind: "op", op, args, imm, out });
    if (op === "i32.const") this.#constants.set(out.id, imm);
    return out;
  }

  constantOf({ id }: Reg): number | undefined {
    return this.#constants.get(id);
  }

  /** Variables that a body sets before it reads them, and that nothing else reads: each round can have its own. */
  locals(body: readonly Statement[]): Set<number> {
    const inBody = countReads(body);
    const locals = new Set<number>();
    const seen = new Set<number>();
    for (const statement of body) {
      for (const { id } of readsOf(statement)) seen.add(id);
      if (statement.kind !== "set") continue;
      const { id } = statement.variable;
      if (!seen.has(id) && inBody.get(id) === this.#reads.get(id)) locals.add(id);
      seen.add(id);
    }
    return locals;
  }

  /** A copy of the body with new registers. Adds its local variables to `locals`. */
  copy(body: readonly Statement[], locals: Set<number>): Statement[] {
    const own = new Map<number, Reg>();
    const use = (reg: Reg): Reg => own.get(reg.id) ?? reg;
    const make = (reg: Reg): Reg => {
      const known = own.get(reg.id);
      if (known) return known;
      const made = this.fresh(reg);
      own.set(reg.id, made);
      const constant = this.#constants.get(reg.id);
      if (constant !== undefined) this.#constants.set(made.id, constant);
      if (locals.has(reg.id)) locals.add(made.id);
      return made;
    };
    return body.map((statement): Statement => {
      if (statement.kind === "op") {
        const args = statement.args.map(use);
        return { ...statement, args, out: statement.out && make(statement.out) };
      }
      if (statement.kind === "loop") throw new Error("a body with a loop is not copied");
      const value = use(statement.value);
      const { variable } = statement;
      return { kind: "set", variable: locals.has(variable.id) ? make(variable) : variable, value };
    });
  }

  #findConstants(list: readonly Statement[]): void {
    for (const statement of list) {
      if (statement.kind === "loop") this.#findConstants(statement.body);
      else if (statement.kind === "op" && statement.op === "i32.const") {
        this.#constants.set(statement.out!.id, statement.imm | 0);
      }
    }
  }
}

export function readsOf(statement: Statement): readonly Reg[] {
  if (statement.kind === "op") return statement.args;
  return statement.kind === "set" ? [statement.value] : [statement.count];
}

function countReads(list: readonly Statement[], reads = new Map<number, number>()) {
  for (const statement of list) {
    for (const { id } of readsOf(statement)) reads.set(id, (reads.get(id) ?? 0) + 1);
    if (statement.kind === "loop") countReads(statement.body, reads);
  }
  return reads;
}

/** A pointer as a byte offset from the value of `root` at the beginning of the round. */
export interface PointerPlace {
  readonly root: Reg;
  readonly bytes: number;
}

export interface StraightBody {
  /** The body, with pointers as they are at its beginning. */
  readonly statements: readonly Statement[];
  /** The increments that lead to the next round. */
  readonly end: readonly Statement[];
  /** The increment of `root` from one round to the next; undefined: it is not constant. */
  stepOf(root: Reg): number | undefined;
  /** Computes the first value of `root` before the loop. */
  rootBefore(root: Reg, list: Statement[]): Reg;
}

/** undefined: pointers change in other ways than by increments, and the body stays as it is. */
export function straighten(
  rewriting: Rewriting,
  body: readonly Statement[],
  locals: ReadonlySet<number>,
): StraightBody | undefined {
  return new Straightener(rewriting, body, locals).run();
}

/** Displacements are not negative, and far below what an instruction can have. */
const MOST_DISPLACEMENT = 2 ** 30;

class Straightener {
  readonly #rewriting: Rewriting;
  readonly #body: readonly Statement[];
  readonly #locals: ReadonlySet<number>;
  readonly #statements: Statement[] = [];
  /** The roots and offsets of pointers that the body makes or sets. */
  readonly #places = new Map<number, PointerPlace>();
  /** Sums of a root and a number that is constant in the body, by both; and their operands. */
  readonly #sums = new Map<string, Reg>();
  readonly #sumOf = new Map<number, { readonly root: Reg; readonly by: Reg }>();
  readonly #made = new Set<number>();
  readonly #pointers = new Map<number, Reg>();
  readonly #changed = new Set<number>();

  constructor(rewriting: Rewriting, body: readonly Statement[], locals: ReadonlySet<number>) {
    this.#rewriting = rewriting;
    this.#body = body;
    this.#locals = locals;
    for (const statement of body) {
      if (statement.kind === "set") this.#changed.add(statement.variable.id);
      else if (statement.kind === "op" && statement.out) this.#changed.add(statement.out.id);
    }
  }

  run(): StraightBody | undefined {
    for (const statement of this.#body) {
      if (statement.kind === "loop") return undefined;
      if (statement.kind === "op") this.#op(statement);
      else this.#set(statement.variable, statement.value);
    }
    const end = this.#end();
    return (
      end && {
        statements: this.#statements,
        end,
        stepOf: (root) => this.#stepOf(root),
        rootBefore: (root, list) => this.#rootBefore(root, list),
      }
    );
  }

  #op(statement: OpStatement): void {
    const { op, args, out } = statement;
    if (op === "ptr.add" && this.#moves(args[0]!, args[1]!, out!)) return;
    const hasDisplacement = shapeOf(op).imm === "disp";
    let { imm } = statement;
    const used = args.map((arg) => {
      if (arg.type !== "ptr") return arg;
      const { root, bytes } = this.#placeOf(arg);
      if (bytes === 0) return root;
      if (hasDisplacement && imm + bytes >= 0 && imm + bytes < MOST_DISPLACEMENT) {
        imm += bytes;
        return root;
      }
      return this.#at({ root, bytes });
    });
    this.#statements.push({ ...statement, args: used, imm });
    if (out?.type === "ptr") this.#made.add(out.id);
  }

  /** Records the sum of a pointer and a number as an offset; false: the number changes in the body. */
  #moves(from: Reg, by: Reg, out: Reg): boolean {
    const { root, bytes } = this.#placeOf(from);
    const constant = this.#rewriting.constantOf(by);
    if (constant !== undefined) {
      this.#places.set(out.id, { root, bytes: bytes + constant });
      return true;
    }
    if (this.#changed.has(by.id)) return false;
    const key = `${root.id} ${by.id}`;
    let sum = this.#sums.get(key);
    if (!sum) {
      sum = this.#rewriting.op(this.#statements, "ptr.add", [root, by]);
      this.#sums.set(key, sum);
      this.#sumOf.set(sum.id, { root, by });
    }
    this.#places.set(out.id, { root: sum, bytes });
    return true;
  }

  #set(variable: Reg, value: Reg): void {
    if (variable.type !== "ptr") this.#statements.push({ kind: "set", variable, value });
    else {
      this.#places.set(variable.id, this.#placeOf(value));
      this.#pointers.set(variable.id, variable);
    }
  }

  #placeOf(pointer: Reg): PointerPlace {
    return this.#places.get(pointer.id) ?? { root: pointer, bytes: 0 };
  }

  #at({ root, bytes }: PointerPlace, list: Statement[] = this.#statements): Reg {
    if (bytes === 0) return root;
    const by = this.#rewriting.op(list, "i32.const", [], bytes);
    return this.#rewriting.op(list, "ptr.add", [root, by]);
  }

  /** Increments come last, since other variables may be set to the old values. */
  #end(): Statement[] | undefined {
    const others: Statement[] = [];
    const steps: Statement[] = [];
    for (const variable of this.#pointers.values()) {
      const place = this.#places.get(variable.id)!;
      if (place.root.id === variable.id) {
        if (place.bytes === 0) continue;
        steps.push({ kind: "set", variable, value: this.#at(place, steps) });
      } else if (!this.#locals.has(variable.id)) {
        others.push({ kind: "set", variable, value: this.#at(place, others) });
        // Another variable is set to the old value of this one: not an increment.
        const { id } = variable;
        if ([...this.#places.values()].some(({ root }) => root.id === id)) return undefined;
      }
    }
    return [...others, ...steps];
  }

  #stepOf(root: Reg): number | undefined {
    const sum = this.#sumOf.get(root.id);
    if (sum) return this.#stepOf(sum.root);
    if (this.#made.has(root.id)) return undefined;
    const place = this.#placeOf(root);
    return place.root.id === root.id ? place.bytes : undefined;
  }

  #rootBefore(root: Reg, list: Statement[]): Reg {
    const sum = this.#sumOf.get(root.id);
    if (!sum) return root;
    return this.#rewriting.op(list, "ptr.add", [this.#rootBefore(sum.root, list), sum.by]);
  }
}
