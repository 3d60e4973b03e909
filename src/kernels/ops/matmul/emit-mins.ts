// The small mins of a span (packed.ts), as IR: for each token, the sum of the mins times the sums of their activations. The
// caller (dot4.ts, i8mm.ts, tile-scaling.ts) applies header and scale.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import {
  ACTIVATION_FIELDS,
  type BlockLayout,
  runAt,
  runBlocks,
  scaleByte,
  scaleParts,
  scalesAt,
} from "../packed/packed.ts";
import { type ActivationReader, evenAndOdd } from "./emit-activations.ts";
import type { Place } from "./tile-pointers.ts";

export interface SpanMins {
  readonly k: KernelBuilder;
  readonly layout: BlockLayout;
  readonly reader: ActivationReader;
  /** The span's activations: the blocks of `inTile` tokens lie one after the other. */
  readonly x: Reg<"ptr">;
  readonly inTile: number;
  /** The tokens whose mins are wanted. */
  readonly tokens: readonly number[];
  /** Addresses of the scales and mins of each run. */
  readonly scales: readonly Place[];
}

/** One for each of the tokens. */
export function emitMins(span: SpanMins): Reg<"f32v">[] {
  const fours = span.scales.map(([from, at]) => span.k.op("i32v.load", [from], at));
  const isNibbles = span.layout.scales === "nibbles";
  if (span.layout.products !== "fours") {
    return isNibbles ? fromNibbleWords(span, fours) : fromWords(span, fours);
  }
  return isNibbles ? fromNibbles(span, fours) : fromBytes(span, fours);
}

/** Addresses of a group's scales and mins in each run of the span at w. */
export function scalesOfRuns(layout: BlockLayout, w: Reg<"ptr">, group: number): Place[] {
  return Array.from({ length: layout.spanBlocks / runBlocks(layout) }, (_, run) => [
    w,
    runAt(layout, run) + scalesAt(layout, group),
  ]);
}

/** One dot4 over scales and mins: scales are multiplied by 0, mins by the high or low part of a block's sum (packed.ts). */
function fromBytes(
  { k, layout, reader, x, inTile, tokens }: SpanMins,
  fours: readonly Reg<"i32v">[],
): Reg<"f32v">[] {
  const sums = tokens.map(() => k.variable(k.op("i32v.const", [], 0)));
  for (const block of [0, 1]) {
    if (block === 1) for (const sum of sums) k.update(sum, "i32v.shl", [sum], 6);
    fours.forEach((four, run) => {
      tokens.forEach((t, i) => {
        const at = (runBlocks(layout) * run + block) * inTile + t;
        const xs = reader.i32(x, at, ACTIVATION_FIELDS.sumBytes);
        const bytes = [xs, four].map((value) => k.op("i32v.as_i8v", [value]));
        k.update(sums[i]!, "i32v.dot4", [bytes[0]!, bytes[1]!, sums[i]!]);
      });
    });
  }
  return sums.map((sum) => k.op("f32v.from_i32v", [sum]));
}

function fromNibbles(
  { k, layout, reader, x, inTile, tokens }: SpanMins,
  fours: readonly Reg<"i32v">[],
): Reg<"f32v">[] {
  const sums = tokens.map(() => k.variable(k.op("f32v.const", [], 0)));
  const isShared = tokens.length > 1;
  const float = (value: Reg<"i32v">) => k.op("f32v.from_i32v", [value]);
  fours.forEach((four, run) => {
    for (let block = 0; block < runBlocks(layout); block++) {
      for (let part = 0; part < scaleParts(layout); part++) {
        const min = () => {
          const nibble = k.op("i32v.shr_u", [four], 8 * scaleByte(layout, block, part) + 4);
          return k.op("i32v.and", [nibble, k.op("i32v.const", [], 15)]);
        };
        const shared = isShared ? float(min()) : undefined;
        tokens.forEach((t, i) => {
          const at = (runBlocks(layout) * run + block) * inTile + t;
          const own = reader.sum(x, at, part, scaleParts(layout));
          const small = shared ?? min();
          const values = [float(own), shared ?? float(small as Reg<"i32v">)];
          k.update(sums[i]!, "f32v.fma", [values[0]!, values[1]!, sums[i]!]);
        });
      }
    }
  });
  // Beside plain half floats, sums of activations are stored negated.
  return layout.halves === "coded" ? sums : sums.map((sum) => k.op("f32v.neg", [sum]));
}

/** As fromBytes: a run has two blocks, whose mins and sums of activations are 16-bit integers side by side. */
function fromWords(span: SpanMins, fours: readonly Reg<"i32v">[]): Reg<"f32v">[] {
  const { k, tokens } = span;
  const mins = fours.map((four) => k.op("i16v.shr_s", [k.op("i32v.as_i16v", [four])], 8));
  return tokens.map((t) => {
    const products = mins.map((min, run) => k.op("i32v.dot2", [sumsOfRun(span, run, t), min]));
    return k.op("f32v.from_i32v", [products.reduce((a, b) => k.op("i32v.add", [a, b]))]);
  });
}

/** The sums of the activations of a run's two blocks: 64 h + l (packed.ts). */
function sumsOfRun({ k, layout, reader, x, inTile }: SpanMins, run: number, t: number) {
  const [high, low] = [0, 1].map((block) => {
    const at = (runBlocks(layout) * run + block) * inTile + t;
    const bytes = k.op("i32v.as_i16v", [reader.i32(x, at, ACTIVATION_FIELDS.sumBytes)]);
    return k.op("i16v.shr_s", [bytes], 8);
  });
  return k.op("i16v.add", [k.op("i16v.shl", [high!], 6), low!]);
}

/** As fromNibbles, whose sums are integers, too: each product of a half of two blocks, side by side. */
function fromNibbleWords(span: SpanMins, fours: readonly Reg<"i32v">[]): Reg<"f32v">[] {
  const { k, layout, reader, x, inTile, tokens } = span;
  const nibbles = k.op("i8v.splat", [], 15);
  const mins = fours.map((four) => {
    const upper = k.op("i32v.as_i8v", [k.op("i32v.shr_u", [four], 4)]);
    return evenAndOdd(k, k.op("i8v.and", [upper, nibbles]));
  });
  return tokens.map((t) => {
    const products = mins.flatMap((both, run) =>
      both.map((min, part) => {
        const [first, second] = [0, 1].map((block) => {
          const at = (runBlocks(layout) * run + block) * inTile + t;
          if (layout.products === "words") return reader.sum(x, at, part, scaleParts(layout));
          const pairs = reader.pairSums(x, at, part, scaleParts(layout), layout.spanBlocks);
          return k.op("i32v.dot2", [
            pairs,
            k.op("i32v.as_i16v", [k.op("i32v.const", [], 0x10001)]),
          ]);
        });
        const low = k.op("i32v.and", [first!, k.op("i32v.const", [], 0xffff)]);
        const sums = k.op("i32v.or", [low, k.op("i32v.shl", [second!], 16)]);
        return k.op("i32v.dot2", [k.op("i32v.as_i16v", [sums]), min]);
      }),
    );
    return k.op("f32v.from_i32v", [products.reduce((a, b) => k.op("i32v.add", [a, b]))]);
  });
}
