// For every op of the table, a kernel that does it on rows of prepared operands, and those operands: extremes and random
// values, within what the op allows. An op that is added to the table is covered by being there.

import { KernelBuilder } from "../../src/kernels/ir/builder.ts";
import type { Kernel, Reg } from "../../src/kernels/ir/kernel.ts";
import type { Dot4 } from "../../src/kernels/ir/meanings.ts";
import {
  isVector,
  type OpName,
  type OpShape,
  ops,
  shapeOf,
  type Type,
} from "../../src/kernels/ir/ops.ts";
import { Random } from "../support/random.ts";

/** Ops that every target has; those on tiles are tried in tiles.test.ts. */
export const everyOp: readonly OpName[] = (Object.keys(ops) as OpName[]).filter(
  (op) => shapeOf(op).needs === undefined,
);

export interface OpCase {
  readonly kernel: Kernel;
  readonly memory: Uint8Array<ArrayBuffer>;
  readonly args: readonly number[];
  /** What the output is, for comparing: any NaN is as good as another. */
  readonly floats: boolean;
}

const rows = 160;
const before = 1024; // room for negative offsets
const slot = 64; // bytes for an operand or a result, whatever the width

export function opCase(op: OpName, width: number, dot4: Dot4): OpCase {
  const shape = shapeOf(op);
  // A sum that is NaN is only known as one where it is aligned.
  const imms = op === "f32v.store_sums" ? [0, 4, 16, 44] : immediates(shape);
  const inputStride = slot * Math.max(shape.args.length, 1);
  const outputStride = slot * imms.length;
  const output = before + rows * inputStride + slot;
  const memory = new Uint8Array(output + rows * outputStride + slot);
  const random = new Random(1 + op.length);
  for (let row = 0; row < rows; row++) {
    const at = before + row * inputStride;
    if (shape.args.length === 0) continue;
    shape.args.forEach((type, index) => {
      const bytes = memory.subarray(at + index * slot, at + (index + 1) * slot);
      operandValues(op, index, type, dot4)(random, bytes);
    });
  }
  return {
    kernel: opKernel(op, width, imms, inputStride, outputStride),
    memory,
    args: [before, output, rows],
    floats: shape.out === "f32" || shape.out === "f32v" || isFloatStore(op),
  };
}

function isFloatStore(op: OpName): boolean {
  return op === "f32.store" || op === "f32v.store_sums";
}

function opKernel(
  op: OpName,
  width: number,
  imms: readonly number[],
  inputStride: number,
  outputStride: number,
): Kernel {
  const shape = shapeOf(op);
  const k = new KernelBuilder(`op.${op}`, width);
  const input = k.param("ptr", "input");
  const output = k.param("ptr", "output");
  const n = k.param("i32", "rows");
  k.loop(n, () => {
    imms.forEach((imm, index) => {
      const args = shape.args.map((type, arg) => {
        if (type === "ptr") return shape.out === undefined ? at(k, output, index * slot) : input;
        return loadOperand(k, type, input, arg * slot);
      });
      const result = anyOp(k, op, args, imm);
      if (result) storeResult(k, result, output, index * slot);
      // A hint leaves nothing behind: that the kernel goes on is what is seen.
      if (op === "ptr.prefetch") k.op("i32.store", [output, k.i32(index + 1)], index * slot);
    });
    k.advance(input, inputStride);
    k.advance(output, outputStride);
  });
  return k.finish();
}

/** An op whose name is not known at compile time. */
export function anyOp(
  k: KernelBuilder,
  op: OpName,
  args: readonly Reg[],
  imm = 0,
): Reg | undefined {
  return k.op(op, args as never, imm) as Reg | undefined;
}

function at(k: KernelBuilder, pointer: Reg<"ptr">, bytes: number): Reg<"ptr"> {
  return k.op("ptr.add", [pointer, k.i32(bytes)]);
}

function loadOperand(k: KernelBuilder, type: Type, pointer: Reg<"ptr">, disp: number): Reg {
  if (type === "i16v") return k.op("i32v.as_i16v", [k.op("i32v.load", [pointer], disp)]);
  return anyOp(k, `${type}.load` as OpName, [pointer], disp)!;
}

export function storeResult(k: KernelBuilder, x: Reg, pointer: Reg<"ptr">, disp: number): void {
  if (x.type === "ptr") {
    k.op("i32.store", [pointer, k.op("i32.load", [x as Reg<"ptr">])], disp);
  } else if (x.type === "i16v") {
    k.op("i32v.store", [pointer, k.op("i16v.as_i32v", [x as Reg<"i16v">])], disp);
  } else anyOp(k, `${x.type}.store` as OpName, [pointer, x], disp);
}

const wholeNumbers = [0, 1, -1, 127, 128, -128, -129, 0x7fff, 0x8000, 2 ** 31 - 1, -(2 ** 31)];

const floats = [
  ...[0, 1, 0.5, 1.5, 2.5, 0.1, 3e38, 65504, 65520, 2 ** -14, 2 ** -24, 2 ** -126, 2 ** -149],
  ...[2 ** -140, Number.POSITIVE_INFINITY, Number.NaN],
].flatMap((value) => [value, -value]);

function immediates({ imm, out }: OpShape): number[] {
  if (imm === undefined) return [0];
  if (imm === "disp") return [0, 1, 7, 16];
  if (imm === "shift") return [...new Array(out === "i8v" ? 8 : out === "i16v" ? 16 : 32).keys()];
  if (out === "i8v") return [0, 1, 15, 127, 128, 255, -1, -128];
  if (out === "i32" || out === "i32v") return [...wholeNumbers, 0xffffffff, 0x80000000];
  return floats.filter((value) => !Number.isNaN(value));
}

/** Fills the bytes of an operand. */
type Fill = (random: Random, bytes: Uint8Array<ArrayBuffer>) => void;

/** Operands that an op restricts. */
const restricted: Readonly<Record<string, (dot4: Dot4) => Fill>> = {
  "i8v.lookup16 1": () =>
    fillBytes([0, 15, 128, 255], (random) =>
      random.pick([random.below(16), 255 - random.below(128)]),
    ),
  "i32v.dot4 1": (dot4) =>
    dot4 === "i7"
      ? fillBytes([0, 1, 127], (random) => random.below(128))
      : fillBytes([0, 127, 128, 255], (random) => random.below(256)),
  "i16v.dot2 1": () => fillBytes([0, 1, 127], (random) => random.below(128)),
  "i32v.from_f32v 0": () =>
    fillFloats(
      [0, -0, 0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 8388607.5, 2147483520, -(2 ** 31)],
      (random) => (random.below(4001) - 2000) / 4,
    ),
  // An exponent of all ones at no alignment.
  "f32v.load_f16_finite 0": () => fillBytes([0, 1, 0x78], (random) => random.below(256) & 0xfb),
  "ptr.add 1": () => fillInts([0, -1, 1, -before, slot], (random) => random.below(700) - 500),
  "ptr.add_product 1": () => fillInts([0, 1, -1, -32], (random) => random.below(33) - 16),
  "ptr.add_product 2": () => fillInts([0, 1, -1, 16], (random) => random.below(47) - 31),
};

function operandValues(op: OpName, index: number, type: Type, dot4: Dot4): Fill {
  const own = restricted[`${op} ${index}`];
  if (own) return own(dot4);
  if (type === "i8v" || type === "i16v")
    return fillBytes([0, 1, 127, 128, 255], (random) => random.below(256));
  if (type === "i32" || type === "i32v") {
    return fillInts(wholeNumbers, (random) => (random.unit() * 2 ** 32) | 0);
  }
  if (type === "ptr") return fillBytes([0, 255], (random) => random.below(256));
  return fillFloats(floats, (random) => random.normal() * 2 ** (random.below(40) - 20));
}

function fillBytes(extremes: readonly number[], value: (random: Random) => number): Fill {
  return (random, bytes) => {
    fill(bytes, random, extremes, value);
  };
}

function fillInts(extremes: readonly number[], value: (random: Random) => number): Fill {
  return (random, { buffer, byteOffset, length }) => {
    fill(new Int32Array(buffer, byteOffset, length / 4), random, extremes, value);
  };
}

function fillFloats(extremes: readonly number[], value: (random: Random) => number): Fill {
  return (random, { buffer, byteOffset, length }) => {
    fill(new Float32Array(buffer, byteOffset, length / 4), random, extremes, value);
  };
}

/** A third of the rows hold one extreme in all lanes, a third extremes, the others random values. */
function fill(
  lanes: Uint8Array | Int32Array | Float32Array,
  random: Random,
  extremes: readonly number[],
  value: (random: Random) => number,
): void {
  const kind = random.below(3);
  const same = random.pick(extremes);
  for (let i = 0; i < lanes.length; i++) {
    lanes[i] = kind === 0 ? same : kind === 1 ? random.pick(extremes) : value(random);
  }
}

/** Ops that treat each lane, or each 16 bytes, alone: at any width they do what they do at 16. */
export function isLanewise(op: OpName): boolean {
  const { args, out } = shapeOf(op);
  return (
    op !== "i8v.pack_i32" &&
    out !== undefined &&
    isVector(out) &&
    args.length > 0 &&
    args.every(isVector)
  );
}
