// Schedules the innermost loops of a kernel: unrolls them, reorders loads, loads weights a round ahead. From IR to IR, before
// a lowering to machine code; results are the same bits, since each value is computed by the same ops from the same values.
// The lowering refuses a kernel that no longer fits the registers.
//   loop-bodies.ts  registers local to a body; pointers without their increments
//   pipeline.ts     loads a round ahead
//   reorder.ts      the order of a body's statements

import type { Kernel, Reg, Statement } from "../ir/kernel.ts";
import { type LoopStatement, Rewriting, straighten } from "./loop-bodies.ts";
import { pipeline } from "./pipeline.ts";
import { type LoadOrder, reorder } from "./reorder.ts";

export interface LoopSchedule {
  /** Rounds of an innermost loop that are unrolled. */
  readonly unroll: 1 | 2 | 4;
  readonly order: LoadOrder;
  /** Weights of a round are loaded in the round before it. */
  readonly pipelined: boolean;
}

export function scheduled(kernel: Kernel, schedule: LoopSchedule): Kernel {
  const { unroll, order, pipelined } = schedule;
  if (unroll === 1 && order === "written" && !pipelined) return kernel;
  const rewriting = new Rewriting(kernel);
  return rewriting.innermost((loop) => new LoopScheduler(rewriting, loop, schedule).run());
}

class LoopScheduler {
  readonly #rewriting: Rewriting;
  readonly #loop: LoopStatement;
  readonly #schedule: LoopSchedule;
  readonly #locals: Set<number>;

  constructor(rewriting: Rewriting, loop: LoopStatement, schedule: LoopSchedule) {
    this.#rewriting = rewriting;
    this.#loop = loop;
    this.#schedule = schedule;
    this.#locals = rewriting.locals(loop.body);
  }

  run(): Statement[] {
    const { count, body } = this.#loop;
    const rewriting = this.#rewriting;
    const ahead = this.#schedule.pipelined ? pipeline(rewriting, body, this.#locals) : undefined;
    if (!ahead) return this.#rounds(count, body);
    const constant = rewriting.constantOf(count);
    if (constant !== undefined && constant <= 0) return [this.#loop];
    const inside = [...ahead.front];
    const fewer =
      constant === undefined ? this.#lessOne(inside, count) : this.#number(inside, constant - 1);
    inside.push(...this.#rounds(fewer, ahead.body), ...this.#arranged(ahead.last));
    if (constant !== undefined) return inside;
    // A loop of no rounds must load nothing: a loop of one round or none encloses it all.
    const list: Statement[] = [];
    const isAny = this.#isPositive(list, count);
    return [...list, { kind: "loop", count: isAny, body: inside }];
  }

  /** So many rounds of a body, unrolled, and a loop for the remainder. */
  #rounds(count: Reg<"i32">, body: readonly Statement[]): Statement[] {
    const { unroll } = this.#schedule;
    const loop = (times: Reg<"i32">, inside: readonly Statement[]): Statement => ({
      kind: "loop",
      count: times,
      body: this.#arranged(inside),
    });
    if (unroll === 1) return [loop(count, body)];
    const rewriting = this.#rewriting;
    const several = Array.from({ length: unroll - 1 }, () => rewriting.copy(body, this.#locals));
    const written = [...body, ...several.flat()];
    const constant = rewriting.constantOf(count);
    const list: Statement[] = [];
    if (constant !== undefined) {
      const [most, rest] = [Math.floor(constant / unroll), constant % unroll];
      if (most > 0) list.push(loop(this.#number(list, most), written));
      if (rest > 0) list.push(loop(this.#number(list, rest), rewriting.copy(body, this.#locals)));
      return list;
    }
    const all = rewriting.op(list, "i32.mul", [count, this.#isNotNegative(list, count)]);
    const most = rewriting.op(list, "i32.shr_u", [all], Math.log2(unroll));
    const done = rewriting.op(list, "i32.mul", [most, this.#number(list, unroll)]);
    const rest = rewriting.op(list, "i32.sub", [all, done]);
    list.push(loop(most as Reg<"i32">, written));
    list.push(loop(rest as Reg<"i32">, rewriting.copy(body, this.#locals)));
    return list;
  }

  #arranged(body: readonly Statement[]): Statement[] {
    const straight = straighten(this.#rewriting, body, this.#locals);
    const { order } = this.#schedule;
    if (!straight) return [...reorder(body, order)];
    return [...reorder(straight.statements, order), ...straight.end];
  }

  #number(list: Statement[], value: number): Reg<"i32"> {
    return this.#rewriting.op(list, "i32.const", [], value) as Reg<"i32">;
  }

  /** 1 or 0, from the sign bit. */
  #isNotNegative(list: Statement[], number: Reg): Reg<"i32"> {
    const sign = this.#rewriting.op(list, "i32.shr_u", [number], 31);
    return this.#rewriting.op(list, "i32.sub", [this.#number(list, 1), sign]) as Reg<"i32">;
  }

  #isPositive(list: Statement[], number: Reg): Reg<"i32"> {
    return this.#isNotNegative(list, this.#lessOne(list, number));
  }

  #lessOne(list: Statement[], number: Reg): Reg<"i32"> {
    return this.#rewriting.op(list, "i32.sub", [number, this.#number(list, 1)]) as Reg<"i32">;
  }
}
