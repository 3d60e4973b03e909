// The meaning of every op of the table, as a function of its operands' values. Part of interpret.ts, which has the
// registers.
//
// Floats are f32 throughout: arithmetic on numbers is rounded by Math.fround or by storing into a Float32Array, which for
// + - * / and sqrt gives exactly the result of an f32 unit. Moves keep the bits of a NaN; arithmetic may give any NaN.
// Registers and memory are those of state.ts.

import { bf16ToF32, f16ToF32, f32ToF16 } from "../../base/half.ts";
import type { OpName, ops, ScalarType, Type, VectorType } from "./ops.ts";
import type { Memory, Tile, Vector } from "./state.ts";
import { shapeOfTile, strideOfTile, tilesOf } from "./tiles.ts";

/**
 * The allowed range of dot4's second operand: 0..127, -128..127 or 0..255. "words": -128..127, but without an instruction for it,
 * so that kernels are faster with 16-bit integers.
 */
export type Dot4 = "i7" | "signed" | "unsigned" | "words";

/** The choices that the table leaves to the target. */
export interface Semantics {
  readonly dot4: Dot4;
  /** f32v.fma rounds once. */
  readonly fused: boolean;
}

interface Context {
  readonly imm: number;
  readonly memory: Memory;
  readonly semantics: Semantics;
}

type Value<T extends Type> = T extends VectorType ? Vector : number;
type Values<A extends readonly Type[]> = { readonly [I in keyof A]: Value<A[I]> };
type Out<O extends OpName> = (typeof ops)[O]["out"];

/** Scalar results are returned, vector results written into `out`. */
type Meaning<O extends OpName> = (
  args: Values<(typeof ops)[O]["args"]>,
  out: Out<O> extends VectorType ? Vector : undefined,
  context: Context,
) => Out<O> extends ScalarType ? number : void;

/** A meaning whose op is not known at compile time. */
export type AnyMeaning = (
  args: readonly (number | Vector)[],
  out: Vector | undefined,
  context: Context,
) => number | undefined;

export const meanings: { readonly [O in OpName]: Meaning<O> } = {
  "i32.const": (_, __, { imm }) => imm | 0,
  "i32.add": ([a, b]) => (a + b) | 0,
  "i32.sub": ([a, b]) => (a - b) | 0,
  "i32.mul": ([a, b]) => Math.imul(a, b),
  "i32.shr_u": ([x], _, { imm }) => (x >>> imm) | 0,
  "i32.load": ([p], _, { memory, imm }) => memory.view.getInt32(memory.at(p, imm, 4), true),
  "i32.store": ([p, x], _, { memory, imm }) => memory.view.setInt32(memory.at(p, imm, 4), x, true),
  "f32.const": (_, __, { imm }) => Math.fround(imm),
  "f32.add": ([a, b]) => Math.fround(a + b),
  "f32.sub": ([a, b]) => Math.fround(a - b),
  "f32.mul": ([a, b]) => Math.fround(a * b),
  "f32.div": ([a, b]) => Math.fround(a / b),
  "f32.max": ([a, b]) => Math.max(a, b),
  "f32.sqrt": ([a]) => Math.fround(Math.sqrt(a)),
  "f32.from_i32": ([a]) => Math.fround(a),
  "f32.load": ([p], _, { memory, imm }) => memory.view.getFloat32(memory.at(p, imm, 4), true),
  "f32.store": ([p, x], _, { memory, imm }) =>
    memory.view.setFloat32(memory.at(p, imm, 4), x, true),
  "ptr.add": ([p, bytes]) => p + bytes,
  "ptr.add_product": ([p, a, b]) => p + a * b,
  "ptr.prefetch": () => undefined,

  "i8v.load": load,
  "i32v.load": load,
  "f32v.load": load,
  "i8v.store": store,
  "i32v.store": store,
  "f32v.store": store,
  "i8v.load_splat32": loadSplat,
  "i32v.load_splat": loadSplat,
  "f32v.load_splat": loadSplat,
  "f32v.load_f16": loadHalves,
  "f32v.load_f16_finite": loadHalves,
  "f32v.load_bf16": ([p], out, { memory, imm }) => {
    const at = memory.at(p, imm, out.u8.length / 2);
    fill(out.f32, (i) => bf16ToF32(memory.view.getUint16(at + 2 * i, true)));
  },
  "f32v.store_f16": ([p, x], _, { memory, imm }) => {
    const at = memory.at(p, imm, x.u8.length / 2);
    x.f32.forEach((value, i) => {
      memory.view.setUint16(at + 2 * i, f32ToF16(value), true);
    });
  },
  "i32v.load_i8": ([p], out, { memory, imm }) => {
    const at = memory.at(p, imm, out.i32.length);
    fill(out.i32, (i) => memory.view.getInt8(at + i));
  },
  "i32v.load_i16": ([p], out, { memory, imm }) => {
    const at = memory.at(p, imm, out.u8.length / 2);
    fill(out.i32, (i) => memory.view.getInt16(at + 2 * i, true));
  },

  "i8v.splat": (_, out, { imm }) => fill(out.i8, () => imm),
  "i32v.splat": ([x], out) => fill(out.i32, () => x),
  "i32v.const": (_, out, { imm }) => fill(out.i32, () => imm),
  "f32v.splat": ([x], out) => fill(out.f32, () => x),
  "f32v.const": (_, out, { imm }) => fill(out.f32, () => imm),
  "f32v.as_i32v": sameBits,
  "i32v.as_f32v": sameBits,
  "i32v.as_i8v": sameBits,
  "i8v.as_i32v": sameBits,

  "i8v.and": lanes("u8", (a, b) => a & b),
  "i8v.or": lanes("u8", (a, b) => a | b),
  "i8v.xor": lanes("u8", (a, b) => a ^ b),
  "i8v.add": lanes("u8", (a, b) => a + b),
  "i8v.sub": lanes("u8", (a, b) => a - b),
  "i8v.shr_u": shift("u8", (x, by) => x >>> by),
  "i8v.shl": shift("u8", (x, by) => x << by),
  "i8v.lookup16": ([table, index], out, { memory }) =>
    fill(out.u8, (i) => {
      const at = index.u8[i]!;
      if (at > 127) return 0;
      if (at > 15) memory.fail(`index ${at} in byte ${i}, expected 0..15, or 128 and more`);
      return table.u8[(i & ~15) + at]!;
    }),
  "i8v.zip8_low": interleave(1, 0),
  "i8v.zip8_high": interleave(1, 8),
  "i8v.zip16_low": interleave(2, 0),
  "i8v.zip16_high": interleave(2, 8),
  "i32v.dot4": (args, out, { memory, semantics }) => {
    const wrong = semantics.dot4 === "i7" ? args[1].u8.find((byte) => byte > 127) : undefined;
    if (wrong !== undefined) memory.fail(`${wrong} in the second operand, expected 0..127`);
    dot4(args, out, semantics.dot4 === "unsigned" ? "u8" : "i8");
  },
  "i32v.dot4_ss": (args, out) => dot4(args, out, "i8"),

  "i32v.add": lanes("i32", (a, b) => a + b),
  "i32v.sub": lanes("i32", (a, b) => a - b),
  "i32v.mul": lanes("i32", Math.imul),
  "i32v.and": lanes("i32", (a, b) => a & b),
  "i32v.or": lanes("i32", (a, b) => a | b),
  "i32v.select": ([mask, a, b], out) =>
    fill(out.i32, (i) => (a.i32[i]! & mask.i32[i]!) | (b.i32[i]! & ~mask.i32[i]!)),
  "i32v.max_s": lanes("i32", (a, b) => Math.max(a, b)),
  "i32v.min_s": lanes("i32", (a, b) => Math.min(a, b)),
  "i32v.shl": shift("i32", (x, by) => x << by),
  "i32v.shr_u": shift("i32", (x, by) => x >>> by),
  "i32v.shr_s": shift("i32", (x, by) => x >> by),
  "i32v.sum": ([x]) => x.i32.reduce((sum, each) => (sum + each) | 0, 0),
  "i8v.pack_i32": (parts, out) => {
    const count = out.i32.length;
    fill(out.i8, (i) => {
      const value = parts[Math.floor(i / count)]!.i32[i % count]!;
      return Math.min(Math.max(value, -128), 127);
    });
  },

  "f32v.add": lanes("f32", (a, b) => a + b),
  "f32v.sub": lanes("f32", (a, b) => a - b),
  "f32v.mul": lanes("f32", (a, b) => a * b),
  "f32v.div": lanes("f32", (a, b) => a / b),
  "f32v.min": lanes("f32", (a, b) => (b < a ? b : a)),
  "f32v.max": lanes("f32", (a, b) => (a < b ? b : a)),
  "f32v.lt": ([a, b], out) => fill(out.i32, (i) => (a.f32[i]! < b.f32[i]! ? -1 : 0)),
  // The sign is a bit, also of zeros and NaNs.
  "f32v.abs": lanes("u32", (x) => x & 0x7fffffff),
  "f32v.neg": lanes("u32", (x) => x ^ 0x80000000),
  "f32v.sqrt": lanes("f32", (x) => Math.sqrt(x)),
  "f32v.fma": ([a, b, c], out, { semantics }) => {
    const multiplyAdd = semantics.fused ? fusedMultiplyAdd : separateMultiplyAdd;
    fill(out.f32, (i) => multiplyAdd(a.f32[i]!, b.f32[i]!, c.f32[i]!));
  },
  "f32v.add_pairs": ([a, b], out) =>
    fill(out.f32, (i) => {
      const from = i & 2 ? b.f32 : a.f32;
      const first = (i & ~3) + 2 * (i & 1);
      return from[first]! + from[first + 1]!;
    }),
  "f32v.store_sums": ([p, ...vectors], _, { memory, imm }) => {
    const at = memory.at(p, imm, 16);
    vectors.forEach(({ f32 }, i) => {
      const groups = Float32Array.from({ length: f32.length / 4 }, (_, group) => {
        const [a, b, c, d] = f32.subarray(4 * group, 4 * group + 4);
        return Math.fround(a! + b!) + Math.fround(c! + d!);
      });
      const sum = reduce(groups, (a, b) => Math.fround(a + b));
      memory.view.setFloat32(at + 4 * i, sum, true);
    });
  },
  "f32v.swap_pairs": ([x], out) => fill(out.u32, (i) => x.u32[i ^ 1]!),
  "i32v.from_f32v": ([x], out, { memory }) =>
    fill(out.i32, (i) => {
      const value = roundHalfEven(x.f32[i]!);
      if (value !== (value | 0)) memory.fail(`${x.f32[i]} in lane ${i} does not fit an i32`);
      return value;
    }),
  "f32v.from_i32v": ([x], out) => fill(out.f32, (i) => x.i32[i]!),
  "f32v.sum": ([x]) => reduce(x.f32, (a, b) => Math.fround(a + b)),
  "f32v.hmax": ([x]) => reduce(x.f32, Math.max),

  "amx.shape": (_, __, { memory, imm }) => {
    const { tile, rows, bytes } = shapeOfTile(imm);
    memory.tiles[tile] = { rows, bytes, cells: new Int8Array(rows * bytes) };
  },
  "amx.zero": (_, __, { memory, imm }) => {
    memory.tile(imm).cells.fill(0);
  },
  "amx.load": ([p], _, { memory, imm }) => {
    const { tile, stride } = strideOfTile(imm);
    const { rows, bytes, cells } = memory.tile(tile);
    for (let row = 0; row < rows; row++) {
      const at = memory.at(p, row * stride, bytes);
      cells.set(memory.bytes.subarray(at, at + bytes), row * bytes);
    }
  },
  "amx.store": ([p], _, { memory, imm }) => {
    const { tile, stride } = strideOfTile(imm);
    const { rows, bytes, cells } = memory.tile(tile);
    for (let row = 0; row < rows; row++) {
      const at = memory.at(p, row * stride, bytes);
      memory.bytes.set(cells.subarray(row * bytes, (row + 1) * bytes), at);
    }
  },
  "amx.dot4_ss": (_, __, { memory, imm }) => {
    const { sum, a, b } = tilesOf(imm);
    dotTiles(memory, memory.tile(sum), memory.tile(a), memory.tile(b));
  },

  "i8mm.dot8_ss": ([a, b, acc], out) =>
    fill(out.i32, (lane) => {
      const group = 16 * (lane >> 2);
      const [row, column] = [group + 8 * ((lane >> 1) & 1), group + 8 * (lane & 1)];
      let sum = acc.i32[lane]!;
      for (let i = 0; i < 8; i++) sum += a.i8[row + i]! * b.i8[column + i]!;
      return sum;
    }),
  "arm64.zip32_low": zip([0, 4, 1, 5]),
  "arm64.zip32_high": zip([2, 6, 3, 7]),
  "arm64.zip64_low": zip([0, 1, 4, 5]),
  "arm64.zip64_high": zip([2, 3, 6, 7]),

  "i8v.as_i16v": sameBits,
  "i32v.as_i16v": sameBits,
  "i16v.as_i32v": sameBits,
  "i16v.add": lanes("i16", (a, b) => a + b),
  "i16v.mul": lanes("i16", (a, b) => a * b),
  "i16v.shl": shift("i16", (x, by) => x << by),
  "i16v.shr_s": shift("i16", (x, by) => x >> by),
  "i16v.dot2": ([a, b], out, { memory }) => {
    const wrong = b.u8.find((byte) => byte > 127);
    if (wrong !== undefined) memory.fail(`${wrong} in the second operand, expected 0..127`);
    fill(out.i16, (i) => a.i8[2 * i]! * b.i8[2 * i]! + a.i8[2 * i + 1]! * b.i8[2 * i + 1]!);
  },
  "i32v.dot2": ([a, b], out) =>
    fill(out.i32, (i) => a.i16[2 * i]! * b.i16[2 * i]! + a.i16[2 * i + 1]! * b.i16[2 * i + 1]!),
};

/** Moves 32-bit lanes within each 16 bytes: 0 to 3 are the first operand's, 4 to 7 the second's. Bits, not numbers. */
function zip(lanes: readonly number[]): (args: readonly Vector[], out: Vector) => void {
  return ([a, b], out) =>
    fill(out.u32, (i) => {
      const from = lanes[i & 3]!;
      return (from < 4 ? a! : b!).u32[(i & ~3) + (from & 3)]!;
    });
}

/** Takes `size` bytes alternately from both operands, starting at byte `from` of each 16. */
function interleave(size: 1 | 2, from: 0 | 8): (args: readonly Vector[], out: Vector) => void {
  return ([a, b], out) =>
    fill(out.u8, (i) => {
      const pair = Math.floor((i & 15) / (2 * size));
      const of = i % (2 * size) < size ? a! : b!;
      return of.u8[(i & ~15) + from + pair * size + (i % size)]!;
    });
}

function dotTiles(memory: Memory, sum: Tile, a: Tile, b: Tile): void {
  if (a.rows !== sum.rows || b.bytes !== sum.bytes || a.bytes !== 4 * b.rows) {
    const shapes = [sum, a, b].map(({ rows, bytes }) => `${rows} x ${bytes}`);
    memory.fail(`tiles of ${shapes.join(", ")} bytes do not fit each other`);
  }
  const sums = new Int32Array(sum.cells.buffer);
  const columns = sum.bytes / 4;
  for (let m = 0; m < sum.rows; m++) {
    for (let n = 0; n < columns; n++) {
      for (let i = 0; i < a.bytes; i++) {
        const from = b.cells[(i >> 2) * b.bytes + 4 * n + (i & 3)]!;
        sums[m * columns + n]! += a.cells[m * a.bytes + i]! * from;
      }
    }
  }
}

type View = keyof Vector;
type Lanes = Vector[View];

function fill(lanes: Lanes, value: (i: number) => number): void {
  for (let i = 0; i < lanes.length; i++) lanes[i] = value(i);
}

/** Lane by lane; storing the result rounds it to f32 or wraps it to the lane's bits. */
function lanes(
  view: View,
  f: (a: number, b: number) => number,
): (args: readonly Vector[], out: Vector) => void {
  return ([a, b], out) => fill(out[view], (i) => f(a![view][i]!, b?.[view][i] ?? 0));
}

function shift(
  view: View,
  f: (x: number, by: number) => number,
): (args: readonly [Vector], out: Vector, context: Context) => void {
  return ([x], out, { imm }) => fill(out[view], (i) => f(x[view][i]!, imm));
}

function load([p]: readonly [number], out: Vector, { memory, imm }: Context): void {
  const at = memory.at(p, imm, out.u8.length);
  out.u8.set(memory.bytes.subarray(at, at + out.u8.length));
}

function store(
  [p, x]: readonly [number, Vector],
  _: undefined,
  { memory, imm }: Context,
): undefined {
  memory.bytes.set(x.u8, memory.at(p, imm, x.u8.length));
}

function loadHalves([p]: readonly [number], out: Vector, { memory, imm }: Context): void {
  const at = memory.at(p, imm, out.u8.length / 2);
  fill(out.f32, (i) => f16ToF32(memory.view.getUint16(at + 2 * i, true)));
}

function loadSplat([p]: readonly [number], out: Vector, { memory, imm }: Context): void {
  const bits = memory.view.getInt32(memory.at(p, imm, 4), true);
  fill(out.i32, () => bits);
}

function sameBits([x]: readonly [Vector], out: Vector): void {
  out.u8.set(x.u8);
}

function dot4(
  [a, b, acc]: readonly [Vector, Vector, Vector],
  out: Vector,
  second: "i8" | "u8",
): void {
  fill(out.i32, (lane) => {
    let sum = acc.i32[lane]!;
    for (let i = 4 * lane; i < 4 * lane + 4; i++) sum += a.i8[i]! * b[second][i]!;
    return sum;
  });
}

/** Reduces all lanes to one by combining halves: one of the orders that the table allows. */
function reduce(values: Float32Array, combine: (a: number, b: number) => number): number {
  let rest = [...values];
  while (rest.length > 1) {
    const half = rest.length / 2;
    rest = rest.slice(0, half).map((value, i) => combine(value, rest[i + half]!));
  }
  return rest[0]!;
}

function roundHalfEven(value: number): number {
  const low = Math.floor(value);
  const rest = value - low;
  if (rest !== 0.5) return rest < 0.5 ? low : low + 1;
  return low % 2 === 0 ? low : low + 1;
}

function separateMultiplyAdd(a: number, b: number, c: number): number {
  return Math.fround(Math.fround(a * b) + c);
}

const scratchF64 = new Float64Array(1);
const scratchI64 = new BigInt64Array(scratchF64.buffer);

/**
 * a * b + c of three f32, rounded to f32 once. The product is exact in f64. The sum is rounded to odd there (an inexact sum
 * gets an odd last bit), so that the rounding to f32 breaks ties in the right direction.
 */
export function fusedMultiplyAdd(a: number, b: number, c: number): number {
  const product = a * b;
  const sum = product + c;
  const back = sum - product;
  const error = product - (sum - back) + (c - back);
  scratchF64[0] = sum;
  if (Number.isFinite(sum) && error !== 0 && (scratchI64[0]! & 1n) === 0n) {
    const isAway = error > 0 === sum > 0;
    scratchI64[0] = scratchI64[0]! + (isAway ? 1n : -1n);
  }
  return Math.fround(scratchF64[0]!);
}
