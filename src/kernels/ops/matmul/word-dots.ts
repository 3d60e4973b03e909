// Dot products of a block without an instruction for four products (packed.ts, "products"), as IR: integer sums as those of
// dot4.ts, by way of 16-bit integers. Part of dot4.ts.
//
// Instructions for 8 quant vectors (32 columns of a group) and a token, on x86-64; as dot4 with 0..127 they are 40, widened
// (dot4_ss) 96:
//   twos    8 products, and a sum of each two 16-bit results as long as they cannot overflow: 17 (up to 4 bits) to 24 (7 bits)
//   signs   8 products of magnitudes of activations with quants that have their signs, each widened and added: 32. With all bits
//           of a quant inverted where its activation is negative, which is one less than the quant negated, the sum lacks the
//           magnitudes of the negative activations, for any quants: it starts with them
//   words   16 products of 16-bit integers, 16 sums: 32. The quants are widened once for all tokens, activations once for all
//           groups; every second byte each, so that nothing is shuffled

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import type { BlockLayout } from "../packed/packed.ts";
import { evenAndOdd, type Signs } from "./emit-activations.ts";

export interface WordDots {
  readonly k: KernelBuilder;
  readonly layout: BlockLayout;
  readonly groups: number;
  readonly tokens: number;
  /** The quant vectors, in the order in which they are loaded. */
  readonly order: readonly number[];
  quants(group: number, vector: number): Reg<"i8v">;
  activations(token: number, vector: number): Reg<"i8v">;
  /** The same as 16-bit integers: even and odd columns. */
  words(token: number, vector: number): Reg<"i16v">[];
  /** The same as magnitudes and signs, and the sum of the magnitudes of all negative ones of the block. */
  signs(token: number, vector: number): Signs;
  negatives(token: number): Reg<"i32v">;
  /** The sum of a token's activations, where the layout has an offset; beside "twos", those of pairs of columns. */
  sum(token: number): Reg<"i32v">;
  pairSums(token: number): Reg<"i16v">;
}

/** The integer sums of the columns of one scale: [groups][tokens]. */
export function wordDots(of: WordDots): Reg<"i32v">[][] {
  const { products } = of.layout;
  if (products === "signs") return sumsOfSigns(of);
  return products === "twos" ? sumsOfTwos(of) : sumsOfWords(of);
}

/** -offset * sum(x) in each lane: the sum fits 16 bits, so the upper half of each lane is multiplied by 0. */
function start(of: WordDots, token: number): Reg<"i32v"> | undefined {
  const { k, layout, sum } = of;
  const { offset } = layout;
  if (offset === 0) return undefined;
  if (layout.products === "twos") {
    const factors = k.op("i32v.const", [], (-offset & 0xffff) * 0x10001);
    return k.op("i32v.dot2", [of.pairSums(token), k.op("i32v.as_i16v", [factors])]);
  }
  const factor = k.op("i32v.as_i16v", [k.op("i32v.const", [], -offset & 0xffff)]);
  return k.op("i32v.dot2", [k.op("i32v.as_i16v", [sum(token)]), factor]);
}

function plus(k: KernelBuilder, a: Reg<"i32v">, b: Reg<"i32v"> | undefined): Reg<"i32v"> {
  return b ? k.op("i32v.add", [a, b]) : a;
}

/** Magnitude of activations, at most. */
const MOST_ACTIVATION = 128;

/** The number of pair products that can be added in 16 bits. */
export function mostTwos({ lookup, offset, bits }: BlockLayout): number {
  // Values of codebooks are raised by the largest magnitude (raisedCodebook in packing.ts).
  const most = lookup ? 2 * offset : 2 ** bits - 1;
  return Math.floor((2 ** 15 - 1) / (2 * most * MOST_ACTIVATION));
}

/**
 * Whether the sums of so many vectors of products fit 16 bits once the offset is taken out. If their start is -offset * sum(x), it does
 * not matter that they overflow on the way.
 */
export function fitsTwos(
  { lookup, offset, bits }: Pick<BlockLayout, "lookup" | "offset" | "bits">,
  vectors: number,
): boolean {
  const most = Math.max(offset, lookup ? offset : 2 ** bits - 1 - offset);
  return vectors * 2 * most * 127 < 2 ** 15;
}

function sumsOfTwos(of: WordDots): Reg<"i32v">[][] {
  const { k, layout, groups, tokens, order } = of;
  const ones = k.op("i32v.as_i16v", [k.op("i32v.const", [], 0x10001)]);
  if (mostTwos(layout) < order.length && fitsTwos(layout, order.length)) {
    return sumsFromStart(of, ones);
  }
  const most = mostTwos(layout);
  const sums: (Reg<"i32v"> | undefined)[][] = Array.from({ length: groups }, () => []);
  for (let first = 0; first < order.length; first += most) {
    const vectors = order.slice(first, first + most);
    const twos: (Reg<"i16v"> | undefined)[][] = Array.from({ length: groups }, () => []);
    for (const v of vectors) {
      const quants = twos.map((_, g) => of.quants(g, v));
      for (let t = 0; t < tokens; t++) {
        const xs = of.activations(t, v);
        for (let g = 0; g < groups; g++) {
          const two = k.op("i16v.dot2", [xs, quants[g]!]);
          const before = twos[g]![t];
          twos[g]![t] = before ? k.op("i16v.add", [before, two]) : two;
        }
      }
    }
    for (let t = 0; t < tokens; t++) {
      const from = first === 0 ? start(of, t) : undefined;
      for (let g = 0; g < groups; g++) {
        const some = k.op("i32v.dot2", [twos[g]![t]!, ones]);
        sums[g]![t] = plus(k, some, first === 0 ? from : sums[g]![t]);
      }
    }
  }
  return sums as Reg<"i32v">[][];
}

/** The sums of a whole part in 16 bits, which start with what the offset takes out. */
function sumsFromStart(of: WordDots, ones: Reg<"i16v">): Reg<"i32v">[][] {
  const { k, groups, tokens, order } = of;
  const sums = Array.from({ length: groups }, (): Reg<"i16v">[] =>
    Array.from({ length: tokens }, (_, t) => startInPairs(of, t)),
  );
  for (const v of order) {
    const quants = sums.map((_, g) => of.quants(g, v));
    for (let t = 0; t < tokens; t++) {
      const xs = of.activations(t, v);
      for (const [g, ofGroup] of sums.entries()) {
        ofGroup[t] = k.op("i16v.add", [ofGroup[t]!, k.op("i16v.dot2", [xs, quants[g]!])]);
      }
    }
  }
  return sums.map((ofGroup) => ofGroup.map((sum) => k.op("i32v.dot2", [sum, ones])));
}

/** -offset * the sums of pairs of columns. */
function startInPairs(of: WordDots, token: number): Reg<"i16v"> {
  const { k, layout } = of;
  const factors = k.op("i32v.const", [], (-layout.offset & 0xffff) * 0x10001);
  return k.op("i16v.mul", [of.pairSums(token), k.op("i32v.as_i16v", [factors])]);
}

/** Quant vectors that registers hold beside a token's sums. */
export const HELD_QUANTS = 8;

/** Whether the quants of a part with a small scale fit the registers, so that its sums are computed token by token. */
export function isByToken(
  layout: Pick<BlockLayout, "products" | "scaleCols" | "spanBlocks" | "lookup" | "offset" | "bits">,
  groups: number,
  tokens: number,
): boolean {
  const vectors = layout.scaleCols / 4;
  const isHeld = layout.spanBlocks === 8 && tokens > 1 && groups * vectors <= HELD_QUANTS;
  return layout.products === "twos" && isHeld && fitsTwos(layout, vectors);
}

/** The integer sums of each token in turn: a sum that is used before the next token's begins needs no register. */
export function* sumsByToken(of: WordDots): Generator<Reg<"i32v">[], void> {
  const { k, groups, tokens, order } = of;
  const ones = k.op("i32v.as_i16v", [k.op("i32v.const", [], 0x10001)]);
  const all = Array.from({ length: groups }, (_, g) => g);
  const quants = order.map((v) => all.map((g) => of.quants(g, v)));
  for (let t = 0; t < tokens; t++) {
    const start = of.layout.offset === 0 ? undefined : startInPairs(of, t);
    const sums = all.map(() => start);
    order.forEach((v, i) => {
      const xs = of.activations(t, v);
      for (const g of all) {
        const two = k.op("i16v.dot2", [xs, quants[i]![g]!]);
        sums[g] = sums[g] ? k.op("i16v.add", [sums[g], two]) : two;
      }
    });
    yield sums.map((sum) => k.op("i32v.dot2", [sum!, ones]));
  }
}

function sumsOfSigns({ k, groups, tokens, order, ...of }: WordDots): Reg<"i32v">[][] {
  const ones = k.op("i32v.as_i16v", [k.op("i32v.const", [], 0x10001)]);
  const starts = Array.from({ length: tokens }, (_, t) => of.negatives(t));
  const sums = Array.from({ length: groups }, () => [...starts]);
  for (const v of order) {
    const quants = sums.map((_, g) => of.quants(g, v));
    for (let t = 0; t < tokens; t++) {
      const { magnitudes, signs } = of.signs(t, v);
      for (let g = 0; g < groups; g++) {
        const two = k.op("i16v.dot2", [k.op("i8v.xor", [quants[g]!, signs]), magnitudes]);
        sums[g]![t] = plus(k, k.op("i32v.dot2", [two, ones]), sums[g]![t]);
      }
    }
  }
  return sums;
}

function sumsOfWords(of: WordDots): Reg<"i32v">[][] {
  const { k, groups, tokens, order } = of;
  const sums: (Reg<"i32v"> | undefined)[][] = Array.from({ length: groups }, () =>
    Array.from({ length: tokens }, () => undefined),
  );
  for (const v of order) {
    const quants = sums.map((_, g) => evenAndOdd(k, of.quants(g, v)));
    for (let t = 0; t < tokens; t++) {
      const xs = of.words(t, v);
      const from = v === order[0] ? start(of, t) : undefined;
      for (let g = 0; g < groups; g++) {
        for (const side of [0, 1]) {
          const two = k.op("i32v.dot2", [xs[side]!, quants[g]![side]!]);
          sums[g]![t] = plus(k, two, sums[g]![t] ?? from);
        }
      }
    }
  }
  return sums as Reg<"i32v">[][];
}
