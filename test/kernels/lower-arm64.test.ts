// The lowering to arm64 machine code, executed (arm64-runner.ts says where): every op of the IR, random kernels and the
// kernels of the engine leave the memory that the interpreter leaves.

import { describe, expect, test } from "vitest";
import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Reg } from "../../src/kernels/ir/kernel.ts";
import { lowerToArm64 } from "../../src/kernels/lower/arm64.ts";
import { Random } from "../support/random.ts";
import {
  arm64Differences,
  arm64Lacks,
  arm64Target,
  type CheckedCall,
  isRefused,
} from "./arm64-runner.ts";
import { everyOp as names, opCase } from "./op-cases.ts";
import { randomArgs, randomKernel, randomMemory, regions } from "./random-kernels.ts";

describe.skipIf(arm64Lacks !== undefined)(
  `executed${arm64Lacks === undefined ? "" : ` [${arm64Lacks}]`}`,
  () => {
    test("every op", () => {
      const calls = names.map((op): CheckedCall => {
        const { kernel, memory, args, floats } = opCase(op, 16, "signed");
        const kind = floats ? "f32" : "bytes";
        return { kernel, memory, args, regions: [{ from: args[1]!, to: memory.length, kind }] };
      });
      expect(arm64Differences(calls)).toEqual([]);
    });

    test("random kernels", () => {
      const calls = [...new Array(150).keys()].flatMap((seed): CheckedCall[] => {
        const kernel = randomKernel(seed);
        if (isRefused(kernel)) return [];
        return [{ kernel, memory: randomMemory(seed), args: randomArgs, regions }];
      });
      expect(calls.length).toBeGreaterThan(100);
      expect(arm64Differences(calls)).toEqual([]);
    });

    test("displacements of every size", () => {
      expect(arm64Differences(displacements.map(displaced))).toEqual([]);
    });

    test("neighbours in memory, in every order", () => {
      expect(arm64Differences([neighbours()])).toEqual([]);
    });

    test("constants of every size", () => {
      expect(arm64Differences(constants.map(withConstant))).toEqual([]);
    });

    test("more scalars than registers", () => {
      expect(arm64Differences([10, 20, 28, 32].map(manyScalars))).toEqual([]);
    });

    test("all vector registers at once, and loops that do not run", () => {
      expect(arm64Differences([everyVector()])).toEqual([]);
    });
  },
);

test("a kernel with more vectors than registers is refused", () => {
  const k = new KernelBuilder("many", 16);
  const p = k.param("ptr", "p");
  const loaded = [...new Array(33).keys()].map((i) => k.op("f32v.load", [p], 16 * i));
  loaded.forEach((x: Reg<"f32v">, i) => {
    k.op("f32v.store", [p, x], 1024 - 16 * i);
  });
  const refused = /many keeps 33 vectors alive, arm64-dotprod has 32 registers for them/;
  expect(() => lowerToArm64(k.finish(), arm64Target)).toThrow(refused);
});

const displacements = [
  ...[
    0, 1, 3, 4, 8, 12, 16, 255, 256, 257, 264, 4092, 4095, 4096, 4097, 16380, 16384, 32760, 32768,
  ],
  ...[65520, 65521, 65536, 65537, 2 ** 20 + 4, 2 ** 24 - 1, 2 ** 24, 2 ** 31, 2 ** 32 - 1],
];

function bytesOf(length: number): Uint8Array<ArrayBuffer> {
  const random = new Random(length);
  return Uint8Array.from({ length }, () => random.below(124));
}

/** Every kind of load and store, through pointers that are as far in front of the memory as the displacement is large. */
function displaced(disp: number): CheckedCall {
  const k = new KernelBuilder(`displacement.${disp}`, 16);
  const [from, to] = [k.param("ptr", "from"), k.param("ptr", "to")];
  k.op("i32.store", [to, k.op("i32.load", [from], disp)], disp);
  k.op("i32.store", [k.op("ptr.add", [to, k.i32(4)]), k.i32(disp | 0)], disp);
  const next = (by: number) => k.op("ptr.add", [to, k.i32(by)]);
  k.op("f32.store", [next(8), k.op("f32.load", [from], disp)], disp);
  k.op("f32v.store", [next(16), k.op("f32v.load", [from], disp)], disp);
  k.op("f32v.store_f16", [next(32), k.op("f32v.load_f16", [from], disp)], disp);
  k.op("f32v.store", [next(40), k.op("f32v.load_splat", [from], disp)], disp);
  k.op("i32v.store", [next(56), k.op("i32v.load_i8", [from], disp)], disp);
  return { kernel: k.finish(), memory: bytesOf(256), args: [16 - disp, 96 - disp], regions: [] };
}

/** Loads and stores that become pairs, those that nearly do, and a loop that begins between two. */
function neighbours(): CheckedCall {
  const k = new KernelBuilder("neighbours", 16);
  const [from, to, n] = [k.param("ptr", "from"), k.param("ptr", "to"), k.param("i32", "n")];
  const places = [16, 0, 32, 48, 80, 1008, 1024, 1040, 1056, 8, 24];
  const loaded = places.map((at) => k.op("i32v.load", [from], at));
  loaded.forEach((x, i) => {
    k.op("i32v.store", [to, x], 16 * (i ^ 1));
  });
  k.op("i32v.store", [to, loaded[2]!], 512);
  k.loop(n, () => {
    k.op("i32v.store", [to, loaded[3]!], 528);
    k.op("i32v.store", [to, k.op("i32v.load", [to], 512)], 544);
    k.update(to, "ptr.add", [to, k.i32(48)]);
  });
  k.op("i32v.store", [to, loaded[4]!], 544);
  return { kernel: k.finish(), memory: bytesOf(2048), args: [0, 1072, 3], regions: [] };
}

const constants = [
  ...[0, 1, -1, 4095, 4096, -4096, 0xfff000, -0xfff000, 0x123456, -0x123456, 0xffff, 0x10000],
  ...[-0x10000, -0x10001, 0x7fff0000, 0x12345678, -0x12345678, 2 ** 31 - 1, -(2 ** 31)],
];

/** A constant as an operand of everything that can have one. */
function withConstant(value: number): CheckedCall {
  const k = new KernelBuilder(`constant.${value}`, 16);
  const [out, far, n] = [k.param("ptr", "out"), k.param("ptr", "far"), k.param("i32", "n")];
  const constant = () => k.i32(value);
  const ints = [
    k.op("i32.add", [n, constant()]),
    k.op("i32.add", [constant(), n]),
    k.op("i32.sub", [n, constant()]),
    k.op("i32.sub", [constant(), n]),
    k.op("i32.mul", [n, constant()]),
    k.op("i32.mul", [constant(), constant()]),
    k.op("i32.shr_u", [constant()], 3),
    k.op("i32.load", [k.op("ptr.add", [far, constant()])]),
    k.op("i32.load", [
      k.op("ptr.add_product", [k.op("ptr.add", [far, constant()]), constant(), k.i32(0)]),
    ]),
  ];
  ints.forEach((int, i) => {
    k.op("i32.store", [out, int], 4 * i);
  });
  k.op("f32.store", [out, k.op("f32.from_i32", [constant()])], 60);
  k.op("i32v.store", [out, k.op("i32v.splat", [constant()])], 64);
  k.op(
    "i32v.store",
    [out, k.op("i32v.add", [k.op("i32v.splat", [n]), k.op("i32v.const", [], value)])],
    80,
  );
  return { kernel: k.finish(), memory: bytesOf(160), args: [0, 128 - value, 12345], regions: [] };
}

/** So many numbers that are all alive to the end, in loops. */
function manyScalars(count: number): CheckedCall {
  const k = new KernelBuilder(`scalars.${count}`, 16);
  const [p, n, rounds] = [k.param("ptr", "p"), k.param("i32", "n"), k.param("i32", "rounds")];
  const at = k.variable(k.op("ptr.add", [p, n]));
  const numbers = [...new Array(count).keys()].map((i) =>
    k.variable(k.op("i32.mul", [k.op("i32.load", [p], 4 * i), n])),
  );
  k.loop(rounds, () => {
    numbers.forEach((number, i) => {
      k.update(number, "i32.add", [number, numbers[(i + 7) % count]!]);
    });
    k.op("i32.store", [at, numbers[0]!], 200);
    k.update(at, "ptr.add_product", [at, n, k.i32(2)]);
  });
  numbers.forEach((number, i) => {
    k.op("i32.store", [p, number], 240 + 4 * i);
  });
  return { kernel: k.finish(), memory: bytesOf(512), args: [0, 4, 3], regions: [] };
}

function everyVector(): CheckedCall {
  const k = new KernelBuilder("every_vector", 16);
  const [p, none] = [k.param("ptr", "p"), k.param("i32", "none")];
  const loaded = [...new Array(32).keys()].map((i) => k.op("i32v.load", [p], 16 * i));
  for (const count of [none, k.i32(0), k.i32(-5)]) {
    k.loop(count, () => k.op("i32.store", [p, k.i32(1)]));
  }
  loaded.forEach((x, i) => {
    k.op("i32v.store", [p, x], 16 * (31 - i));
  });
  return { kernel: k.finish(), memory: bytesOf(512), args: [0, -3], regions: [] };
}
