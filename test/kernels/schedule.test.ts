// Scheduled kernels compute what they did before: random ones as the interpreter and as prepared machine code, with every
// knob; and what each knob does to a small loop.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel, Statement } from "../../src/kernels/ir/kernel.ts";
import type { Semantics } from "../../src/kernels/ir/meanings.ts";
import { print } from "../../src/kernels/ir/print.ts";
import { verify } from "../../src/kernels/ir/verify.ts";
import { knobNames, knobWords, splitKnobs, turned } from "../../src/kernels/knobs.ts";
import { KernelRefused, type MachineTarget } from "../../src/kernels/lower/machine.ts";
import { type LoopSchedule, scheduled } from "../../src/kernels/lower/schedule.ts";
import { toMachine } from "../../src/kernels/lower/to-machine.ts";
import { runMachine } from "./machine-runner.ts";
import { randomArgs, randomKernel, randomMemory, regions } from "./random-kernels.ts";
import { firstDifference } from "./same-memory.ts";

const semantics: Semantics = { dot4: "i7", fused: false };
const up = (count: number) => [...new Array(count).keys()];

const schedules: readonly LoopSchedule[] = ([1, 2, 4] as const).flatMap((unroll) =>
  (["written", "early", "interleaved"] as const).flatMap((order) =>
    [false, true].map((pipelined) => ({ unroll, order, pipelined })),
  ),
);

/** Sums of 16-byte vectors times 3, four streams in turns; w and x move. */
function sums(): Kernel {
  const k = new KernelBuilder("sums", 16);
  const [w, out] = [k.param("ptr", "w"), k.param("ptr", "out")];
  const [count, apart] = [k.param("i32", "count"), k.param("i32", "apart")];
  const total = [0, 1, 2, 3].map(() => k.variable(k.op("i32v.const", [], 0)));
  const at = [0, 1, 2, 3].map(() => k.variable(w));
  k.loop(count, () => {
    at.forEach((pointer, s) => {
      k.set(pointer, s === 0 ? w : k.op("ptr.add", [at[s - 1]!, apart]));
    });
    at.forEach((pointer, s) => {
      const codes = k.op("i8v.load", [pointer]);
      const low = k.op("i8v.and", [codes, k.op("i8v.splat", [], 15)]);
      const high = k.op("i32v.shr_u", [k.op("i8v.as_i32v", [codes])], 4);
      const sum = k.op("i32v.add", [high, k.op("i8v.as_i32v", [low])]);
      k.update(total[s]!, "i32v.add", [total[s]!, sum]);
    });
    k.advance(w, 16);
  });
  for (const [s, sum] of total.entries()) k.op("i32v.store", [out, sum], 16 * s);
  return k.finish();
}

function sumsOf(kernel: Kernel, count: number): Int32Array {
  const memory = new Uint8Array(4096).map((_, i) => i * 37 + (i >> 3));
  interpret(kernel, memory.buffer, [0, 2048, count, 256], semantics);
  return new Int32Array(memory.buffer, 2048, 16);
}

function loopsIn(list: readonly Statement[]): Extract<Statement, { kind: "loop" }>[] {
  return list.flatMap((one) => (one.kind === "loop" ? [one, ...loopsIn(one.body)] : []));
}

describe.each(schedules)("unroll $unroll, $order, pipelined: $pipelined", (schedule) => {
  test("60 random kernels leave the same memory", () => {
    for (const seed of up(60)) {
      const kernel = randomKernel(seed);
      const changed = scheduled(kernel, schedule);
      verify(changed);
      const [meant, got] = [randomMemory(seed), randomMemory(seed)];
      interpret(kernel, meant.buffer, randomArgs, semantics);
      interpret(changed, got.buffer, randomArgs, semantics);
      const difference = firstDifference(got, meant, regions);
      if (difference) expect.fail(`${difference}\n${print(kernel)}\n${print(changed)}`);
    }
  });

  test("40 random kernels, prepared for a machine, leave the same memory", () => {
    const machine: MachineTarget = {
      name: "32 + 20, folding",
      width: 16,
      vectors: up(32),
      generals: up(20),
      passing: [29, 30, 31],
      tied: (op) => (op === "f32v.fma" || op === "i32v.dot4" ? 2 : undefined),
      readsFirst: (op) => !op.endsWith("_ss") && op !== "i8v.pack_i32",
      foldsLoad: () => true,
      foldsConstant: () => true,
      copiesConstants: true,
    };
    let refused = 0;
    for (const seed of up(40)) {
      const kernel = randomKernel(seed);
      const [meant, got] = [randomMemory(seed), randomMemory(seed)];
      interpret(kernel, meant.buffer, randomArgs, semantics);
      try {
        const prepared = toMachine(scheduled(kernel, schedule), machine);
        runMachine(prepared, got.buffer, randomArgs, semantics);
      } catch (error) {
        if (!(error instanceof KernelRefused)) throw error;
        refused++;
        continue;
      }
      const difference = firstDifference(got, meant, regions);
      if (difference) expect.fail(`${difference}\n${print(kernel)}`);
    }
    expect(refused).toBeLessThan(20);
  });

  test("a loop gives the same for any number of rounds, also none", () => {
    const changed = scheduled(sums(), schedule);
    verify(changed);
    for (const count of [-3, 0, 1, 2, 3, 4, 5, 7, 8, 13]) {
      expect(sumsOf(changed, count), `${count} rounds`).toEqual(sumsOf(sums(), count));
    }
  });
});

describe("what the knobs do", () => {
  const plain = { unroll: 1, order: "written", pipelined: false } as const;
  const opsOf = (body: readonly Statement[]) => body.flatMap((s) => (s.kind === "op" ? s.op : []));

  test("nothing, where all are as they were", () => {
    const kernel = sums();
    expect(scheduled(kernel, plain)).toBe(kernel);
  });

  test("unrolled: the pointers step once for all rounds, and streams are found once", () => {
    const [main] = loopsIn(scheduled(sums(), { ...plain, unroll: 4 }).body);
    const all = opsOf(main!.body);
    expect(all.filter((op) => op === "i8v.load")).toHaveLength(16);
    expect(all.filter((op) => op === "ptr.add")).toHaveLength(4); // three streams, one step
  });

  test("early: loads come before everything else", () => {
    const [loop] = loopsIn(scheduled(sums(), { ...plain, order: "early" }).body);
    const all = opsOf(loop!.body).filter((op) => op !== "ptr.add" && !op.endsWith("const"));
    expect(all.slice(0, 4)).toEqual(["i8v.load", "i8v.load", "i8v.load", "i8v.load"]);
  });

  test("interleaved: streams take turns", () => {
    const [loop] = loopsIn(scheduled(sums(), { ...plain, order: "interleaved" }).body);
    const all = opsOf(loop!.body).filter((op) => op === "i8v.and" || op === "i32v.shr_u");
    expect(all.slice(0, 8).toSorted()).toEqual([
      ...["i32v.shr_u", "i32v.shr_u", "i32v.shr_u", "i32v.shr_u"],
      ...["i8v.and", "i8v.and", "i8v.and", "i8v.and"],
    ]);
    const adds = opsOf(loop!.body);
    expect(adds.lastIndexOf("i32v.shr_u")).toBeLessThan(adds.lastIndexOf("i32v.add"));
  });

  test("loads and stores of the same memory stay in order", () => {
    const k = new KernelBuilder("shift", 16);
    const [at, count] = [k.param("ptr", "at"), k.param("i32", "count")];
    k.loop(count, () => {
      const here = k.op("i32v.load", [at]);
      k.op("i32v.store", [at, k.op("i32v.add", [here, here])], 16);
      const next = k.op("i32v.load", [at], 16);
      k.op("i32v.store", [at, k.op("i32v.add", [next, k.op("i32v.const", [], 1)])], 16);
      k.op("i32v.store", [at, next]);
      k.advance(at, 16);
    });
    const kernel = k.finish();
    const memoryAfter = (one: Kernel) => {
      const memory = new Uint8Array(256).map((_, i) => i * 7);
      interpret(one, memory.buffer, [0, 9], semantics);
      return memory;
    };
    for (const schedule of schedules) {
      expect(memoryAfter(scheduled(kernel, schedule)), JSON.stringify(schedule)).toEqual(
        memoryAfter(kernel),
      );
    }
  });

  test("pipelined: a round loads for the next one, and no more than before is loaded", () => {
    const changed = scheduled(sums(), { ...plain, pipelined: true });
    const [guard, rounds] = loopsIn(changed.body);
    const inFront = guard!.body.slice(0, guard!.body.indexOf(rounds!));
    expect(opsOf(inFront).filter((op) => op === "i8v.load")).toHaveLength(4);
    const first = rounds!.body.find((s) => s.kind === "op" && s.op === "i8v.load");
    expect(first).toMatchObject({ imm: 16 });
    // The last round reads the last 16 bytes: a memory that ends there is enough.
    const memory = new Uint8Array(3 * 256 + 2 * 16 + 64);
    const out = 3 * 256 + 2 * 16;
    expect(() => interpret(changed, memory.buffer, [0, out, 2, 256], semantics)).not.toThrow();
    expect(() => interpret(changed, memory.buffer, [96, out, 1, 256], semantics)).toThrow();
  });
});

test("knobs are words of an id, and are found in it again", () => {
  const knobs = { unroll: 2, ahead: 512, pipelined: true, order: "early" } as const;
  expect(knobWords(knobs)).toEqual(["ahead512", "unroll2", "early", "pipelined"]);
  expect(splitKnobs("16x2.4s.compact.ahead512.unroll2.early.pipelined")).toEqual({
    rest: "16x2.4s.compact",
    knobs,
  });
  expect(splitKnobs("4s.compact.ahead77")).toEqual({ rest: "4s.compact.ahead77", knobs: {} });
  for (const name of knobNames) {
    for (const one of turned({}, name)) expect(splitKnobs(knobWords(one)[0]!).knobs).toEqual(one);
  }
});
