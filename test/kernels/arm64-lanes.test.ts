// Loads that spread 4 bytes, on arm64: which become lanes of a vector, and that nothing comes between the loads that are
// put together.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { interpret } from "../../src/kernels/ir/interpret.ts";
import type { Kernel, Reg, Statement } from "../../src/kernels/ir/kernel.ts";
import { foldOps } from "../../src/kernels/lower/arm64-folds.ts";
import { type LaneUse, laneUses, useLanes } from "../../src/kernels/lower/arm64-lanes.ts";
import { Random } from "../support/random.ts";
import { arm64Differences, arm64Lacks, type CheckedCall } from "./arm64-runner.ts";

/** Sums of products of spread values with one vector, stored behind them. */
function products(build: (k: KernelBuilder, x: Reg<"ptr">, add: (at: number) => void) => void) {
  const k = new KernelBuilder("spread", 16);
  const x = k.param("ptr", "x");
  const sum = k.variable(k.op("i32v.const", [], 1));
  const codes = k.op("i8v.load", [x], 256);
  build(k, x, (at) => {
    k.update(sum, "i32v.dot4", [k.op("i8v.load_splat32", [x], at), codes, sum]);
  });
  k.op("i32v.store", [x, sum], 512);
  return k.finish();
}

function opsOf({ body }: Kernel): Extract<Statement, { kind: "op" }>[] {
  return body.filter((statement) => statement.kind === "op");
}

/** Displacements of the loads of vectors besides the first, and of those of 4 bytes; and the lanes that are read. */
function loadsOf(kernel: Kernel, use: LaneUse) {
  const ops = opsOf(useLanes(kernel, use));
  const at = (name: string) => ops.filter(({ op }) => op === name).map(({ imm }) => imm);
  const lanes = at("i32v.dot4").map((imm) => imm - 1);
  return { vectors: at("f32v.load"), singles: at("f32.load"), lanes };
}

describe("which loads become vectors", () => {
  const four = products((_, __, add) => {
    for (const at of [24, 16, 28, 20]) add(at);
  });

  test("four neighbours", () => {
    const vector = { vectors: [16], singles: [], lanes: [2, 0, 3, 1] };
    expect(loadsOf(four, "quads")).toEqual(vector);
    expect(loadsOf(four, "pairs")).toEqual(vector);
    expect(loadsOf(four, "singles")).toEqual({
      vectors: [],
      singles: [24, 16, 28, 20],
      lanes: [0, 0, 0, 0],
    });
    expect(useLanes(four, "none")).toBe(four);
  });

  test("two, where the bytes around them are read, too", () => {
    const two = products((_, __, add) => {
      for (const at of [8, 12]) add(at);
    });
    expect(loadsOf(two, "pairs")).toEqual({ vectors: [8], singles: [], lanes: [0, 1] });
    expect(loadsOf(two, "quads").singles).toEqual([8, 12]);
    // Nothing behind the last load is known to be memory: the vector begins earlier.
    const last = products((_, __, add) => {
      for (const at of [248, 264, 268]) add(at);
    });
    expect(loadsOf(last, "pairs")).toEqual({ vectors: [256], singles: [248], lanes: [0, 2, 3] });
  });

  test.each<[string, (k: KernelBuilder, x: Reg<"ptr">) => void]>([
    ["a store", (k, x) => k.op("i32.store", [x, k.i32(7)], 20)],
    ["a pointer that moves", (k, x) => k.advance(x, 4)],
    ["a loop", (k, x) => k.loop(k.i32(2), () => k.op("i32.store", [x, k.i32(7)], 20))],
  ])("not across %s", (_, between) => {
    const kernel = products((k, x, add) => {
      add(16);
      add(24);
      between(k, x);
      add(20);
      add(28);
    });
    expect(loadsOf(kernel, "quads").vectors).toEqual([]);
  });

  test("not what something else reads as a whole vector", () => {
    const k = new KernelBuilder("whole", 16);
    const x = k.param("ptr", "x");
    const spread = [0, 4, 8, 12].map((at) => k.op("f32v.load_splat", [x], at));
    const product = k.op("f32v.mul", [spread[0]!, spread[1]!]);
    k.op("f32v.store", [x, k.op("f32v.add", [product, spread[2]!])], 64);
    k.op("f32v.store", [x, k.op("f32v.mul", [spread[3]!, spread[3]!])], 80);
    const ops = opsOf(useLanes(k.finish(), "pairs")).map(({ op }) => op);
    // One of a product's operands at most.
    expect(ops.filter((op) => op === "f32v.load_splat")).toHaveLength(3);
    expect(ops.filter((op) => op === "f32.load")).toHaveLength(1);
  });
});

test("a mask behind a shift of lanes becomes a shift of bytes where it takes all that is left", () => {
  const k = new KernelBuilder("fields", 16);
  const x = k.param("ptr", "x");
  const raw = k.op("i8v.load", [x]);
  const shifted = (by: number) =>
    k.op("i32v.as_i8v", [k.op("i32v.shr_u", [k.op("i8v.as_i32v", [raw])], by)]);
  const masked = (by: number, mask: number) =>
    k.op("i8v.and", [k.op("i8v.splat", [], mask), shifted(by)]);
  [masked(4, 15), masked(6, 3), masked(2, 15), masked(12, 15)].forEach((field, i) => {
    k.op("i8v.store", [x, field], 16 * (i + 1));
  });
  const folded = foldOps(k.finish());
  const shifts = opsOf(folded).filter(({ op }) => op === "i8v.shr_u");
  expect(shifts.map(({ imm }) => imm)).toEqual([4, 6]);
  const bytes = () => Uint8Array.from({ length: 80 }, (_, i) => (i < 16 ? 17 * i + 1 : 0));
  const [before, after] = [bytes(), bytes()];
  interpret(k.finish(), before.buffer, [0]);
  interpret(folded, after.buffer, [0]);
  expect(after).toEqual(before);
});

/** Spread loads, products of every kind, stores and moves, in any order. */
function randomSpreads(seed: number): CheckedCall {
  const random = new Random(seed);
  const k = new KernelBuilder(`spreads.${seed}`, 16);
  const x = k.param("ptr", "x");
  const floats = k.variable(k.op("f32v.const", [], 0.5));
  const ints = k.variable(k.op("i32v.const", [], 3));
  const weights = k.op("f32v.load", [x], 400);
  const codes = k.op("i8v.load", [x], 400);
  const numbers = k.op("i32v.load", [x], 400);
  const disp = () => 4 * random.below(24) + random.below(8) * random.below(2);
  const steps: (() => void)[] = [
    () => k.update(floats, "f32v.fma", [weights, k.op("f32v.load_splat", [x], disp()), floats]),
    () => k.update(floats, "f32v.mul", [k.op("f32v.load_splat", [x], disp()), weights]),
    () => k.update(ints, "i32v.dot4", [k.op("i8v.load_splat32", [x], disp()), codes, ints]),
    () => k.update(ints, "i32v.dot4_ss", [codes, k.op("i8v.load_splat32", [x], disp()), ints]),
    () => k.update(ints, "i32v.mul", [numbers, k.op("i32v.load_splat", [x], disp())]),
    () => k.update(ints, "i32v.shl", [k.op("i32v.load_splat", [x], disp())], random.below(32)),
  ];
  const rare: (() => void)[] = [
    () => k.op("i32v.store", [x, ints], disp()),
    () => k.advance(x, 4 * (random.below(9) - 4)),
  ];
  for (let i = 0; i < 40; i++) random.pick(random.below(8) === 0 ? rare : steps)();
  k.op("f32v.store", [x, floats], 600);
  k.op("i32v.store", [x, ints], 616);
  const memory = new Uint8Array(1024);
  const words = new Int32Array(memory.buffer);
  words.forEach((_, i) => {
    words[i] = (random.unit() * 2 ** 32) | 0;
  });
  return {
    kernel: k.finish(),
    memory,
    args: [256],
    regions: [{ from: 0, to: 1024, kind: "f32" }],
  };
}

test.skipIf(arm64Lacks !== undefined)(
  `random spreads, executed${arm64Lacks === undefined ? "" : ` [${arm64Lacks}]`}`,
  () => {
    const calls = [...new Array(120).keys()].map(randomSpreads);
    const vectors = calls.flatMap(({ kernel }) =>
      laneUses.flatMap((use) => loadsOf(kernel, use).vectors.slice(1)),
    );
    expect(vectors.length).toBeGreaterThan(100); // some become vectors
    expect(arm64Differences(calls)).toEqual([]);
  },
);
