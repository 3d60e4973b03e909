// Types that only round, as kernels: a block of 32 values at a time, with the bits of the type's own quantizer. What such a
// kernel cannot do exactly (scales that are almost zero or infinite), round.ts leaves to that quantizer; it sees those
// blocks by their largest magnitude, which goes to `reach`, 4 bytes a block.
//
// `order` is four integers that a kernel needs in a vector: 0, 2, 4, 6.

import { KernelBuilder } from "../../kernels/ir/builder.ts";
import type { Kernel, Reg } from "../../kernels/ir/kernel.ts";

type Floats = Reg<"f32v">;
type Integers = Reg<"i32v">;

const width = 16;
/** Vectors of a block. */
const vectors = 8;
/** The largest float below a half. */
const belowHalf = 0.49999997;

interface Block {
  readonly k: KernelBuilder;
  readonly x: Reg<"ptr">;
  readonly out: Reg<"ptr">;
  readonly order: Reg<"ptr">;
  /** The block's values, 4 in each. */
  readonly values: readonly Floats[];
  /** The largest magnitude, in every lane. */
  readonly reach: Floats;
}

/** Block by block: (x, out, reach, blocks, order). */
function blockKernel(name: string, blockBytes: number, round: (block: Block) => void): Kernel {
  const k = new KernelBuilder(name, width);
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const reaches = k.param("ptr", "reach");
  const blocks = k.param("i32", "blocks");
  const order = k.param("ptr", "order");
  k.loop(blocks, () => {
    const values = Array.from({ length: vectors }, (_, i) => k.op("f32v.load", [x], width * i));
    const most = values
      .map((value) => k.op("f32v.abs", [value]))
      .reduce((a, b) => k.op("f32v.max", [a, b]));
    const largest = k.op("f32v.hmax", [most]);
    k.op("f32.store", [reaches, largest]);
    round({ k, x, out, order, values, reach: k.op("f32v.splat", [largest]) });
    k.advance(x, width * vectors);
    k.advance(out, blockBytes);
    k.advance(reaches, 4);
  });
  return k.finish();
}

/** scale = largest / 127; codes round halves away from zero. */
export function roundSignedBytes(name: string): Kernel {
  return blockKernel(name, 34, ({ k, out, values, reach }) => {
    const scale = k.op("f32v.div", [reach, k.op("f32v.const", [], 127)]);
    const inverse = k.op("f32v.div", [k.op("f32v.const", [], 1), scale]);
    const codes = values.map((value) => halfAway(k, k.op("f32v.mul", [value, inverse])));
    // Four halves, of which the codes overwrite all but the first.
    k.op("f32v.store_f16", [out, scale]);
    const pack = (from: number) =>
      k.op("i8v.pack_i32", [codes[from]!, codes[from + 1]!, codes[from + 2]!, codes[from + 3]!]);
    k.op("i8v.store", [out, pack(0)], 2);
    k.op("i8v.store", [out, pack(4)], 18);
  });
}

/** The nearest integer; the one further from zero in the middle between two. */
function halfAway(k: KernelBuilder, x: Floats): Integers {
  const even = k.op("i32v.from_f32v", [x]);
  const rest = k.op("f32v.sub", [x, k.op("f32v.from_i32v", [even])]); // exact
  const zero = k.op("f32v.const", [], 0);
  const half = k.op("f32v.const", [], belowHalf);
  const up = k.op("i32v.and", [k.op("f32v.lt", [half, rest]), k.op("f32v.lt", [zero, x])]);
  const isLow = k.op("f32v.lt", [rest, k.op("f32v.const", [], -belowHalf)]);
  const down = k.op("i32v.and", [isLow, k.op("f32v.lt", [x, zero])]);
  // A mask is -1.
  return k.op("i32v.add", [k.op("i32v.sub", [even, up]), down]);
}

/** scale = the value with the largest magnitude / -8; levels are cut to 0..15. */
export function roundNibbles(name: string): Kernel {
  return blockKernel(name, 18, (block) => {
    const { k, out, values } = block;
    const scale = k.op("f32v.div", [signedLargest(block), k.op("f32v.const", [], -8)]);
    const inverse = k.op("f32v.div", [k.op("f32v.const", [], 1), scale]);
    const levels = values.map((value) => {
      const scaled = k.op("f32v.mul", [value, inverse]);
      const shifted = k.op("f32v.add", [scaled, k.op("f32v.const", [], 8.5)]);
      return k.op("i32v.min_s", [floor(k, shifted), k.op("i32v.const", [], 15)]);
    });
    const pairs = [0, 1, 2, 3].map((i) => {
      const high = k.op("i32v.shl", [levels[i + 4]!], 28);
      // As a signed byte: packing saturates.
      const signed = k.op("i32v.shr_s", [high], 24);
      return k.op("i32v.or", [signed, levels[i]!]);
    });
    k.op("f32v.store_f16", [out, scale]);
    const bytes = k.op("i8v.pack_i32", [pairs[0]!, pairs[1]!, pairs[2]!, pairs[3]!]);
    k.op("i8v.store", [out, bytes], 2);
  });
}

function floor(k: KernelBuilder, x: Floats): Integers {
  const nearest = k.op("i32v.from_f32v", [x]);
  const isAbove = k.op("f32v.lt", [x, k.op("f32v.from_i32v", [nearest])]);
  return k.op("i32v.add", [nearest, isAbove]);
}

/** The first value with the largest magnitude, in every lane. Of those, the one with the smallest key is the first. */
function signedLargest({ k, order, values, reach }: Block): Floats {
  const none = k.op("i32v.const", [], 2 * vectors * 4);
  const places = k.op("i32v.load", [order]);
  const keys = values.map((value, i) => {
    const sign = k.op("i32v.shr_u", [k.op("f32v.as_i32v", [value])], 31);
    const key = k.op("i32v.add", [places, k.op("i32v.const", [], 8 * i)]);
    const isLess = k.op("f32v.lt", [k.op("f32v.abs", [value]), reach]);
    return k.op("i32v.select", [isLess, none, k.op("i32v.or", [key, sign])]);
  });
  const least = keys.reduce((a, b) => k.op("i32v.min_s", [a, b]));
  const negated = k.op("f32v.neg", [k.op("f32v.from_i32v", [least])]);
  const first = k.op("f32v.splat", [k.op("f32v.hmax", [negated])]);
  const key = k.op("i32v.from_f32v", [k.op("f32v.neg", [first])]);
  // Its lowest bit is the sign.
  const sign = k.op("i32v.shl", [key], 31);
  const bits = k.op("i32v.or", [k.op("f32v.as_i32v", [reach]), sign]);
  return k.op("i32v.as_f32v", [bits]);
}
