// The tiled matmul kernels for quantized weights: G groups of rows (as many rows as a vector has lanes) times T tokens, all
// columns. Sums are integers within a scale and floats above that. Layouts: packed.ts. Pointers to weights: tile-pointers.ts.
//
// Cost per block of 32 columns of a G x T register tile, nibbles with one scale: 4G loads of quants, 12G unpack ops, 8T
// loads of activations, 8GT dot4, and per (g, t) a convert, a multiply and an fma. A dot4 does 4 multiply-adds per lane.
// If a span has a header, its blocks are summed with their small scales alone; the header, the activations' scale and
// all mins are applied once per span.
//
// Two loop orders:
//   vector  few tokens: walks over the row panels of a thread's chunk; weights stream, activations stay in the cache.
//   matrix  part of one row panel: walks over token tiles; the weights stay in the cache.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import {
  ACTIVATION_FIELDS,
  BLOCK_COLS,
  type BlockLayout,
  groupsPerPanel,
  hasSmallScales,
  isSecond,
  PANEL_ROWS,
  quantsBytes,
  runAt,
  runBlocks,
  runBytes,
  scaleByte,
  scaleParts,
  spanBytes,
} from "../packed/packed.ts";
import { quantOrder } from "../packed/quant-fields.ts";
import { ActivationReader } from "./emit-activations.ts";
import { emitMins } from "./emit-mins.ts";
import { emitQuants, type Loaded } from "./emit-quants.ts";
import { emitActivationScale, emitScales } from "./emit-scales.ts";
import {
  convertsBySubtraction,
  startAsFloat,
  startOfSum,
  startsAsFloats,
  startWithOffset,
  valueOfSum,
} from "./float-sums.ts";
import { CACHE_LINE, usualAhead } from "./prefetch.ts";
import { addSpanSum, type Grid, grid, type Header, loadHeader, SpanSums } from "./span-sums.ts";
import { TilePointers } from "./tile-pointers.ts";
import { forEachResult, type Results, storeResults } from "./tile-results.ts";
import { isByToken, sumsByToken, type WordDots, wordDots } from "./word-dots.ts";

export interface BlockMatmul {
  readonly name: string;
  readonly layout: BlockLayout;
  /** Groups of rows computed at once. In vector order, the kernel goes over all groups of a row panel. */
  readonly groups: number;
  /** Tokens computed at once. */
  readonly tokens: number;
  /** Activations are repeated in every lane. */
  readonly replicated: boolean;
  /** Activations have words (packed.ts). */
  readonly words?: boolean;
  readonly order: "vector" | "matrix";
  /**
   * vector: row panels computed alternately, block by block, each a stream through memory (default 1). Hardware
   * prefetchers stop at the end of a page; with several streams most of them are always busy.
   */
  readonly streams?: number;
  /** The distance in bytes by which quants are prefetched; 0: no prefetch. Default: the layout decides. */
  readonly ahead?: number;
}

/**
 * Prefetch distance with several tokens. Against 2048 bytes, with weights in memory and in large pages: 2 tokens are 1.07 to
 * 1.12 times as fast (Q4_0), 4 tokens 1.05 (Q8_0) to 1.2 (Q4_K), 8 tokens 1.04 to 1.12. 8192 is about the same; no prefetch
 * takes 1.3 to 1.5 times as long (lantern tune). Vectors of 16 bytes (Neoverse-N1, 8 x 6, 30 tokens), against no prefetch:
 * Q4_0 1.05 (1152 columns) to 1.15 times as fast (6912), Q8_0 1.13, MXFP4 1.08.
 */
const AHEAD_OF_TILES = 4096;

/**
 * vector: (w, x, out, spans, tiles, codebook): all groups of each row panel; writes 16 floats per panel and token.
 * With several tokens: (..., outStride), as below. With several streams: (..., apart, outApart): stream s begins
 * `s * apart` bytes further, its results `s * outApart` bytes further.
 * matrix: (w, x, out, spans, tokenTiles, codebook, outStride, group): part of the row panel at w, from group number `group`
 * on; x are the token tiles one after the other, outStride the bytes from one token's result to the next one's.
 * `codebook` is the address of the codebook of a layout with a lookup (codebookFor()), and not read otherwise.
 */
export function blockMatmulKernel(shape: BlockMatmul): Kernel {
  return new BlockMatmulBuilder(shape).build();
}

/** Tokens whose mins are summed at once where registers are few. */
const MINS_TOGETHER = 2;

class BlockMatmulBuilder {
  readonly #shape: BlockMatmul;
  readonly #k: KernelBuilder;
  readonly #x: ActivationReader;
  readonly #w: TilePointers;
  /** The codebook, in a register for the whole kernel. */
  #codebook: Reg<"i8v"> | undefined;

  constructor(shape: BlockMatmul) {
    const { layout, order, groups } = shape;
    if (layout.paired && groups % 2 === 1) {
      throw new Error(`${shape.name}: ${groups} groups of a layout that has pairs of them`);
    }
    this.#shape = shape;
    this.#k = new KernelBuilder(shape.name, layout.width);
    this.#x = new ActivationReader(this.#k, shape.replicated, shape.words);
    const inStream = order === "matrix" ? groups : groupsPerPanel(layout);
    this.#w = new TilePointers(this.#k, layout, inStream);
  }

  build(): Kernel {
    const k = this.#k;
    const { order, groups, tokens, layout } = this.#shape;
    const wStart = k.param("ptr", "w");
    const xStart = k.param("ptr", "x");
    const out = k.param("ptr", "out");
    const spans = k.param("i32", "spans");
    const rounds = k.param("i32", order === "matrix" ? "tokenTiles" : "tiles");
    const codebook = k.param("ptr", "codebook");
    const isMatrix = order === "matrix";
    const stride = isMatrix || tokens > 1 ? k.param("i32", "outStride") : undefined;
    const streams = this.#shape.streams ?? 1;
    const apart = streams > 1 ? k.param("i32", "apart") : undefined;
    const outApart = streams > 1 ? k.param("i32", "outApart") : undefined;
    const group = isMatrix ? k.param("i32", "group") : undefined;
    if (group && groups < groupsPerPanel(layout)) this.#w.shiftTo(group);
    if (layout.lookup) this.#codebook = k.op("i8v.load", [codebook]);
    const w = k.variable(wStart, "w_at");
    const x = k.variable(xStart, "x_at");
    this.#w.begin(w, streams, apart);
    const results: Results = {
      out,
      stride,
      apart: outApart,
      groups: this.#groups,
      inStream: this.#w.inStream,
      tokens,
    };
    k.loop(rounds, () => {
      if (isMatrix) k.set(w, wStart);
      else k.set(x, xStart);
      this.#w.toTile(w);
      if (this.#isInMemory) this.#tileInMemory(w, x, spans, results);
      else {
        const sums = this.#tile(w, x, spans);
        this.#w.endTile(w);
        storeResults(k, layout, results, sums, this.#w);
      }
      if (!isMatrix) k.advance(out, PANEL_ROWS * 4);
      else for (let t = 0; t < tokens; t++) k.update(out, "ptr.add", [out, stride!]);
    });
    return k.finish();
  }

  /**
   * The sums over all spans are kept in `out`, and only those of the current span in registers. Machine code does not spill,
   * so twice as many tokens fit. WebAssembly's compilers spill by themselves.
   */
  get #isInMemory(): boolean {
    const { layout } = this.#shape;
    return layout.halves === "hardware" && hasSmallScales(layout);
  }

  /** Groups of all streams. */
  get #groups(): number {
    return this.#w.inStream * (this.#shape.streams ?? 1);
  }

  /** All columns of one register tile: G x T vectors of results. */
  #tile(w: Reg<"ptr">, x: Reg<"ptr">, spans: Reg<"i32">): Grid {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    const zero = k.op("f32v.const", [], 0);
    const sums = grid(this.#groups, tokens, () => k.variable(zero));
    const inSpan = hasSmallScales(layout) ? new SpanSums(k, this.#groups, tokens, x) : undefined;
    k.loop(spans, () => {
      this.#w.toSpan(w);
      if (inSpan) {
        inSpan.begin(x);
        this.#span(w, x, inSpan);
        this.#scaleSpan(inSpan, sums);
      } else this.#blocks(1, x, sums);
      k.advance(w, spanBytes(layout));
    });
    return sums;
  }

  /** The same, with each span added to the results in memory. */
  #tileInMemory(w: Reg<"ptr">, x: Reg<"ptr">, spans: Reg<"i32">, results: Results): void {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    const zero = k.op("f32v.const", [], 0);
    forEachResult(k, results, (_g, _t, row, at) => k.op("f32v.store", [row, zero], at));
    k.loop(spans, () => {
      this.#w.toSpan(w);
      const inSpan = new SpanSums(k, this.#groups, tokens, x);
      this.#span(w, x, inSpan);
      this.#addSpan(inSpan, results);
      k.advance(w, spanBytes(layout));
    });
  }

  /** The blocks of a span with a header. The pointers are back at the span afterwards. */
  #span(w: Reg<"ptr">, x: Reg<"ptr">, { sums }: SpanSums): void {
    const k = this.#k;
    const { layout } = this.#shape;
    this.#w.advanceRuns(runAt(layout, 0));
    k.loop(k.i32(layout.spanBlocks / runBlocks(layout)), () => {
      if (this.#w.isApart) this.#w.longRun(() => this.#blocks(1, x, sums));
      else {
        this.#blocks(runBlocks(layout), x, sums);
        this.#w.advanceRuns(runBytes(layout));
      }
    });
    this.#w.toSpan(w);
  }

  #blocks(count: number, x: Reg<"ptr">, sums: Grid): void {
    const { tokens, layout } = this.#shape;
    for (let block = 0; block < count; block++) {
      this.#askAhead(block);
      for (let part = 0; part < scaleParts(layout); part++) this.#part(x, block, part, sums);
      this.#k.advance(x, tokens * this.#x.blockBytes);
    }
  }

  /** Prefetches the quants `ahead` bytes later: those of another block, or of the next row panel. */
  #askAhead(block: number): void {
    const { layout } = this.#shape;
    const { ahead = this.#usualAhead } = this.#shape;
    if (ahead === 0) return;
    for (let g = 0; g < this.#groups; g++) {
      const [from, at] = this.#w.quants(g, block);
      for (let line = 0; line < quantsBytes(layout); line += CACHE_LINE) {
        this.#k.op("ptr.prefetch", [from], at + line + ahead);
      }
    }
  }

  get #usualAhead(): number {
    const { layout, order, streams = 1 } = this.#shape;
    if (layout.halves !== "hardware") return 0;
    if (order === "matrix") return AHEAD_OF_TILES;
    return layout.width === 16 ? 0 : usualAhead(layout.width, streams);
  }

  /** The columns of one scale: integer sums, scaled and added to the sums (of the span, where it has a header). */
  #part(x: Reg<"ptr">, block: number, part: number, sums: Grid): void {
    const k = this.#k;
    const { tokens, groups, layout } = this.#shape;
    if (startsAsFloats(this.#shape)) {
      this.#partInFloats(x, block, part, sums);
      return;
    }
    if (isByToken(layout, groups, tokens)) {
      this.#partByToken(x, block, part, sums);
      return;
    }
    const isFloat = convertsBySubtraction(this.#shape);
    const starts = isFloat ? () => startOfSum(k) : this.#starts(x, part);
    const subtrahends = isFloat ? this.#subtrahends(x, part) : undefined;
    for (let first = 0; first < this.#groups; first += groups) {
      const dots = this.#dots(x, block, part, first, starts);
      for (let g = first; g < first + groups; g++) {
        // Scales with a pointer of their own are loaded from the block's byte, which is then the lowest of each lane.
        const byte = this.#w.isApart ? 0 : scaleByte(layout, block, part);
        const { scale, min, isWhole } = emitScales(k, layout, this.#w.scales(g), byte);
        for (let t = 0; t < tokens; t++) {
          const dot = dots[g - first]![t]!;
          const other = isSecond(layout, g)
            ? k.op("i32v.as_f32v", [dots[g - first - 1]![t]!])
            : subtrahends?.(t);
          const value = other ? valueOfSum(k, dot, other) : k.op("f32v.from_i32v", [dot]);
          const factor = isWhole
            ? k.op("f32v.mul", [scale, emitActivationScale(k, layout, this.#x, x, t)])
            : scale;
          const sum = sums[g]![t]!;
          k.update(sum, "f32v.fma", [value, factor, sum]);
          if (!min) continue;
          const scaledSum = this.#x.f32(x, t, ACTIVATION_FIELDS.scaledSum);
          k.update(sum, "f32v.fma", [min, scaledSum, sum]);
        }
      }
    }
  }

  /** The same, each token's sums added before the next one's are computed (word-dots.ts). */
  #partByToken(x: Reg<"ptr">, block: number, part: number, sums: Grid): void {
    const k = this.#k;
    const { groups, layout } = this.#shape;
    const byte = this.#w.isApart ? 0 : scaleByte(layout, block, part);
    for (let first = 0; first < this.#groups; first += groups) {
      const scales = Array.from({ length: groups }, (_, g) => {
        return emitScales(k, layout, this.#w.scales(first + g), byte).scale;
      });
      let t = 0;
      for (const dots of sumsByToken(this.#wordSums(x, block, part, first))) {
        dots.forEach((dot, g) => {
          const sum = sums[first + g]![t]!;
          k.update(sum, "f32v.fma", [k.op("f32v.from_i32v", [dot]), scales[g]!, sum]);
        });
        t++;
      }
    }
  }

  /** The same for integer sums that start as a float (float-sums.ts). */
  #partInFloats(x: Reg<"ptr">, block: number, part: number, sums: Grid): void {
    const k = this.#k;
    const { tokens, groups, layout } = this.#shape;
    const dots = this.#dots(x, block, part, 0, () => startOfSum(k));
    const scales = Array.from({ length: groups }, (_, g) => {
      const byte = this.#w.isApart ? 0 : scaleByte(layout, block, part);
      return emitScales(k, layout, this.#w.scales(g), byte);
    });
    // In a register only from here on: before, activations need it.
    const start = k.variable(startAsFloat(k));
    // Token by token: each scale of activations is loaded once, and the chains of its sums are independent.
    for (let t = 0; t < tokens; t++) {
      const values = dots.map((group) => valueOfSum(k, group[t]!, start));
      const isWhole = scales.every((each) => each.isWhole);
      const xScale = isWhole ? emitActivationScale(k, layout, this.#x, x, t) : undefined;
      const factors = scales.map(({ scale }) =>
        xScale ? k.op("f32v.mul", [scale, xScale]) : scale,
      );
      scales.forEach(({ min }, g) => {
        const sum = sums[g]![t]!;
        k.update(sum, "f32v.fma", [values[g]!, factors[g]!, sum]);
        if (!min) return;
        const scaledSum = this.#x.f32(x, t, ACTIVATION_FIELDS.scaledSum);
        k.update(sum, "f32v.fma", [min, scaledSum, sum]);
      });
    }
  }

  /** Adds a span's sums, times the header and the activations' scale, and its mins. */
  #scaleSpan(span: SpanSums, sums: Grid): void {
    const { tokens } = this.#shape;
    for (let g = 0; g < this.#groups; g++) {
      const header = this.#header(g);
      for (let t = 0; t < tokens; t++) {
        this.#addScaled(sums[g]![t]!, span, g, t, header, () => this.#mins(g, span.x, [t])[0]!);
      }
    }
  }

  /** The same for sums in memory; the part that all tokens share is computed once. */
  #addSpan(span: SpanSums, results: Results): void {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    const some = layout.width === 64 ? tokens : MINS_TOGETHER;
    let header: Header | undefined;
    let mins: Reg<"f32v">[] = [];
    forEachResult(k, results, (g, t, row, at) => {
      if (t === 0) header = this.#header(g);
      if (header!.min && t % some === 0) {
        const next = Array.from({ length: Math.min(some, tokens - t) }, (_, i) => t + i);
        mins = this.#mins(g, span.x, next);
      }
      const sum = k.variable(k.op("f32v.load", [row], at));
      this.#addScaled(sum, span, g, t, header!, () => mins[t % some]!);
      k.op("f32v.store", [row, sum], at);
    });
  }

  #header(g: number): Header {
    return loadHeader(this.#k, this.#shape.layout, this.#w.header(g));
  }

  #addScaled(
    sum: Reg<"f32v">,
    span: SpanSums,
    g: number,
    t: number,
    header: Header,
    mins: () => Reg<"f32v">,
  ): void {
    const xScale = this.#x.f32(span.x, t, ACTIVATION_FIELDS.scale);
    addSpanSum(this.#k, sum, span.sums[g]![t]!, header, xScale, mins);
  }

  /** For each token: the sum of a span's small mins times the sums of their activations. */
  #mins(g: number, x: Reg<"ptr">, tokens: readonly number[]): Reg<"f32v">[] {
    const k = this.#k;
    const { layout } = this.#shape;
    const scales = Array.from({ length: layout.spanBlocks / runBlocks(layout) }, (_, run) =>
      this.#w.scalesOfRun(g, run),
    );
    const inTile = this.#shape.tokens;
    return emitMins({ k, layout, reader: this.#x, x, inTile, tokens, scales });
  }

  /** The integer sums of a part: G x T. */
  #dots(
    x: Reg<"ptr">,
    block: number,
    part: number,
    first: number,
    start: (t: number) => Reg<"i32v">,
  ): Reg<"i32v">[][] {
    const k = this.#k;
    const { groups, tokens, layout } = this.#shape;
    if (layout.paired) return this.#pairedDots(x, block, first, start);
    if (layout.products !== "fours") return wordDots(this.#wordSums(x, block, part, first));
    const dot = layout.widened ? "i32v.dot4_ss" : "i32v.dot4";
    const isLate = startsAsFloats(this.#shape);
    const dots = grid<Reg<"i32v"> | undefined>(groups, tokens, (_, t) =>
      isLate ? undefined : k.variable(start(t)),
    );
    const vectors = layout.scaleCols / 4;
    const loaded: Loaded[] = Array.from({ length: groups }, () => ({ vector: -1 }));
    for (const v of quantOrder(layout.bits, part * vectors, (part + 1) * vectors)) {
      const quants = loaded.map((last, g) => this.#quants(first + g, block, v, last));
      for (let t = 0; t < tokens; t++) {
        const xs = this.#x.quants(x, t, v);
        for (let g = 0; g < groups; g++) {
          // Starts that are loads come right before their first use.
          const acc = dots[g]![t] ?? k.variable(start(t));
          dots[g]![t] = acc;
          k.update(acc, dot, [xs, quants[g]!, acc]);
        }
      }
    }
    return dots as Reg<"i32v">[][];
  }

  /** What sums by way of 16-bit integers are made of. */
  #wordSums(x: Reg<"ptr">, block: number, part: number, first: number): WordDots {
    const { groups, tokens, layout } = this.#shape;
    const vectors = layout.scaleCols / 4;
    const loaded: Loaded[] = Array.from({ length: groups }, () => ({ vector: -1 }));
    return {
      ...{ k: this.#k, layout, groups, tokens },
      order: quantOrder(layout.bits, part * vectors, (part + 1) * vectors),
      quants: (g, v) => this.#quants(first + g, block, v, loaded[g]!),
      activations: (t, v) => this.#x.quants(x, t, v),
      words: (t, v) => this.#x.words(x, t, v),
      signs: (t, v) => this.#x.signs(x, t, v),
      negatives: (t) => this.#x.negatives(x, t),
      sum: (t) => this.#x.sum(x, t, part, scaleParts(layout)),
      pairSums: (t) => this.#x.pairSums(x, t, part, scaleParts(layout), layout.spanBlocks),
    };
  }

  /** The same for pairs of groups: the first of a pair's sums has the low nibbles, the second all of each byte. */
  #pairedDots(
    x: Reg<"ptr">,
    block: number,
    first: number,
    start: (t: number) => Reg<"i32v">,
  ): Reg<"i32v">[][] {
    const k = this.#k;
    const { groups, tokens } = this.#shape;
    const dots = grid(groups, tokens, (_, t) => k.variable(start(t)));
    const low = k.op("i8v.splat", [], 15);
    for (let v = 0; v < BLOCK_COLS / 4; v++) {
      const quants = Array.from({ length: groups / 2 }, (_, pair) => {
        const [from, at] = this.#w.quants(first + 2 * pair, block);
        const bytes = k.op("i8v.load", [from], at + k.width * v);
        return [k.op("i8v.and", [bytes, low]), bytes];
      }).flat();
      for (let t = 0; t < tokens; t++) {
        const xs = this.#x.quants(x, t, v);
        for (let g = 0; g < groups; g++) {
          const acc = dots[g]![t]!;
          k.update(acc, "i32v.dot4", [xs, quants[g]!, acc]);
        }
      }
    }
    return dots;
  }

  /** The subtrahends of the sums of the first group of a pair, or of any group without pairs. */
  #subtrahends(x: Reg<"ptr">, part: number): (t: number) => Reg<"f32v"> {
    const { tokens, layout } = this.#shape;
    const of = (t: number) => {
      const sum = () => this.#x.sum(x, t, part, scaleParts(layout));
      return startWithOffset(this.#k, layout.offset, sum);
    };
    if (tokens > 1) return of;
    const only = of(0);
    return () => only;
  }

  /**
   * The start of a part's integer sums: -offset * sum(x), which cancels the offset of the quants. Where it is a shift of a
   * stored sum, it is computed again for each group, so that it needs no register.
   */
  #starts(x: Reg<"ptr">, part: number): (t: number) => Reg<"i32v"> {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    const { offset, products } = layout;
    if (products !== "fours") return () => k.op("i32v.const", [], 0); // word-dots.ts has its own
    const sumOf = (t: number) => this.#x.sum(x, t, part, scaleParts(layout));
    if (layout.halves === "hardware") {
      if (offset === 0) return () => k.op("i32v.const", [], 0);
      return (t) => k.op("i32v.shl", [sumOf(t)], Math.log2(offset));
    }
    const start = (t: number) =>
      offset === 0
        ? k.op("i32v.const", [], 0)
        : k.op("i32v.mul", [sumOf(t), k.op("i32v.const", [], -offset)]);
    const all = Array.from({ length: tokens }, (_, t) => start(t));
    return (t) => all[t]!;
  }

  /** Quant vector v of a group's block. `last` is the vector loaded last, and is updated. */
  #quants(g: number, block: number, v: number, last: Loaded): Reg<"i8v"> {
    const [from, at] = this.#w.quants(g, block);
    const quants = emitQuants(this.#k, this.#shape.layout.bits, from, at, v, last);
    return this.#codebook ? this.#k.op("i8v.lookup16", [this.#codebook, quants]) : quants;
  }
}
