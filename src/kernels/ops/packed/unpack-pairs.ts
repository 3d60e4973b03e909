// The first half of matmul/i8mm.ts: unpacks quants and scales of packed weights (packed.ts) into scratch memory as pairs of
// rows, as IR. A block there is
//   quants  [4 times 8 columns][8 pairs of rows]: r0's 8, r1's 8, without their offset
//   scales  [part][8 pairs of rows]: r0, r1, r0, r1; then mins where each block has its own
// each a vector of 16 bytes.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import { emitQuants, type Loaded } from "../matmul/emit-quants.ts";
import { emitScales } from "../matmul/emit-scales.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  hasSmallScales,
  quantsAt,
  quantsBytes,
  runAt,
  runBlocks,
  runBytes,
  scaleByte,
  scaleParts,
  scalesAt,
} from "./packed.ts";
import { quantOrder } from "./quant-fields.ts";
import type { SignedQuants } from "./signed-quants.ts";

/** Bytes of a vector. */
export const WIDTH = 16;
/** Groups of rows, and pairs of rows, of a panel. */
export const GROUPS = 4;
export const PAIRS = 8;
/** Quant vectors of a group's block; SMMLA multiplies two of them, 8 columns of each row. */
const VECTORS = BLOCK_COLS / 4;
export const CHUNKS: number = VECTORS / 2;
/** The offset of an unpacked block's scales: after its quants. */
export const SCALES_AT: number = CHUNKS * PAIRS * WIDTH;

/** Bytes of an unpacked block, at most: two vectors of scales for each pair of rows. */
export const MOST_UNPACKED_BYTES: number = SCALES_AT + 2 * PAIRS * WIDTH;

/** Bytes of an unpacked block. */
export function unpackedBytes(layout: BlockLayout): number {
  const mins = hasWholeMins(layout) ? 1 : 0;
  return SCALES_AT + (scaleParts(layout) + mins) * PAIRS * WIDTH;
}

/** Each block has mins of its own, which are not small ones of a span. */
export function hasWholeMins(layout: BlockLayout): boolean {
  return layout.hasMin && !hasSmallScales(layout);
}

/** The layout to unpack, and the kernel for it. */
export interface Unpacking {
  readonly k: KernelBuilder;
  readonly layout: BlockLayout;
  readonly quants: SignedQuants;
}

/** Unpacks `runs` runs, the first of the span at w. */
export function unpackPairs(
  unpacking: Unpacking,
  w: Reg<"ptr">,
  scratch: Reg<"ptr">,
  runs: Reg<"i32">,
): void {
  const { k, layout } = unpacking;
  const from = k.variable(k.op("ptr.add", [w, k.i32(runAt(layout, 0))]), "packed");
  const to = k.variable(scratch, "unpacked");
  k.loop(runs, () => {
    for (let block = 0; block < runBlocks(layout); block++) {
      for (let group = 0; group < GROUPS; group++) {
        unpackQuants(unpacking, from, to, block, group);
        unpackScales(unpacking, from, to, block, group);
      }
      k.advance(to, unpackedBytes(layout));
    }
    k.advance(from, runBytes(layout));
  });
}

/** The quants of a group's block: vectors of four columns of four rows become vectors of eight columns of two rows. */
function unpackQuants(
  { k, layout, quants }: Unpacking,
  from: Reg<"ptr">,
  to: Reg<"ptr">,
  block: number,
  group: number,
): void {
  const { bits } = layout;
  const at = quantsAt(layout, block) + group * quantsBytes(layout);
  const last: Loaded = { vector: -1 };
  const values = new Map<number, Reg<"i8v">>();
  for (const v of quantOrder(bits, 0, VECTORS)) {
    values.set(v, quants.value(emitQuants(k, bits, from, at, v, last)));
    const chunk = v >> 1;
    const [first, second] = [values.get(2 * chunk), values.get(2 * chunk + 1)];
    if (!first || !second) continue;
    const zipped = zip(k, "zip32", asFloats(k, first), asFloats(k, second));
    storePair(k, to, WIDTH * (PAIRS * chunk + 2 * group), zipped);
  }
}

/** The scales of a group's block, for two tokens side by side. */
function unpackScales(
  { k, layout }: Unpacking,
  from: Reg<"ptr">,
  to: Reg<"ptr">,
  block: number,
  group: number,
): void {
  const place = [from, scalesAt(layout, group)] as const;
  const at = (part: number) => SCALES_AT + WIDTH * (PAIRS * part + 2 * group);
  for (let part = 0; part < scaleParts(layout); part++) {
    const { scale, min } = emitScales(k, layout, place, scaleByte(layout, block, part));
    storePair(k, to, at(part), zip(k, "zip64", scale, scale));
    if (min) storePair(k, to, at(part + 1), zip(k, "zip64", min, min));
  }
}

function storePair(
  k: KernelBuilder,
  to: Reg<"ptr">,
  at: number,
  [first, second]: readonly Reg<"f32v">[],
): void {
  k.op("f32v.store", [to, first!], at);
  k.op("f32v.store", [to, second!], at + WIDTH);
}

function asFloats(k: KernelBuilder, bytes: Reg<"i8v">): Reg<"f32v"> {
  return k.op("i32v.as_f32v", [k.op("i8v.as_i32v", [bytes])]);
}

/** Interleaves two vectors by 4 or 8 bytes: the lower halves of both, then the upper ones. */
export function zip(
  k: KernelBuilder,
  size: "zip32" | "zip64",
  a: Reg<"f32v">,
  b: Reg<"f32v">,
): [Reg<"f32v">, Reg<"f32v">] {
  return [k.op(`arm64.${size}_low`, [a, b]), k.op(`arm64.${size}_high`, [a, b])];
}
