// What is done to kernels before they are lowered to arm64. Loads that spread 4 bytes: which become lanes of a vector, and
// that nothing comes between the loads that are put together. Ops that fewer instructions do.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
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

describe("ops that fewer instructions do", () => {
  const k = new KernelBuilder("fields", 16);
  const x = k.param("ptr", "x");
  const raws = [0, 16, 32].map((at) => k.op("i8v.load", [x], at));
  /** Bits from `from` on of each byte, `width` of them, moved down to bit `to`. */
  const field = (raw: number, from: number, width: number, to = 0) => {
    const lanes = k.op("i8v.as_i32v", [raws[raw]!]);
    const mask = k.op("i8v.splat", [], ((1 << width) - 1) << to);
    const moved = from === to ? raws[raw]! : k.op("i32v.as_i8v", [shifted(lanes, from - to)]);
    return k.op("i8v.and", raw === 1 ? [moved, mask] : [mask, moved]);
  };
  const shifted = (lanes: Reg<"i32v">, by: number) => k.op("i32v.shr_u", [lanes], by);
  const or = (a: Reg<"i8v">, b: Reg<"i8v">) => k.op("i8v.or", [a, b]);
  const results = [
    field(0, 4, 4),
    field(1, 6, 2),
    field(2, 2, 4),
    or(or(field(0, 6, 2), field(1, 6, 2, 2)), field(2, 6, 2, 4)),
    or(field(0, 6, 2, 3), field(2, 5, 3)),
    or(field(0, 6, 2), field(1, 6, 1, 2)), // not the top bit
    or(field(0, 6, 2), field(1, 6, 2, 3)), // a gap
    or(field(0, 6, 2), field(1, 6, 2)), // the same place
    or(field(0, 7, 1, 1), field(1, 0, 1)), // one that is not shifted
  ];
  results.forEach((result, i) => {
    k.op("i8v.store", [x, result], 64 + 16 * i);
  });
  const kernel = k.finish();
  const bytes = new Uint8Array(64 + 16 * results.length);
  const random = new Random(7);
  for (let i = 0; i < 48; i++) bytes[i] = random.below(256);

  test("shifts of bytes, and insertions", () => {
    const ops = opsOf(foldOps(kernel));
    const shifts = ops.filter(({ op }) => op === "i8v.shr_u").map(({ imm }) => imm);
    expect(shifts.slice(0, 2)).toEqual([4, 6]);
    const joined = ops.filter(({ op }) => op === "i8v.or");
    expect(joined.map(({ imm }) => imm.toString(8))).toEqual(["642", "53", "0", "0", "0", "0"]);
    expect(joined[0]!.args).toEqual([raws[2], raws[1], raws[0]]);
    expect(ops.some(({ op }) => op === "i8v.as_i32v")).toBe(true); // of fields that stay
  });

  test.skipIf(arm64Lacks !== undefined)(
    `mean the same, executed${arm64Lacks === undefined ? "" : ` [${arm64Lacks}]`}`,
    () => {
      expect(arm64Differences([{ kernel, memory: bytes, args: [0], regions: [] }])).toEqual([]);
    },
  );

  test("the difference of two spread loads is shifted before it is taken, lane by lane", () => {
    const b = new KernelBuilder("difference", 16);
    const p = b.param("ptr", "p");
    const [all, first] = [4, 12].map((at) => b.op("i32v.load_splat", [p], at));
    const shiftedBy = b.op("i32v.shl", [b.op("i32v.sub", [all!, first!])], 5);
    b.op("i32v.store", [p, shiftedBy], 32);
    const folded = useLanes(foldOps(b.finish()), "pairs");
    const ops = opsOf(folded).map(({ op, imm }) => `${op} ${imm}`);
    const expected = ["f32.load 4", "f32.load 12", "i32v.const 32", "i32v.mul 1"];
    expect(ops).toEqual([
      ...expected,
      "i32v.const 32",
      "i32v.mul 1",
      "i32v.sub 0",
      "i32v.store 32",
    ]);
  });
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
