// The kernel that packs 16 rows of a quantized weight into a row panel (packed.ts), as IR: the same as pack.ts in TypeScript, ten
// times as fast. A span at a time:
//   1. its words (4 bytes of the file) go into scratch memory, transposed: word -> 16 rows. Loads and stores of 4 bytes.
//   2. a vector then holds the same word of a group's rows, one in each lane, as vectors of the panel do. Shifts and masks on
//      whole vectors make quants, scales and headers of them (pack-words-of-*.ts says how, type by type).
// All words are transposed before the first vector is loaded: a vector that is loaded right after its lanes were stored
// one by one waits until the stores have left the store buffer.
//
// Panels with fewer than 16 rows, and rows whose scales cannot be raised (half-panels.ts), are packed by pack.ts.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import type { Dot4 } from "../../ir/meanings.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  factorsBytes,
  groupsPerPanel,
  hasSmallScales,
  headerBytes,
  PANEL_ROWS,
  quantsAt,
  quantsBytes,
  runAt,
  runBlocks,
  scaleByte,
  scaleParts,
  scalesAt,
  spanBytes,
} from "./packed.ts";
import { type LayoutTarget, layoutFor, type Packing } from "./packing.ts";
import { quantFields } from "./quant-fields.ts";

/** The conversion of a span's words to quants and scales: vectors whose lanes are rows. */
export interface SpanWords {
  /** Offsets of the words that are read, from the first byte of the span on. */
  readonly words: readonly number[];
  /** Quants 4v..4v+3 of a block, a byte each. */
  quant(lanes: Lanes, block: number, v: number, dot4: Dot4): Reg<"i32v">;
  /** Layouts with half-float scales: the offset of the scale. Its word is among `words`; a min is behind it. */
  readonly halfAt?: number;
  /** Layouts with bfloat16 scales: their values, whose lower halves are 0. */
  scale?(lanes: Lanes): Reg<"f32v">;
  /** Layouts with small scales: the header's scale and min, and the scales and mins in the lowest byte, [block][part]. */
  header?(lanes: Lanes): readonly Reg<"f32v">[];
  smallScale?(lanes: Lanes, index: number): Reg<"i32v">;
  smallMin?(lanes: Lanes, index: number): Reg<"i32v">;
}

/** Bytes of a word of all rows in scratch memory. */
const WORD_BYTES: number = PANEL_ROWS * 4;
/** The most words of a span. */
const MOST_WORDS = 64;
/** Scratch memory of a thread: words, then half-float scales and mins of all rows, which are stored as words. */
const HALVES_AT: number = MOST_WORDS * WORD_BYTES;
const HALVES_STEP: number = PANEL_ROWS * 2 + 16;
export const PACK_SCRATCH_BYTES: number = HALVES_AT + 2 * HALVES_STEP;

/** The words of a group's rows, and arithmetic on them. */
export class Lanes {
  readonly k: KernelBuilder;
  readonly #words: readonly number[];
  readonly #scratch: Reg<"ptr">;

  constructor(k: KernelBuilder, words: readonly number[], scratch: Reg<"ptr">) {
    this.k = k;
    this.#words = words;
    this.#scratch = scratch;
  }

  /** The word at this offset, which is among those that are read. */
  word(offset: number): Reg<"i32v"> {
    return this.k.op("i32v.load", [this.#scratch], this.#words.indexOf(offset) * WORD_BYTES);
  }

  /** The byte at this offset of a span whose words begin at multiples of 4. */
  byte(offset: number): Reg<"i32v"> {
    return this.and(this.shr(this.word(offset & ~3), 8 * (offset & 3)), 255);
  }

  and(x: Reg<"i32v">, mask: number): Reg<"i32v"> {
    return this.k.op("i32v.and", [x, this.k.op("i32v.const", [], mask | 0)]);
  }

  or(x: Reg<"i32v">, y: Reg<"i32v">): Reg<"i32v"> {
    return this.k.op("i32v.or", [x, y]);
  }

  shr(x: Reg<"i32v">, by: number): Reg<"i32v"> {
    return by === 0 ? x : this.k.op("i32v.shr_u", [x], by);
  }

  shl(x: Reg<"i32v">, by: number): Reg<"i32v"> {
    return by === 0 ? x : this.k.op("i32v.shl", [x], by);
  }

  /** (x >>> by) & mask. */
  bits(x: Reg<"i32v">, by: number, mask: number): Reg<"i32v"> {
    return this.and(this.shr(x, by), mask);
  }

  /** The value of the half float in the lower half of each lane. */
  float(half: Reg<"i32v">): Reg<"f32v"> {
    const { k } = this;
    const sign = this.shl(this.and(half, 0x8000), 16);
    const size = this.shl(this.and(half, 0x7fff), 13);
    // Shifted, its exponent is 112 too low.
    const shifted = k.op("i32v.as_f32v", [this.or(sign, size)]);
    const finite = k.op("f32v.mul", [shifted, k.op("f32v.const", [], 2 ** 112)]);
    const special = this.or(this.or(sign, this.and(size, 0x7fffff)), this.#const(0x7f800000));
    const carried = k.op("i32v.add", [this.and(half, 0x7c00), this.#const(0x400)]);
    const isSpecial = k.op("i32v.shr_s", [this.shl(carried, 16)], 31);
    const bits = k.op("f32v.as_i32v", [finite]);
    return k.op("i32v.as_f32v", [k.op("i32v.select", [isSpecial, special, bits])]);
  }

  #const(value: number): Reg<"i32v"> {
    return this.k.op("i32v.const", [], value);
  }
}

/** Codes the half floats in the lower halves of lanes as half-panels.ts does, and updates the largest that was seen. */
export function raiseLanes(k: KernelBuilder, half: Reg<"i32v">, largest: Reg<"i32v">): Reg<"i32v"> {
  const and = (x: Reg<"i32v">, mask: number) => k.op("i32v.and", [x, k.op("i32v.const", [], mask)]);
  const size = and(half, 0x7fff);
  k.set(largest, k.op("i32v.max_s", [largest, size]));
  const shifted = k.op("i32v.as_f32v", [k.op("i32v.shl", [size], 13)]);
  const raised = k.op("f32v.mul", [shifted, k.op("f32v.const", [], 2 ** 10)]);
  const code = k.op("i32v.shr_u", [k.op("f32v.as_i32v", [raised])], 13);
  return k.op("i32v.or", [code, and(half, 0x8000)]);
}

/**
 * (source, row bytes, panel, scratch, spans). With coded half floats, it leaves the bits of each row's largest scale where the
 * factor of the row belongs.
 */
export function packKernel(
  dtype: string,
  span: SpanWords,
  packing: Packing,
  target: LayoutTarget,
): Kernel {
  const layout = layoutFor(packing, target);
  const k = new KernelBuilder(`pack_${dtype}`, layout.width);
  const source = k.param("ptr", "source");
  const rowBytes = k.param("i32", "row_bytes");
  const panel = k.param("ptr", "panel");
  const scratch = k.param("ptr", "scratch");
  const spans = k.param("i32", "spans");
  const factors = k.variable(panel, "factors");
  const largest = Array.from(
    { length: layout.scales === "halves" ? groupsPerPanel(layout) : 0 },
    () => k.variable(k.op("i32v.const", [], 0)),
  );
  k.advance(panel, factorsBytes(layout));
  k.loop(spans, () => {
    transpose(k, span, layout, source, rowBytes, scratch);
    if (layout.scales === "plain_halves") copyHalves(k, layout, scratch, panel);
    if (layout.scales === "bfloats") storeUpperHalves(k, span, layout, scratch, panel);
    if (layout.scales === "halves") codeHalves(k, span, layout, scratch, panel, largest);
    packGroups(k, span, layout, scratch, panel, target.dot4);
    k.advance(source, packing.spanBytes);
    k.advance(panel, spanBytes(layout));
  });
  largest.forEach((each, group) => {
    k.op("i32v.store", [factors, each], group * layout.width);
  });
  return k.finish();
}

/** Words of 16 rows into scratch memory. Half floats side by side: each store overwrites the upper half of the one before. */
function transpose(
  k: KernelBuilder,
  { words, halfAt }: SpanWords,
  { scales, hasMin }: BlockLayout,
  source: Reg<"ptr">,
  rowBytes: Reg<"i32">,
  scratch: Reg<"ptr">,
): void {
  const halves = scales === "plain_halves" ? k.variable(k.plus(scratch, HALVES_AT)) : undefined;
  const from = k.variable(source);
  const lane = k.variable(scratch);
  k.loop(k.i32(PANEL_ROWS), () => {
    words.forEach((offset, i) => {
      const word = k.op("i32.load", [from], offset);
      k.op("i32.store", [lane, word], i * WORD_BYTES);
    });
    if (halves) {
      k.op("i32.store", [halves, k.op("i32.load", [from], halfAt)]);
      if (hasMin) k.op("i32.store", [halves, k.op("i32.load", [from], halfAt! + 2)], HALVES_STEP);
      k.advance(halves, 2);
    }
    k.update(from, "ptr.add", [from, rowBytes]);
    k.advance(lane, 4);
  });
}

/** Unchanged half floats into the panel: those of a group's rows, then its mins. */
function copyHalves(
  k: KernelBuilder,
  layout: BlockLayout,
  scratch: Reg<"ptr">,
  panel: Reg<"ptr">,
): void {
  const bytes = layout.width / 2;
  for (let group = 0; group < groupsPerPanel(layout); group++) {
    for (let part = 0; part < (layout.hasMin ? 2 : 1); part++) {
      for (let at = 0; at < bytes; at += 4) {
        const from = HALVES_AT + part * HALVES_STEP + group * bytes + at;
        const to = scalesAt(layout, group) + part * bytes + at;
        k.op("i32.store", [panel, k.op("i32.load", [scratch], from)], to);
      }
    }
  }
}

/**
 * Bfloat16 scales into the panel, side by side: each store overwrites the lower half of the next one's word, and the last one
 * the first quants, which are stored later.
 */
function storeUpperHalves(
  k: KernelBuilder,
  span: SpanWords,
  layout: BlockLayout,
  scratch: Reg<"ptr">,
  panel: Reg<"ptr">,
): void {
  const floatsAt = span.words.length * WORD_BYTES;
  for (let group = 0; group < groupsPerPanel(layout); group++) {
    const lanes = new Lanes(k, span.words, k.plus(scratch, group * layout.width));
    k.op("f32v.store", [scratch, span.scale!(lanes)], floatsAt + group * layout.width);
  }
  for (let row = 0; row < PANEL_ROWS; row++) {
    const upper = k.op("i32.load", [scratch], floatsAt + 4 * row + 2);
    k.op("i32.store", [panel, upper], scalesAt(layout, 0) + 2 * row);
  }
}

/** Coded half floats into the panel: a group's scales above its mins, or above the scales of the next group. */
function codeHalves(
  k: KernelBuilder,
  { words, halfAt }: SpanWords,
  layout: BlockLayout,
  scratch: Reg<"ptr">,
  panel: Reg<"ptr">,
  largest: readonly Reg<"i32v">[],
): void {
  const { hasMin, width } = layout;
  for (let group = 0; group < largest.length; group += hasMin ? 1 : 2) {
    const lanesOf = (of: number) => new Lanes(k, words, k.plus(scratch, of * width));
    const lanes = lanesOf(group);
    const upper = lanes.word(halfAt!);
    const lower = hasMin ? lanes.shr(upper, 16) : lanesOf(group + 1).word(halfAt!);
    const scale = raiseLanes(k, lanes.and(upper, 0xffff), largest[group]!);
    const other = raiseLanes(k, lanes.and(lower, 0xffff), largest[hasMin ? group : group + 1]!);
    const both = lanes.or(lanes.shl(scale, 16), other);
    k.op("i32v.store", [panel, both], scalesAt(layout, group));
  }
}

/** Quants, and scales that are not half floats, one group after the other. */
function packGroups(
  k: KernelBuilder,
  span: SpanWords,
  layout: BlockLayout,
  scratch: Reg<"ptr">,
  panel: Reg<"ptr">,
  dot4: Dot4,
): void {
  const { width } = layout;
  if (layout.paired) {
    packPairs(k, span, layout, scratch, panel, dot4);
    return;
  }
  const isSmall = hasSmallScales(layout);
  const words = k.variable(scratch);
  const quants = k.variable(panel);
  const headers = isSmall ? k.variable(panel) : undefined;
  const scales = isSmall ? k.variable(panel) : undefined;
  k.loop(k.i32(groupsPerPanel(layout)), () => {
    const lanes = new Lanes(k, span.words, words);
    if (headers) {
      span.header!(lanes).forEach((value, i) => {
        k.op("f32v.store", [headers, value], i * width);
      });
      k.advance(headers, headerBytes(layout));
    }
    if (scales) {
      packScales(lanes, span, layout, scales);
      k.advance(scales, width);
    }
    for (let block = 0; block < layout.spanBlocks; block++) {
      packQuants(lanes, layout, quants, block, (v) => span.quant(lanes, block, v, dot4));
    }
    k.advance(words, width);
    k.advance(quants, quantsBytes(layout));
  });
}

/** The quants of two groups at a time, which share bytes: the second one's are 8 less, in the high nibbles. */
function packPairs(
  k: KernelBuilder,
  span: SpanWords,
  layout: BlockLayout,
  scratch: Reg<"ptr">,
  panel: Reg<"ptr">,
  dot4: Dot4,
): void {
  const { width } = layout;
  const words = k.variable(scratch);
  const quants = k.variable(panel);
  k.loop(k.i32(groupsPerPanel(layout) / 2), () => {
    const first = new Lanes(k, span.words, words);
    const second = new Lanes(k, span.words, k.plus(words, width));
    for (let v = 0; v < BLOCK_COLS / 4; v++) {
      const high = first.shl(span.quant(second, 0, v, dot4), 4);
      const both = first.or(span.quant(first, 0, v, dot4), high);
      const flipped = k.op("i8v.xor", [k.op("i32v.as_i8v", [both]), k.op("i8v.splat", [], -0x80)]);
      k.op("i8v.store", [quants, flipped], quantsAt(layout, 0) + width * v);
    }
    k.advance(words, 2 * width);
    k.advance(quants, 2 * quantsBytes(layout));
  });
}

function packScales(lanes: Lanes, span: SpanWords, layout: BlockLayout, scales: Reg<"ptr">): void {
  const { k } = lanes;
  const [inRun, parts] = [runBlocks(layout), scaleParts(layout)];
  for (let run = 0; run < layout.spanBlocks / inRun; run++) {
    let bytes: Reg<"i32v"> | undefined;
    const put = (value: Reg<"i32v">, shift: number) => {
      const shifted = lanes.shl(value, shift);
      bytes = bytes ? lanes.or(bytes, shifted) : shifted;
    };
    for (let i = 0; i < inRun * parts; i++) {
      const index = run * inRun * parts + i;
      const shift = 8 * scaleByte(layout, Math.floor(i / parts), i % parts);
      put(span.smallScale!(lanes, index), shift);
      if (layout.hasMin)
        put(span.smallMin!(lanes, index), shift + (layout.scales === "nibbles" ? 4 : 8));
    }
    k.op("i32v.store", [scales, bytes!], runAt(layout, run));
  }
}

/** The quants of a block of a group into its vectors: the table of quant-fields.ts. */
function packQuants(
  lanes: Lanes,
  layout: BlockLayout,
  to: Reg<"ptr">,
  block: number,
  quant: (v: number) => Reg<"i32v">,
): void {
  const { bits, width } = layout;
  const inRun = runBlocks(layout);
  const at = runAt(layout, Math.floor(block / inRun)) + quantsAt(layout, block % inRun);
  const known = new Map<number, Reg<"i32v">>();
  for (let vector = 0; vector < bits; vector++) {
    let made: Reg<"i32v"> | undefined;
    quantFields[bits].forEach((fields, v) => {
      for (const field of fields.filter((each) => each.vector === vector)) {
        const whole = known.get(v) ?? quant(v);
        known.set(v, whole);
        const isWhole = field.to === 0 && field.width === bits;
        const mask = (2 ** field.width - 1) * 0x01010101;
        const part = isWhole ? whole : lanes.bits(whole, field.to, mask);
        const shifted = lanes.shl(part, field.from);
        made = made ? lanes.or(made, shifted) : shifted;
      }
    });
    lanes.k.op("i32v.store", [to, made!], at + vector * width);
  }
}
