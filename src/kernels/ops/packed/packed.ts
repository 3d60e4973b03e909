// The memory layouts of weights and activations for the tiled matmul kernels, as data. pack.ts packs weights, unpack.ts reads
// them back, matmul/quantize-activations.ts makes activations.
//
// Weights. 16 rows are a row panel. A group is as many rows as a vector has 32-bit lanes (4, 8 or 16 rows, for vectors of 16,
// 32 or 64 bytes). The columns of a panel are blocks of 32. A run is 1, 2 or 4 blocks whose scales are stored together. A
// span is one block, or the 8 blocks that share a header. A panel is, in this order:
//   factors (only with coded half-float scales: f32 x 16, the factor on the results of each row; half-panels.ts)
//   span -> { headers of the groups, run, run, ... }
//   header  an f32 for each row that its small scales are multiplied by, then one for its small mins (where there are any)
//   run     the scales of the groups, then block -> group -> quants
//     scales  of one block, a half float for each row. Coded ("halves"): the 32-bit lanes of a vector hold the scales of two
//             groups, the first in the upper halves; or a group's scales (upper) and mins (lower). Unchanged
//             ("plain_halves"): the scales of a group's rows, then their mins
//             or a bfloat16 for each row (MXFP4, whose scales are powers of 2 with more exponents than half floats)
//             or a float for each row, then its min ("floats": only where a panel is unpacked for a batch; unpack-panel.ts)
//             or one vector of small integers, four bytes for each row:
//               scale, min | scale, min                             two blocks (Q4_K, Q5_K)
//               scale | scale | scale | scale                       four blocks
//               scale, scale | scale, scale                         two blocks, one for each 16 columns (Q6_K, Q3_K)
//               the same, mins in the high nibbles (Q2_K)
//     quants  as many vectors as a quant has bits. They hold 8 quant vectors (quant-fields.ts), of which number v has columns
//             4v..4v+3: row 0's four, row 1's, ...
//             Paired (Q4_0 beside a signed dot4 of 16 bytes): the 8 vectors of two groups have the first group's quants in their
//             low nibbles and the second group's, less 8, in their high ones
// One dot4 with a quant vector computes all rows of a group. A kernel for all groups reads a panel from its first byte to its
// last, which suits hardware prefetchers. A quant q stands for scale * (q - offset) + min, or with a codebook
// scale * (codebook[q] - offset).
//
// Activations. One token's block of 32 columns:
//   f32 scale, i32 sum of the quants, f32 scale * sum, i32 sum of the first 16, then 32 signed quants
// and, with words, the quants again: as 16-bit integers, those of even columns 0..14, of odd ones, of even ones 16..30, of odd ones;
// or, beside a dot4 of 0..127 ("signs"), their magnitudes, the bytes of their signs (-1 where negative) and the i32 sum of the
// magnitudes of the negative ones
// or, replicated, the first of these with every field and every 4 quants repeated in every lane of a vector. Where 8 blocks share a
// scale, the third field is different: the sums s of two blocks, as 64 h + l, in bytes for a dot4 with the mins:
//   0, h, 0, h in the first of two blocks, 0, l, 0, l in the second
// Beside products of two ("twos" and "signs"), sums are those of pairs of columns, two i16 as those of a vector's lanes: of columns 4v and
// 4v+1, and of 4v+2 and 4v+3. A block with its own scale has them in its fourth field; one of 8 has those of its first 16 columns
// there, and those of the other 16 in the second field
// Beside coded half floats, the scale of a single block is multiplied by 2^102 (half-panels.ts). Otherwise it is not, and the
// sums of quants are stored negated: the offset, which then is a power of 2, is cancelled by a shift.
// A token tile is the T tokens that a kernel computes at once. Their blocks lie one after the other: tile -> block -> token.

import type { Dot4 } from "../../ir/meanings.ts";
import type { Halves, KernelTarget, VectorWidth } from "../../target.ts";
import type { QuantBits } from "./quant-fields.ts";

export const PANEL_ROWS = 16;
/** Columns of a block. */
export const BLOCK_COLS = 32;

/** The quants and scales of a type, independent of the width of a vector. */
export interface QuantLayout {
  readonly bits: QuantBits;
  /** Subtracted from every quant: once per scale, by way of the sum of the activations. */
  readonly offset: number;
  readonly hasMin: boolean;
  /** Complete ("halves" and "bfloats"), or multiplied by the header: "bytes" (signed), "nibbles" (scale low, min high). */
  readonly scales: "halves" | "bfloats" | "bytes" | "nibbles";
  /** Columns that share a scale: 32, or 16. */
  readonly scaleCols: 32 | 16;
  /** Blocks of a span. */
  readonly spanBlocks: 1 | 8;
  /** Quants are indices of a codebook of 16 bytes, whose address the kernel gets. */
  readonly lookup: boolean;
  /** The kernel must use dot4_ss: the quants are out of range for this target's dot4. */
  readonly widened: boolean;
}

export interface BlockLayout extends Omit<QuantLayout, "scales"> {
  /** "halves" are coded, "plain_halves" unchanged, "floats" widened. */
  readonly scales: QuantLayout["scales"] | "plain_halves" | "floats";
  /** Bytes of a vector. */
  readonly width: VectorWidth;
  /** The target's kind of half floats, on which activations depend: also those for types without half floats. */
  readonly halves: Halves;
  /** Two groups share the bytes of their quants. */
  readonly paired: boolean;
  /** The way that kernels for register tiles add up the products of a block (word-dots.ts). */
  readonly products: Products;
}

/**
 * "fours": dot4 or dot4_ss. Only beside coded half floats: "twos": 16-bit sums of two products of bytes, the second of
 * 0..127; "signs": the same for any signed quants, with the signs of activations moved to them; "words": products of 16-bit
 * integers.
 */
export type Products = "fours" | "twos" | "signs" | "words";

/** With x86's dot product of 0..127, which is one of two products and two more instructions, "twos" save these. */
export function productsFor({ widened }: QuantLayout, dot4: Dot4): Products {
  if (dot4 === "words") return "words";
  if (dot4 !== "i7") return "fours";
  return widened ? "signs" : "twos";
}

/** Whether activations beside this target's layouts have sums of pairs of columns. */
export function hasPairSums({ dot4, halves }: Pick<KernelTarget, "dot4" | "halves">): boolean {
  return halves === "coded" && dot4 === "i7";
}

/** The layout of a type on a target. */
export function blockLayoutFor(
  quants: QuantLayout,
  { width, dot4, halves, i8mm }: Pick<KernelTarget, "width" | "dot4" | "halves" | "i8mm">,
): BlockLayout {
  const products = halves === "coded" ? productsFor(quants, dot4) : "fours";
  if (halves === "coded") return { ...quants, width, halves, paired: false, products };
  const scales = quants.scales === "halves" ? "plain_halves" : quants.scales;
  // Codebooks can be raised to any offset, and beside a signed dot4 need none. Quants that are numbers cannot, but their offsets
  // are powers of 2 already.
  const raised = dot4 === "signed" ? 0 : powerOf2(quants.offset);
  const offset = quants.lookup ? raised : quants.offset;
  const paired = width === 16 && !i8mm && isPairable(quants);
  return { ...quants, offset, scales, width, halves, paired, products };
}

/** Nibbles less 8, with a scale for 32 of them. */
function isPairable({ bits, offset, lookup, hasMin, spanBlocks }: QuantLayout): boolean {
  return bits === 4 && offset === 8 && !lookup && !hasMin && spanBlocks === 1;
}

/** The sums of bytes of two nibbles have the second group's times this. */
export const SECOND_SCALE = 16;

/** The second group of a pair. */
export function isSecond({ paired }: BlockLayout, group: number): boolean {
  return paired && (group & 1) === 1;
}

/** The least power of 2 that is not below `offset`; 0 for 0. */
function powerOf2(offset: number): number {
  return offset === 0 ? 0 : 2 ** Math.ceil(Math.log2(offset));
}

/** Rows of a group: the 32-bit lanes of a vector. */
export function groupRows({ width }: Pick<BlockLayout, "width">): number {
  return width / 4;
}

export function groupsPerPanel(layout: Pick<BlockLayout, "width">): number {
  return PANEL_ROWS / groupRows(layout);
}

/** Scales are small integers in units of the header. */
export function hasSmallScales({ scales }: BlockLayout): boolean {
  return scales === "bytes" || scales === "nibbles";
}

/** Scales of a block. */
export function scaleParts(layout: BlockLayout): number {
  return BLOCK_COLS / layout.scaleCols;
}

/** Bytes from a scale to the next in a row's four: 2 where a min lies between. */
function scaleStep(layout: BlockLayout): number {
  return layout.hasMin && layout.scales === "bytes" ? 2 : 1;
}

/** Blocks of a run. */
export function runBlocks(layout: BlockLayout): number {
  return !hasSmallScales(layout) ? 1 : 4 / (scaleStep(layout) * scaleParts(layout));
}

/** Which of a row's four bytes is the scale of a part of a block of a run; its min is the next byte. */
export function scaleByte(layout: BlockLayout, block: number, part: number): number {
  return scaleStep(layout) * (block * scaleParts(layout) + part);
}

/** Bytes of a group's scales and mins of a run. */
function scalesBytes(layout: BlockLayout): number {
  const { scales, hasMin, width } = layout;
  if (scales === "bytes" || scales === "nibbles") return width;
  if (scales === "floats") return hasMin ? 2 * width : width;
  return hasMin ? width : width / 2;
}

/**
 * The offset of a group's scales from the run's first byte. With coded half floats, a vector loaded here has the scales in the
 * upper halves of its lanes (for a group in the lower halves, this is two bytes earlier), and a vector loaded two bytes
 * before has the mins there. A shift and a mask make floats of them.
 */
export function scalesAt(layout: BlockLayout, group: number): number {
  if (layout.scales !== "halves" || layout.hasMin) return group * scalesBytes(layout);
  return layout.width * (group >> 1) - 2 * (group & 1);
}

/** Bytes of a group's quants of a block; paired groups have twice as many together. */
export function quantsBytes(layout: BlockLayout): number {
  return layout.width * layout.bits;
}

/** The group whose bytes hold a group's quants: the first of a pair. */
export function groupOfQuants(layout: BlockLayout, group: number): number {
  return isSecond(layout, group) ? group - 1 : group;
}

/** Bytes of a run, all groups. */
export function runBytes(layout: BlockLayout): number {
  return groupsPerPanel(layout) * (scalesBytes(layout) + runBlocks(layout) * quantsBytes(layout));
}

/** The offset of a block's quants from the run's first byte: those of the first group. */
export function quantsAt(layout: BlockLayout, block: number): number {
  return groupsPerPanel(layout) * (scalesBytes(layout) + block * quantsBytes(layout));
}

/** Bytes of a group's header. */
export function headerBytes(layout: BlockLayout): number {
  if (!hasSmallScales(layout)) return 0;
  return layout.hasMin ? 2 * layout.width : layout.width;
}

/** The offset of a run from its span's first byte. */
export function runAt(layout: BlockLayout, run: number): number {
  return groupsPerPanel(layout) * headerBytes(layout) + run * runBytes(layout);
}

/** Bytes of a span, all groups. */
export function spanBytes(layout: BlockLayout): number {
  return runAt(layout, layout.spanBlocks / runBlocks(layout));
}

/** Bytes of the factors in front of a panel's spans. */
export function factorsBytes(layout: BlockLayout): number {
  return layout.scales === "halves" ? PANEL_ROWS * 4 : 0;
}

/** Bytes of a panel of `cols` columns. */
export function rowPanelBytes(layout: BlockLayout, cols: number): number {
  return factorsBytes(layout) + (cols / (BLOCK_COLS * layout.spanBlocks)) * spanBytes(layout);
}

/** The fields before the quants of an activation block, in order; `sumBytes` where 8 blocks share a scale. */
export const ACTIVATION_FIELDS = {
  scale: 0,
  sum: 1,
  scaledSum: 2,
  sumBytes: 2,
  firstSum: 3,
} as const;

/** The offset of the quants in an activation block that is not replicated: after the fields. */
export const ACTIVATION_QUANTS_AT = 16;

/** The offset of the words in an activation block with words. */
export const ACTIVATION_WORDS_AT: number = ACTIVATION_QUANTS_AT + BLOCK_COLS;

/** The offset of the sum of negative quants' magnitudes, after the magnitudes and signs. */
export const ACTIVATION_NEGATIVES_AT: number = ACTIVATION_WORDS_AT + 2 * BLOCK_COLS;

/** `width`: bytes of a vector, which replicated blocks depend on. */
export function activationBlockBytes(replicated: boolean, width: number, words = false): number {
  if (words) return ACTIVATION_WORDS_AT + 2 * BLOCK_COLS + 16;
  return (replicated ? width / 4 : 1) * (4 * 4 + BLOCK_COLS);
}
