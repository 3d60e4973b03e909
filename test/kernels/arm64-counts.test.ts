// Instruction counts of matmul kernels on arm64 (arm64-counts.ts): the default register tiles take fewer than others.
// This does not give times, but it is all that is known without such a processor.
// Held against: counts written here.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import { lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { defaultVariant } from "../../src/kernels/matmul-variants.ts";
import { packedTypes } from "../../src/kernels/ops/packed/packings.ts";
import { nativeTargets } from "../../src/kernels/target.ts";
import { type Counts, countInstructions, countsOf, type Tile } from "./arm64-counts.ts";

function counted(type: string, tile: Tile, tokens: number): Counts {
  const counts = countsOf(type, tile, tokens, 256);
  if (typeof counts === "string") throw new Error(counts);
  return counts;
}

test("loops are counted as often as they run", () => {
  const k = new KernelBuilder("loops", 16);
  const [p, n] = [k.param("ptr", "p"), k.param("i32", "n")];
  const count = (times: number) => {
    const { bytes } = lowerToArm64(k.finish(), { name: "arm64" });
    return countInstructions(bytes as Uint8Array<ArrayBuffer>, [64, times]);
  };
  k.loop(n, () => {
    k.loop(k.i32(3), () => {
      const sum = k.op("f32v.add", [k.op("f32v.load", [p]), k.op("f32v.load", [p], 32)]);
      k.op("f32v.store", [p, sum], 64);
    });
  });
  // Inside: two loads, an addition, a store, a count, a branch. Around it: its count, and the same two.
  const [none, one, five] = [count(0), count(1), count(5)];
  expect(five.all - one.all).toBe(4 * (3 * 6 + 3));
  expect(five.vector - one.vector).toBe(4 * 3);
  expect(five.memory - one.memory).toBe(4 * 3 * 3);
  expect(one.all - none.all).toBe(3 * 6 + 3);
});

test("neighbouring loads and stores are one instruction each", () => {
  const k = new KernelBuilder("neighbours", 16);
  const p = k.param("ptr", "p");
  const loaded = [16, 0, 32, 48, 80, 1008, 1024, 1040].map((at) => k.op("f32v.load", [p], at));
  loaded.forEach((x, i) => {
    k.op("f32v.store", [p, x], 2048 + 16 * i);
  });
  loaded.forEach((x, i) => {
    k.op("f32v.store", [p, x], 512 + 16 * i);
  });
  const { bytes } = lowerToArm64(k.finish(), { name: "arm64" });
  const { memory } = countInstructions(bytes as Uint8Array<ArrayBuffer>, [0]);
  // Parameters: 2. Loads: 3 pairs (0 and 16, 32 and 48, 1008 and 1024), 80 and 1040. Stores: 8 that are too far away, 4 pairs.
  expect(memory).toBe(2 + 5 + 8 + 4);
});

describe("the default tile", () => {
  const dotprod = nativeTargets["arm64-dotprod"];

  test.each([
    ["q4_0", 12],
    ["q4_k", 32],
    ["q6_k", 12],
    ["q8_0", 1000],
  ] as const)("of %s without i8mm is 8x6, unpacked from %i tokens on", (type, fewest) => {
    expect(defaultVariant(type, fewest - 1, dotprod).id).toBe("8x6.compact");
    if (type !== "q8_0") {
      expect(defaultVariant(type, fewest, dotprod).id).toBe("8x6.unpacked.compact");
    }
    const best = counted(type, { rows: 8, tokens: 6 }, 24);
    // Six tokens of paired groups leave no registers for constants, and making those again counts as vector work.
    for (const tokens of type === "q4_0" ? [2] : [2, 4]) {
      expect(best.vector).toBeLessThan(counted(type, { rows: 8, tokens }, 24).vector);
    }
    expect(best.vector).toBeLessThan(counted(type, { rows: 16, tokens: 2 }, 24).vector);
    const unpacked = counted(type, { rows: 8, tokens: 6, isUnpacked: true }, 30);
    expect(unpacked.vector).toBeLessThan(counted(type, { rows: 8, tokens: 6 }, 30).vector);
  });

  // F32 has nothing to convert, and takes as many by any tile.
  test.each(["f16", "bf16"])("of %s is 8x8", (type) => {
    expect(defaultVariant(type, 32, dotprod).id).toBe("8x8.compact");
    const best = counted(type, { rows: 8, tokens: 8 }, 24);
    for (const tile of [
      { rows: 8, tokens: 6 },
      { rows: 16, tokens: 4 },
    ]) {
      expect(best.vector).toBeLessThan(counted(type, tile, 24).vector);
    }
  });

  test.each(packedTypes())("of %s with i8mm: pairs of rows, from 8 tokens on", (type) => {
    const { rows, tokens } = defaultVariant(type, 32, dotprod);
    const usual = counted(type, { rows, tokens }, 6 * tokens);
    const pairs = counted(type, { rows: 16, tokens: 4, isPairs: true }, 8);
    expect(pairs.vector).toBeLessThan(usual.vector);
    expect(pairs.all).toBeLessThan(usual.all);
  });
});
