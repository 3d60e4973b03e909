// Activations for the integer kernels: float32 to signed bytes with a scale, in the layout of packed.ts.
//
// quantize_32 (beside weights with a scale per 32): scale = max |x| / 127 of each block, as ggml's q8_0. Quants are
//   x / scale. The stored scale is rounded to a half float, and times 2^102 where half floats are coded (packed.ts).
// quantize_256 (beside the K types): one scale for eight blocks, not rounded, as ggml's q8_k.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { lazyKernel } from "../../ir/lazy-kernel.ts";
import type { Halves, KernelTarget, VectorWidth } from "../../target.ts";
import { RAISED_SCALE } from "../packed/half-panels.ts";
import {
  ACTIVATION_FIELDS,
  ACTIVATION_NEGATIVES_AT,
  ACTIVATION_QUANTS_AT,
  ACTIVATION_WORDS_AT,
  activationBlockBytes,
  BLOCK_COLS,
  hasPairSums,
} from "../packed/packed.ts";
import { evenAndOdd, magnitudesAndSigns, sumOfNegatives } from "./emit-activations.ts";

export interface QuantizeActivations {
  readonly name: string;
  /** Blocks that share a scale: 1 or 8. */
  readonly span: 1 | 8;
  readonly replicated: boolean;
  /** Stores the quants as words, too, or as magnitudes and signs (packed.ts); only for vectors of 16 bytes. */
  readonly words?: boolean;
  readonly target: Pick<KernelTarget, "width" | "halves" | "dot4">;
}

/** Quant vectors of a replicated block. */
const VECTORS = BLOCK_COLS / 4;

/**
 * Bytes of a vector of this kernel. Blocks that are not replicated are the same for all widths, and too short for
 * stores of 64 bytes.
 */
function quantizeWidth({ replicated, target }: QuantizeActivations): VectorWidth {
  return !replicated && target.width === 64 ? 32 : target.width;
}

/** (x, out, spans, outStride): one token; block b goes to out + b * outStride. */
export function quantizeActivationsKernel(shape: QuantizeActivations): Kernel {
  return lazyKernel(shape.name, quantizeWidth(shape), () => built(shape));
}

function built(shape: QuantizeActivations): Kernel {
  const k = new KernelBuilder(shape.name, quantizeWidth(shape));
  const x = k.param("ptr", "x");
  const out = k.param("ptr", "out");
  const spans = k.param("i32", "spans");
  const stride = k.param("i32", "outStride");
  const read = k.variable(x, "x_read");
  const first = k.variable(out, "first");
  k.loop(spans, () => {
    const { scale, inverse } = spanScale(k, x, read, out, shape);
    const block = () => {
      const sum = quantizeBlock(k, x, out, scale, inverse, shape);
      k.advance(x, BLOCK_COLS * 4);
      k.update(out, "ptr.add", [out, stride]);
      return sum;
    };
    if (shape.span === 1) block();
    else {
      k.loop(k.i32(shape.span / 2), () => {
        k.set(first, out);
        const sums = [block(), block()];
        storeSumBytes(k, sums, first, k.op("ptr.add", [first, stride]), shape.replicated);
      });
    }
  });
  return k.finish();
}

/** The scale to store (in every lane) and the factor on x. */
function spanScale(
  k: KernelBuilder,
  x: Reg<"ptr">,
  read: Reg<"ptr">,
  scratch: Reg<"ptr">,
  { span, target }: QuantizeActivations,
): { scale: Reg<"f32v">; inverse: Reg<"f32v"> } {
  const most = k.variable(k.op("f32v.const", [], 0));
  k.set(read, x);
  const scan = () => {
    for (let v = 0; v < BLOCK_COLS / k.lanes; v++) {
      const size = k.op("f32v.abs", [k.op("f32v.load", [read], k.width * v)]);
      k.update(most, "f32v.max", [most, size]);
    }
    k.advance(read, BLOCK_COLS * 4);
  };
  if (span === 1) scan();
  else k.loop(k.i32(span), scan);
  const max = k.op("f32v.splat", [k.op("f32v.hmax", [most])]);
  // A block of zeros: 1e-30 instead of 0 makes its quants 0 without dividing by 0.
  const safe = k.op("f32v.max", [max, k.op("f32v.const", [], 1e-30)]);
  if (span === 8) {
    const inverse = k.op("f32v.div", [k.op("f32v.const", [], 127), safe]);
    return { scale: k.op("f32v.div", [k.op("f32v.const", [], 1), inverse]), inverse };
  }
  const scale = k.op("f32v.div", [max, k.op("f32v.const", [], 127)]);
  const safeScale = k.op("f32v.div", [safe, k.op("f32v.const", [], 127)]);
  const inverse = k.op("f32v.div", [k.op("f32v.const", [], 1), safeScale]);
  // The IR rounds to half floats only in a store: this one goes to memory that the block overwrites afterwards.
  k.op("f32v.store_f16", [scratch, scale]);
  const rounded = k.op("f32v.load_f16", [scratch]);
  if (target.halves === "hardware") return { scale: rounded, inverse };
  return { scale: k.op("f32v.mul", [rounded, k.op("f32v.const", [], RAISED_SCALE)]), inverse };
}

/** Stores the sums of two blocks, split into bytes (packed.ts), in their third fields. */
function storeSumBytes(
  k: KernelBuilder,
  sums: readonly Reg<"i32">[],
  first: Reg<"ptr">,
  second: Reg<"ptr">,
  replicated: boolean,
): void {
  const constant = (value: number) => k.op("i32.const", [], value);
  const highs = sums.map((sum) => {
    // Rounds to nearest. Sums are -4064..4064, so with 8192 added they are positive, and an unsigned shift will do.
    const raised = k.op("i32.add", [sum, constant(8192 + 32)]);
    return k.op("i32.sub", [k.op("i32.shr_u", [raised], 6), constant(128)]);
  });
  const lows = sums.map((sum, i) =>
    k.op("i32.sub", [sum, k.op("i32.mul", [highs[i]!, constant(64)])]),
  );
  const store = (out: Reg<"ptr">, [a, b]: readonly Reg<"i32">[]) => {
    const top = constant(1 << 24);
    const lower = k.op("i32.shr_u", [k.op("i32.mul", [a!, top])], 16); // byte 1; the other one is byte 3
    const word = k.op("i32.add", [lower, k.op("i32.mul", [b!, top])]);
    const field = ACTIVATION_FIELDS.sumBytes;
    if (replicated) k.op("i32v.store", [out, k.op("i32v.splat", [word])], k.width * field);
    else k.op("i32.store", [out, word], 4 * field);
  };
  store(first, highs);
  store(second, lows);
}

/** Returns the sum of the quants. */
function quantizeBlock(
  k: KernelBuilder,
  x: Reg<"ptr">,
  out: Reg<"ptr">,
  scale: Reg<"f32v">,
  inverse: Reg<"f32v">,
  { span, replicated, words, target }: QuantizeActivations,
): Reg<"i32"> {
  const quants = Array.from({ length: BLOCK_COLS / k.lanes }, (_, v) => {
    const scaled = k.op("f32v.mul", [k.op("f32v.load", [x], k.width * v), inverse]);
    return k.op("i32v.from_f32v", [scaled]);
  });
  const half = quants.length / 2;
  const add = (a: Reg<"i32v">, b: Reg<"i32v">) => k.op("i32v.add", [a, b]);
  const firstSum = k.op("i32v.sum", [quants.slice(0, half).reduce(add)]);
  const quantSum = k.op("i32.add", [firstSum, k.op("i32v.sum", [quants.slice(half).reduce(add)])]);
  const first = k.op("i32v.splat", [firstSum]);
  const sum = k.op("i32v.splat", [quantSum]);
  const scaledSum = k.op("f32v.mul", [scale, k.op("f32v.from_i32v", [sum])]);
  const packed = packAll(k, quants);
  const [sumField, firstField] = hasPairSums(target)
    ? pairSumFields(k, packed, span, sum)
    : [signed(k, sum, target.halves), signed(k, first, target.halves)];
  const stored = (value: Reg<"i32v">) => k.op("i32v.as_f32v", [value]);
  const fields = [scale, stored(sumField), scaledSum, stored(firstField)];
  if (!replicated) {
    // Each store writes a whole vector of which only the first lane stays: the next store overwrites the rest.
    fields.forEach((field, i) => {
      k.op("f32v.store", [out, field], 4 * i);
    });
    packed.forEach((bytes, i) => {
      k.op("i8v.store", [out, bytes], ACTIVATION_QUANTS_AT + k.width * i);
    });
    if (words && target.dot4 === "i7") storeSigns(k, out, packed);
    else if (words) storeWords(k, out, packed);
    return quantSum;
  }
  // The end of the block holds the packed quants until each four of them has been broadcast to a vector.
  const end = activationBlockBytes(true, k.width) - k.width * packed.length;
  packed.forEach((bytes, i) => {
    k.op("i8v.store", [out, bytes], end + k.width * i);
  });
  const spread = Array.from({ length: VECTORS }, (_, v) =>
    k.op("i8v.load_splat32", [out], end + 4 * v),
  );
  fields.forEach((field, i) => {
    k.op("f32v.store", [out, field], k.width * i);
  });
  spread.forEach((vector, v) => {
    k.op("i8v.store", [out, vector], k.width * (4 + v));
  });
  return quantSum;
}

function storeWords(k: KernelBuilder, out: Reg<"ptr">, packed: readonly Reg<"i8v">[]): void {
  packed.forEach((bytes, i) => {
    evenAndOdd(k, bytes).forEach((side, odd) => {
      const at = ACTIVATION_WORDS_AT + k.width * (2 * i + odd);
      k.op("i32v.store", [out, k.op("i16v.as_i32v", [side])], at);
    });
  });
}

function storeSigns(k: KernelBuilder, out: Reg<"ptr">, packed: readonly Reg<"i8v">[]): void {
  const all = packed.map((bytes) => magnitudesAndSigns(k, bytes));
  all.forEach(({ magnitudes, signs }, i) => {
    const at = ACTIVATION_WORDS_AT + k.width * i;
    k.op("i8v.store", [out, magnitudes], at);
    k.op("i8v.store", [out, signs], at + BLOCK_COLS);
  });
  const sum = k.op("i32v.splat", [k.op("i32v.sum", [sumOfNegatives(k, all)])]);
  k.op("i32v.store", [out, sum], ACTIVATION_NEGATIVES_AT);
}

/** The fields of sums where they are those of pairs of columns (packed.ts). */
function pairSumFields(
  k: KernelBuilder,
  packed: readonly Reg<"i8v">[],
  span: 1 | 8,
  sum: Reg<"i32v">,
): [sum: Reg<"i32v">, first: Reg<"i32v">] {
  const ones = k.op("i8v.splat", [], 1);
  const halves = packed.map((bytes) => k.op("i16v.dot2", [bytes, ones]));
  const overLanes = (pairs: Reg<"i16v">): Reg<"i32v"> => {
    const lanes = k.op("i16v.as_i32v", [pairs]);
    const low = k.op("i32v.sum", [k.op("i32v.shr_s", [k.op("i32v.shl", [lanes], 16)], 16)]);
    const high = k.op("i32v.sum", [k.op("i32v.shr_s", [lanes], 16)]);
    const up = (value: Reg<"i32">) => k.op("i32.mul", [value, k.i32(1 << 16)]);
    const both = k.op("i32.add", [up(high), k.op("i32.shr_u", [up(low)], 16)]);
    return k.op("i32v.splat", [both]);
  };
  if (span === 1) return [sum, overLanes(k.op("i16v.add", [halves[0]!, halves[1]!]))];
  return [overLanes(halves[1]!), overLanes(halves[0]!)];
}

/** A sum of quants with the sign that it is stored with. */
function signed(k: KernelBuilder, sum: Reg<"i32v">, halves: Halves): Reg<"i32v"> {
  return halves === "coded" ? sum : k.op("i32v.sub", [k.op("i32v.const", [], 0), sum]);
}

/** The quants of a block as bytes: in two vectors, in one, or in the first half of one, repeated in its other half. */
function packAll(k: KernelBuilder, quants: readonly Reg<"i32v">[]): Reg<"i8v">[] {
  const fours = quants.length >= 4 ? quants : [...quants, ...quants];
  const pack = ([a, b, c, d]: readonly Reg<"i32v">[]) => k.op("i8v.pack_i32", [a!, b!, c!, d!]);
  return Array.from({ length: fours.length / 4 }, (_, i) => pack(fours.slice(4 * i, 4 * i + 4)));
}
