// The searches of src/dtypes/ as kernels: four groups at once, one per lane. Every lane does exactly the float32
// operations of the plain search, in the same order, and finds the same bits.
//
// Values and weights are transposed: [sets, count, 4 groups]. Results go to `out`, 16 bytes per set and field: scale,
// inverse, and for the affine search min and base. Groups that a plain search leaves early (all zero, all equal)
// give meaningless results; search.ts detects them by the last field, `reach`, and searches them plainly.

import { type AffineLadder, symmetricStep, symmetricSteps } from "../../dtypes/scale-search.ts";
import { KernelBuilder } from "../../kernels/ir/builder.ts";
import type { Kernel, Reg } from "../../kernels/ir/kernel.ts";
import { type Floats, Lanes, type Mask, width } from "./lanes.ts";

/** Fields of `out`, in vectors. */
export const FOUND = { scale: 0, inverse: 1, min: 2, base: 3, reach: 4, fields: 5 } as const;

const f = Math.fround;

interface Parameters {
  readonly x: Reg<"ptr">;
  readonly weights: Reg<"ptr">;
  readonly out: Reg<"ptr">;
  readonly sets: Reg<"i32">;
  /** The kernel's own scratch: quants of a set, or a ladder. */
  readonly scratch: Reg<"ptr">;
}

function parameters(k: KernelBuilder): Parameters {
  return {
    x: k.param("ptr", "x"),
    weights: k.param("ptr", "weights"),
    out: k.param("ptr", "out"),
    sets: k.param("i32", "sets"),
    scratch: k.param("ptr", "scratch"),
  };
}

/** Runs the body for every set, and advances the pointers. */
function eachSet(k: KernelBuilder, count: number, p: Parameters, body: () => void): void {
  k.loop(p.sets, () => {
    body();
    k.advance(p.x, width * count);
    k.advance(p.weights, width * count);
    k.advance(p.out, width * FOUND.fields);
  });
}

/** fitAffine() of scale-search.ts. */
export function affineKernel(name: string, count: number, ladder: AffineLadder): Kernel {
  const k = new KernelBuilder(name, width);
  const v = new Lanes(k);
  const p = parameters(k);
  const { maxQuant, first, delta, steps, absolute } = ladder;
  eachSet(k, count, p, () => {
    const { min, max, sumW, sumX } = affineSums(v, p, count);
    k.set(min, k.op("f32v.min", [min, v.constant(0)]));
    const reach = v.sub(max, min);
    const inverse = k.variable(v.div(v.constant(maxQuant), reach));
    const scale = k.variable(v.div(v.constant(1), inverse));
    const base = k.variable(min);
    for (let i = 0; i < count; i++) {
      const quant = v.nearest(v.mul(inverse, v.sub(v.load(p.x, i), min)), 0, maxQuant);
      v.store(p.scratch, i, quant);
    }
    const best = k.variable(affineLoss(v, p, count, scale, min, absolute));
    const step = k.variable(v.constant(0));
    k.loop(k.i32(steps + 1), () => {
      const offset = v.add(v.constant(first), v.mul(v.constant(delta), step));
      const tried = v.div(v.add(offset, v.constant(maxQuant)), v.sub(max, min));
      const [sumL, sumLL, sumXL] = quantSums(v, p, count, tried, min, maxQuant);
      const determinant = v.sub(v.mul(sumW, sumLL), v.mul(sumL, sumL));
      const solvedScale = v.div(v.sub(v.mul(sumW, sumXL), v.mul(sumX, sumL)), determinant);
      const solvedMin = v.div(v.sub(v.mul(sumLL, sumX), v.mul(sumL, sumXL)), determinant);
      const isAbove = v.lt(v.constant(0), solvedMin);
      const newMin = v.select(isAbove, v.constant(0), solvedMin);
      const newScale = v.select(isAbove, v.div(sumXL, sumLL), solvedScale);
      const loss = affineLoss(v, p, count, newScale, newMin, absolute);
      const isBetter = v.and(v.lt(v.constant(0), determinant), v.lt(loss, best));
      v.take(best, isBetter, loss);
      v.take(inverse, isBetter, tried);
      v.take(base, isBetter, min);
      v.take(scale, isBetter, newScale);
      v.take(min, isBetter, newMin);
      k.set(step, v.add(step, v.constant(1)));
    });
    v.store(p.out, FOUND.scale, scale);
    v.store(p.out, FOUND.inverse, inverse);
    v.store(p.out, FOUND.min, k.op("f32v.neg", [min]));
    v.store(p.out, FOUND.base, base);
    v.store(p.out, FOUND.reach, reach);
  });
  return k.finish();
}

function affineSums(v: Lanes, p: Parameters, count: number) {
  const { k } = v;
  const start = v.load(p.x, 0);
  const min = k.variable(start);
  const max = k.variable(start);
  const sumW = k.variable(v.load(p.weights, 0));
  const sumX = k.variable(v.mul(sumW, start));
  for (let i = 1; i < count; i++) {
    const value = v.load(p.x, i);
    const weight = v.load(p.weights, i);
    k.set(min, k.op("f32v.min", [min, value]));
    k.set(max, k.op("f32v.max", [max, value]));
    k.set(sumW, v.add(sumW, weight));
    k.set(sumX, v.add(sumX, v.mul(weight, value)));
  }
  return { min, max, sumW, sumX };
}

/** Writes the quants for a scale to the scratch; returns their sums: L, LL, XL, weighted. */
function quantSums(
  v: Lanes,
  p: Parameters,
  count: number,
  inverse: Floats,
  min: Floats,
  maxQuant: number,
): [Floats, Floats, Floats] {
  const { k } = v;
  const sums = [0, 1, 2].map(() => k.variable(v.constant(0))) as [Floats, Floats, Floats];
  for (let i = 0; i < count; i++) {
    const value = v.load(p.x, i);
    const quant = v.nearest(v.mul(inverse, v.sub(value, min)), 0, maxQuant);
    v.store(p.scratch, i, quant);
    const weighted = v.mul(v.load(p.weights, i), quant);
    k.set(sums[0], v.add(sums[0], weighted));
    k.set(sums[1], v.add(sums[1], v.mul(weighted, quant)));
    k.set(sums[2], v.add(sums[2], v.mul(weighted, value)));
  }
  return sums;
}

/** The error of the quants in the scratch. */
function affineLoss(
  v: Lanes,
  p: Parameters,
  count: number,
  scale: Floats,
  min: Floats,
  absolute: boolean,
): Floats {
  const { k } = v;
  const loss = k.variable(v.constant(0));
  for (let i = 0; i < count; i++) {
    const quant = v.load(p.scratch, i);
    const error = v.sub(v.add(v.mul(scale, quant), min), v.load(p.x, i));
    const cost = absolute ? k.op("f32v.abs", [error]) : v.mul(error, error);
    k.set(loss, v.add(loss, v.mul(v.load(p.weights, i), cost)));
  }
  return loss;
}

/** The first value with the largest magnitude, with its sign. */
function largestOf(v: Lanes, p: Parameters, count: number): { largest: Floats; reach: Floats } {
  const { k } = v;
  const largest = k.variable(v.constant(0));
  const reach = k.variable(v.constant(0));
  for (let i = 0; i < count; i++) {
    const value = v.load(p.x, i);
    const size = k.op("f32v.abs", [value]);
    v.take(largest, v.lt(reach, size), value);
    k.set(reach, k.op("f32v.max", [reach, size]));
  }
  return { largest, reach };
}

/** The ladder of symmetricKernel: numerators over the largest value, negated, in the order in which they are tried. */
export function symmetricLadder(half: number): Float32Array {
  return Float32Array.from(
    { length: symmetricSteps },
    (_, order) => -f(half + f(f(0.1) * symmetricStep(order))),
  );
}

/** fitSymmetric() of scale-search.ts; `scratch` is its ladder. */
export function symmetricKernel(
  name: string,
  count: number,
  half: number,
  isWeighted: boolean,
): Kernel {
  const k = new KernelBuilder(name, width);
  const v = new Lanes(k);
  const p = parameters(k);
  eachSet(k, count, p, () => {
    const { largest, reach } = largestOf(v, p, count);
    const scale = k.variable(v.constant(0));
    const inverse = k.variable(v.constant(0));
    const best = k.variable(v.constant(0));
    const rung = k.variable(p.scratch);
    const attempt = () => {
      const tried = v.div(k.op("f32v.load_splat", [rung]), largest);
      const sumLX = k.variable(v.constant(0));
      const sumLL = k.variable(v.constant(0));
      for (let i = 0; i < count; i++) {
        const value = v.load(p.x, i);
        const quant = v.nearest(v.mul(tried, value), -half, half - 1);
        const weight = isWeighted ? v.load(p.weights, i) : v.mul(value, value);
        k.set(sumLX, v.add(sumLX, v.mul(v.mul(weight, value), quant)));
        k.set(sumLL, v.add(sumLL, v.mul(v.mul(weight, quant), quant)));
      }
      k.advance(rung, 4);
      return { tried, sumLX, sumLL };
    };
    const start = attempt();
    const isSound = differs(v, start.sumLL, v.constant(0));
    k.set(scale, v.select(isSound, v.div(start.sumLX, start.sumLL), v.constant(0)));
    k.set(best, v.mul(scale, start.sumLX));
    k.set(inverse, start.tried);
    k.loop(k.i32(symmetricSteps - 1), () => {
      const { tried, sumLX, sumLL } = attempt();
      const gains = v.lt(v.mul(best, sumLL), v.mul(sumLX, sumLX));
      const isBetter = v.and(v.lt(v.constant(0), sumLL), gains);
      v.take(scale, isBetter, v.div(sumLX, sumLL));
      v.take(inverse, isBetter, tried);
      v.take(best, isBetter, v.mul(scale, sumLX));
    });
    v.store(p.out, FOUND.scale, scale);
    v.store(p.out, FOUND.inverse, inverse);
    v.store(p.out, FOUND.reach, reach);
  });
  return k.finish();
}

/** Rounds of fitSymmetricGreedy; a round without changes has no effect. */
const greedyRounds = 5;

/** fitSymmetricGreedy() of scale-search.ts. */
export function greedyKernel(name: string, count: number, half: number): Kernel {
  const k = new KernelBuilder(name, width);
  const v = new Lanes(k);
  const p = parameters(k);
  eachSet(k, count, p, () => {
    const { largest, reach } = largestOf(v, p, count);
    const inverse = v.div(v.constant(-half), largest);
    const zero = v.constant(0);
    const sumLX = k.variable(zero);
    const sumLL = k.variable(zero);
    for (let i = 0; i < count; i++) {
      const value = v.load(p.x, i);
      const quant = v.nearest(v.mul(inverse, value), -half, half - 1);
      const weight = v.mul(value, value);
      v.store(p.scratch, i, quant);
      k.set(sumLX, v.add(sumLX, v.mul(v.mul(weight, value), quant)));
      k.set(sumLL, v.add(sumLL, v.mul(v.mul(weight, quant), quant)));
    }
    k.loop(k.i32(greedyRounds), () => {
      for (let i = 0; i < count; i++) {
        const value = v.load(p.x, i);
        const quant = v.load(p.scratch, i);
        const weight = v.mul(value, value);
        const weighted = v.mul(weight, value);
        const restLX = v.sub(sumLX, v.mul(weighted, quant));
        const restLL = v.sub(sumLL, v.mul(v.mul(weight, quant), quant));
        const better = v.nearest(v.div(v.mul(value, restLL), restLX), -half, half - 1);
        const otherLX = v.add(restLX, v.mul(weighted, better));
        const otherLL = v.add(restLL, v.mul(v.mul(weight, better), better));
        const gain = v.mul(v.mul(otherLX, otherLX), sumLL);
        const isBetter = v.lt(v.mul(v.mul(sumLX, sumLX), otherLL), gain);
        const isSound = v.and(v.lt(zero, restLX), v.lt(zero, otherLL));
        const takes = v.and(v.and(isSound, isBetter), differs(v, better, quant));
        v.store(p.scratch, i, v.select(takes, better, quant));
        v.take(sumLX, takes, otherLX);
        v.take(sumLL, takes, otherLL);
      }
    });
    const isSound = v.lt(zero, sumLL);
    v.store(p.out, FOUND.scale, v.select(isSound, v.div(sumLX, sumLL), zero));
    v.store(p.out, FOUND.reach, reach);
  });
  return k.finish();
}

function differs(v: Lanes, a: Floats, b: Floats): Mask {
  return v.k.op("i32v.or", [v.lt(a, b), v.lt(b, a)]);
}

/** Rungs of fitNonlinear on each side. */
const nonlinearSteps = 7;

/** The values of the quants, and for each but the first the smallest float that is nearer to it than to the one below. */
export interface NonlinearLookup {
  readonly values: Int8Array;
  readonly thresholds: Float32Array;
}

/** fitNonlinear() of nonlinear-codebook.ts. */
export function nonlinearKernel(name: string, quants: NonlinearLookup): Kernel {
  const k = new KernelBuilder(name, width);
  const v = new Lanes(k);
  const p = parameters(k);
  const count = 32;
  eachSet(k, count, p, () => {
    const { largest, reach } = largestOf(v, p, count);
    const scale = k.variable(v.constant(0));
    const best = k.variable(v.constant(0));
    const sums = (inverse: Floats): [Floats, Floats] => {
      const sumQX = k.variable(v.constant(0));
      const sumQQ = k.variable(v.constant(0));
      const at = k.variable(p.x);
      const weightAt = k.variable(p.weights);
      k.loop(k.i32(count / 4), () => {
        for (let i = 0; i < 4; i++) {
          const value = v.load(at, i);
          const q = quantValue(v, v.mul(inverse, value), quants);
          const weighted = v.mul(v.load(weightAt, i), q);
          k.set(sumQX, v.add(sumQX, v.mul(weighted, value)));
          k.set(sumQQ, v.add(sumQQ, v.mul(weighted, q)));
        }
        k.advance(at, 4 * width);
        k.advance(weightAt, 4 * width);
      });
      return [sumQX, sumQQ];
    };
    const negated = k.op("f32v.neg", [largest]);
    const opening = v.div(v.constant(1), v.div(negated, v.constant(-127)));
    const [openQX, openQQ] = sums(opening);
    const isSound = v.lt(v.constant(0), openQQ);
    k.set(scale, v.select(isSound, v.div(openQX, openQQ), v.constant(0)));
    k.set(best, v.mul(scale, openQX));
    const rung = k.variable(v.constant(-nonlinearSteps - 127));
    k.loop(k.i32(2 * nonlinearSteps + 1), () => {
      const [sumQX, sumQQ] = sums(v.div(rung, largest));
      const gains = v.lt(v.mul(best, sumQQ), v.mul(sumQX, sumQX));
      const isBetter = v.and(v.lt(v.constant(0), sumQQ), gains);
      v.take(scale, isBetter, v.div(sumQX, sumQQ));
      v.take(best, isBetter, v.mul(scale, sumQX));
      k.set(rung, v.add(rung, v.constant(1)));
    });
    v.store(p.out, FOUND.scale, scale);
    v.store(p.out, FOUND.reach, reach);
  });
  return k.finish();
}

/** The value of the quant nearest to x: the first quant's, plus the addition of each threshold below x. */
function quantValue(v: Lanes, x: Floats, { values, thresholds }: NonlinearLookup): Floats {
  const { k } = v;
  let sum: Mask = k.op("i32v.const", [], values.at(-1)!);
  for (let quant = 1; quant < values.length; quant++) {
    const isBelow = v.lt(x, v.constant(thresholds[quant]!));
    const step = k.op("i32v.const", [], values[quant]! - values[quant - 1]!);
    sum = k.op("i32v.sub", [sum, v.and(isBelow, step)]);
  }
  return k.op("f32v.from_i32v", [sum]);
}
