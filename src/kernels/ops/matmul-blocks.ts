// The tiled matmul kernels for quantized weights: G groups of four rows times T tokens, all columns, in integers per
// scale and floats above that. Layouts: packed.ts.
//
// Cost per block of 32 columns of a G x T tile, nibbles with one scale: 4G code loads, 12G unpack ops, 8T activation
// loads, 8GT dot4, and per (g, t) a convert, a multiply and an fma. 256 GT multiply-adds are done by 8GT dot4. Where a
// span has a header, its blocks add up under their small scales alone; the header, the activations' scale and all
// minimums come on once per span.
//
// Two loop orders:
//   vector  few tokens: walks down the tiles of a thread's share of rows; weights stream, the tokens stay in the cache.
//   matrix  part of one tile of rows: walks over token tiles; the weights of the tile stay in the cache.

import { KernelBuilder } from "../ir/builder.ts";
import type { Kernel, Reg } from "../ir/kernel.ts";
import { codeOrder } from "./code-fields.ts";
import { ActivationReader } from "./emit-activations.ts";
import { emitCodes, emitSmallScale, type Loaded } from "./emit-codes.ts";
import { loadUpperHalfCodes, RAISED_SCALE } from "./half-tiles.ts";
import {
  ACTIVATION_FIELDS,
  type BlockLayout,
  codesAt,
  codesBytes,
  factorsBytes,
  GROUPS_PER_TILE,
  hasSmallScales,
  headerBytes,
  runAt,
  runBlocks,
  runBytes,
  scaleByte,
  scaleParts,
  scalesAt,
  spanBytes,
  TILE_ROWS,
} from "./packed.ts";

export interface BlockMatmul {
  readonly name: string;
  readonly layout: BlockLayout;
  /** Groups of rows computed at once: 1, 2 or 4. In vector order they go through all four of a tile. */
  readonly groups: number;
  /** Tokens computed at once. */
  readonly tokens: number;
  /** Activations are stored once per lane. */
  readonly replicated: boolean;
  readonly order: "vector" | "matrix";
  /**
   * vector: tiles computed in turns, block by block, each a stream of its own through memory (default 1). Hardware
   * prefetchers stop at the end of a page; with several streams most of them are always under way.
   */
  readonly streams?: number;
}

/**
 * vector: (w, x, out, spans, tiles, levels): all groups of each tile; writes 16 floats per tile and token.
 * With several tokens: (..., outStride), as below. With several streams: (..., apart, outApart): stream s begins
 * `s * apart` bytes further, its results `s * outApart` bytes further.
 * matrix: (w, x, out, spans, tokenTiles, levels, outStride, group): part of the tile at w, from group number `group` on;
 * x are the token tiles behind each other, outStride the bytes from one token's result to the next one's.
 * `levels` is the address of the 16 levels of a layout with a lookup, and not read otherwise.
 */
export function blockMatmulKernel(shape: BlockMatmul): Kernel {
  return new BlockMatmulBuilder(shape).build();
}

/**
 * Runs of two blocks are written out, longer ones are loops. Measured with one token: four blocks written out, for all
 * groups of all streams, run a quarter slower than a loop over them; a loop over two runs a third slower than both.
 */
const WRITTEN_OUT = 2;

/** How far in front of a span of half-float scales its pointer is. The factors of its tile are there, at the least. */
const EARLY = 16;

/** Of a part of a block. Small scales are not whole: the header's and the activations' come on at the span's end. */
interface Scales {
  readonly scale: Reg<"f32v">;
  readonly min: Reg<"f32v"> | undefined;
  readonly isWhole: boolean;
}

type Grid = Reg<"f32v">[][];

class BlockMatmulBuilder {
  readonly #shape: BlockMatmul;
  readonly #k: KernelBuilder;
  readonly #x: ActivationReader;
  /** The 16 levels, in a register for the whole kernel. */
  #levels: Reg<"i8v"> | undefined;
  /** From one stream to the next. */
  #apart: Reg<"i32"> | undefined;
  /** Part of a tile: how far the parts of its first group are from those of group 0. */
  #shifts: Record<"factors" | "header" | "scales" | "codes", Reg<"i32">> | undefined;
  /** Where the tile begins that is computed, and with it the factors of its rows; undefined where there are none. */
  #factorsAt: Reg<"ptr"> | undefined;
  /**
   * Of each stream: pointers into its span, whose run or whose header begins there; displacements lead to the parts.
   * They are the same pointer as far as possible: scales have one of their own where blocks are a loop (isApart), and a
   * kernel that begins at any group has one for each part.
   */
  readonly #codesAt: Reg<"ptr">[] = [];
  readonly #scalesAt: Reg<"ptr">[] = [];
  readonly #headersAt: Reg<"ptr">[] = [];

  constructor(shape: BlockMatmul) {
    this.#shape = shape;
    this.#k = new KernelBuilder(shape.name, 16);
    this.#x = new ActivationReader(this.#k, shape.replicated);
  }

  build(): Kernel {
    const k = this.#k;
    const { order, groups, tokens, layout } = this.#shape;
    const wStart = k.param("ptr", "w");
    const xStart = k.param("ptr", "x");
    const out = k.param("ptr", "out");
    const spans = k.param("i32", "spans");
    const rounds = k.param("i32", order === "matrix" ? "tokenTiles" : "tiles");
    const levels = k.param("ptr", "levels");
    const isMatrix = order === "matrix";
    const stride = isMatrix || tokens > 1 ? k.param("i32", "outStride") : undefined;
    const streams = this.#shape.streams ?? 1;
    const apart = streams > 1 ? k.param("i32", "apart") : undefined;
    const outApart = streams > 1 ? k.param("i32", "outApart") : undefined;
    const group = isMatrix ? k.param("i32", "group") : undefined;
    if (group && groups < GROUPS_PER_TILE) this.#shiftTo(group);
    if (layout.lookup) this.#levels = k.op("i8v.load", [levels]);
    const w = k.variable(wStart, "w_at");
    const x = k.variable(xStart, "x_at");
    this.#apart = apart;
    if (factorsBytes(layout) > 0) this.#factorsAt = k.variable(w, "factors");
    for (let s = 0; s < streams; s++) this.#addStream(s, w);
    k.loop(rounds, () => {
      if (isMatrix) k.set(w, wStart);
      else k.set(x, xStart);
      this.#toTile(w);
      const sums = this.#tile(w, x, spans);
      if (this.#early > 0) k.advance(w, this.#early);
      let target = out;
      for (let first = 0; first < sums.length; first += this.#inStream) {
        if (first > 0) {
          target = k.op("ptr.add", [target, outApart!]);
          if (this.#factorsAt) k.update(this.#factorsAt, "ptr.add", [this.#factorsAt, apart!]);
        }
        this.#store(sums.slice(first, first + this.#inStream), target, stride);
      }
      if (!isMatrix) k.advance(out, TILE_ROWS * 4);
      else for (let t = 0; t < tokens; t++) k.update(out, "ptr.add", [out, stride!]);
    });
    return k.finish();
  }

  #shiftTo(group: Reg<"i32">): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const shift = (bytes: number) => k.op("i32.mul", [group, k.i32(bytes)]);
    this.#shifts = {
      factors: shift(factorsBytes(layout) / GROUPS_PER_TILE),
      header: shift(headerBytes(layout)),
      // scalesAt() for a group that is not known yet.
      scales: k.op("i32.add", [
        shift(scalesAt(layout, 1)),
        k.op("i32.mul", [
          k.op("i32.shr_u", [group], 1),
          k.i32(scalesAt(layout, 2) - 2 * scalesAt(layout, 1)),
        ]),
      ]),
      codes: shift(codesBytes(layout)),
    };
  }

  #addStream(s: number, w: Reg<"ptr">): void {
    const k = this.#k;
    const codes = k.variable(w, `codes${s}`);
    const isOwn = this.#shifts !== undefined;
    this.#codesAt.push(codes);
    this.#scalesAt.push(isOwn || this.#isApart ? k.variable(w, `scales${s}`) : codes);
    this.#headersAt.push(isOwn && this.#hasHeader ? k.variable(w, `header${s}`) : codes);
  }

  get #hasHeader(): boolean {
    return headerBytes(this.#shape.layout) > 0;
  }

  /** Groups of a stream. */
  get #inStream(): number {
    return this.#shape.order === "matrix" ? this.#shape.groups : GROUPS_PER_TILE;
  }

  /** Groups of all streams. */
  get #groups(): number {
    return this.#inStream * (this.#shape.streams ?? 1);
  }

  /** A group's stream pointer, and which of its stream's groups it is. */
  #place(streams: readonly Reg<"ptr">[], g: number): [Reg<"ptr">, number] {
    return [streams[Math.floor(g / this.#inStream)]!, g % this.#inStream];
  }

  /** Where a group's scales are from its pointer on. */
  #scalesFrom(inStream: number): number {
    return this.#early + scalesAt(this.#shape.layout, inStream);
  }

  /** Pointers are so much before what they point to: vectors of half floats are loaded from there, too. */
  get #early(): number {
    return this.#factorsAt ? EARLY : 0;
  }

  /** All columns of one tile: G x T vectors of results. */
  #tile(w: Reg<"ptr">, x: Reg<"ptr">, spans: Reg<"i32">): Grid {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    const zero = k.op("f32v.const", [], 0);
    const sums = grid(this.#groups, tokens, () => k.variable(zero));
    const inSpan = hasSmallScales(layout) ? new SpanSums(k, this.#groups, tokens, x) : undefined;
    k.loop(spans, () => {
      this.#toSpan(w);
      if (inSpan) this.#span(w, x, inSpan, sums);
      else this.#blocks(1, x, sums);
      k.advance(w, spanBytes(layout));
    });
    return sums;
  }

  /** Notes where a tile's factors are, and goes on to its spans. */
  #toTile(w: Reg<"ptr">): void {
    const k = this.#k;
    const at = this.#factorsAt;
    if (!at) return;
    k.set(at, this.#shifts ? k.op("ptr.add", [w, this.#shifts.factors]) : w);
    k.advance(w, factorsBytes(this.#shape.layout) - EARLY);
  }

  /** Sets the streams' pointers to a span. */
  #toSpan(w: Reg<"ptr">): void {
    const k = this.#k;
    const shifts = this.#shifts;
    if (shifts) {
      k.set(this.#codesAt[0]!, k.op("ptr.add", [w, shifts.codes]));
      k.set(this.#scalesAt[0]!, k.op("ptr.add", [w, shifts.scales]));
      if (this.#hasHeader) k.set(this.#headersAt[0]!, k.op("ptr.add", [w, shifts.header]));
      return;
    }
    this.#codesAt.forEach((codes, s) => {
      k.set(codes, s === 0 ? w : k.op("ptr.add", [this.#codesAt[s - 1]!, this.#apart!]));
      if (this.#isApart) k.set(this.#scalesAt[s]!, codes);
    });
  }

  /** Moves all pointers to runs; those to headers, where they are others, stay. */
  #advanceRuns(bytes: number): void {
    for (const at of new Set([...this.#codesAt, ...this.#scalesAt])) this.#k.advance(at, bytes);
  }

  /** Runs are so long that they are not written out: their scales and their codes need pointers of their own. */
  get #isApart(): boolean {
    return runBlocks(this.#shape.layout) > WRITTEN_OUT;
  }

  /** The blocks of a span with a header. */
  #span(w: Reg<"ptr">, x: Reg<"ptr">, inSpan: SpanSums, sums: Grid): void {
    const k = this.#k;
    const { layout } = this.#shape;
    inSpan.begin(x);
    this.#advanceRuns(runAt(layout, 0));
    k.loop(k.i32(layout.spanBlocks / runBlocks(layout)), () => {
      if (this.#isApart) this.#longRun(x, inSpan.sums);
      else {
        this.#blocks(runBlocks(layout), x, inSpan.sums);
        this.#advanceRuns(runBytes(layout));
      }
    });
    this.#toSpan(w);
    this.#scaleSpan(inSpan, sums);
  }

  #longRun(x: Reg<"ptr">, sums: Grid): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const inRun = runBlocks(layout);
    const codeStep = GROUPS_PER_TILE * codesBytes(layout);
    const scaleStep = scaleByte(layout, 1, 0);
    k.loop(k.i32(inRun), () => {
      this.#blocks(1, x, sums);
      for (const codes of this.#codesAt) k.advance(codes, codeStep);
      for (const scales of this.#scalesAt) k.advance(scales, scaleStep);
    });
    for (const codes of this.#codesAt) k.advance(codes, runBytes(layout) - inRun * codeStep);
    for (const scales of this.#scalesAt) k.advance(scales, runBytes(layout) - inRun * scaleStep);
  }

  #blocks(count: number, x: Reg<"ptr">, sums: Grid): void {
    const { tokens, layout } = this.#shape;
    for (let block = 0; block < count; block++) {
      for (let part = 0; part < scaleParts(layout); part++) this.#part(x, block, part, sums);
      this.#k.advance(x, tokens * this.#x.blockBytes);
    }
  }

  /** The columns of one scale: integer products, scaled into the sums (of the span, where it has a header). */
  #part(x: Reg<"ptr">, block: number, part: number, sums: Grid): void {
    const k = this.#k;
    const { tokens, groups } = this.#shape;
    const starts = Array.from({ length: tokens }, (_, t) => this.#start(x, t, part));
    for (let first = 0; first < this.#groups; first += groups) {
      const dots = this.#dots(x, block, part, first, starts);
      for (let g = first; g < first + groups; g++) {
        const { scale, min, isWhole } = this.#scales(g, block, part);
        for (let t = 0; t < tokens; t++) {
          const value = k.op("f32v.from_i32v", [dots[g - first]![t]!]);
          const factor = isWhole ? k.op("f32v.mul", [scale, this.#xScale(x, t)]) : scale;
          const sum = sums[g]![t]!;
          k.update(sum, "f32v.fma", [value, factor, sum]);
          if (!min) continue;
          const scaledSum = this.#x.f32(x, t, ACTIVATION_FIELDS.scaledSum);
          k.update(sum, "f32v.fma", [min, scaledSum, sum]);
        }
      }
    }
  }

  /** The scale of a token's block; raised, beside scales that are half floats. */
  #xScale(x: Reg<"ptr">, t: number): Reg<"f32v"> {
    const k = this.#k;
    const raised = this.#x.f32(x, t, ACTIVATION_FIELDS.scale);
    if (this.#shape.layout.scales === "halves") return raised;
    return k.op("f32v.mul", [raised, k.op("f32v.const", [], 1 / RAISED_SCALE)]);
  }

  /** Scale and minimum of a group's rows for one part of a block; small scales lack the header's and have none. */
  #scales(g: number, block: number, part: number): Scales {
    const k = this.#k;
    const { layout } = this.#shape;
    const [from, inStream] = this.#place(this.#scalesAt, g);
    const at = this.#scalesFrom(inStream);
    if (layout.scales === "halves") {
      const min = layout.hasMin ? loadUpperHalfCodes(k, from, at - 2) : undefined;
      return { scale: loadUpperHalfCodes(k, from, at), min, isWhole: true };
    }
    if (layout.scales === "f32") {
      return { scale: k.op("f32v.load", [from], at), min: undefined, isWhole: true };
    }
    // A pointer of its own is where the block's byte is: a vector loaded there has it lowest in each lane.
    const byte = this.#isApart ? 0 : scaleByte(layout, block, part);
    const integer = emitSmallScale(k, layout, k.op("i32v.load", [from], at), byte);
    return { scale: k.op("f32v.from_i32v", [integer]), min: undefined, isWhole: false };
  }

  /** Adds what a span's blocks came to, times the header and the activations' scale, and its minimums. */
  #scaleSpan(span: SpanSums, sums: Grid): void {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    for (let g = 0; g < this.#groups; g++) {
      const [from, inStream] = this.#place(this.#headersAt, g);
      const at = inStream * headerBytes(layout);
      const scale = k.op("f32v.load", [from], at);
      const min = layout.hasMin ? k.op("f32v.load", [from], at + 16) : undefined;
      for (let t = 0; t < tokens; t++) {
        const xScale = this.#x.f32(span.x, t, ACTIVATION_FIELDS.scale);
        const sum = sums[g]![t]!;
        k.update(sum, "f32v.fma", [span.sums[g]![t]!, k.op("f32v.mul", [scale, xScale]), sum]);
        if (!min) continue;
        const mins = this.#minimums(g, span.x, t);
        k.update(sum, "f32v.fma", [mins, k.op("f32v.mul", [min, xScale]), sum]);
      }
    }
  }

  /** The sum of a span's small minimums times the sums of their activations. */
  #minimums(g: number, x: Reg<"ptr">, t: number): Reg<"f32v"> {
    const k = this.#k;
    const { layout, tokens } = this.#shape;
    const [from, inStream] = this.#place(this.#scalesAt, g);
    const start = this.#scalesFrom(inStream);
    const runs = layout.spanBlocks / runBlocks(layout);
    const fours = Array.from({ length: runs }, (_, run) =>
      k.op("i32v.load", [from], start + runAt(layout, run)),
    );
    const blockOf = (run: number, block: number) => (runBlocks(layout) * run + block) * tokens + t;
    if (layout.scales === "nibbles") {
      const sum = k.variable(k.op("f32v.const", [], 0));
      fours.forEach((four, run) => {
        for (let block = 0; block < runBlocks(layout); block++) {
          for (let part = 0; part < scaleParts(layout); part++) {
            const own = this.#sumOf(x, blockOf(run, block), part);
            const nibble = k.op("i32v.shr_u", [four], 8 * scaleByte(layout, block, part) + 4);
            const small = k.op("i32v.and", [nibble, k.op("i32v.const", [], 15)]);
            const values = [own, small].map((value) => k.op("f32v.from_i32v", [value]));
            k.update(sum, "f32v.fma", [values[0]!, values[1]!, sum]);
          }
        }
      });
      return sum;
    }
    // Bytes of scales meet zeros, those of minimums the upper or the lower part of a block's sum (packed.ts).
    const sum = k.variable(k.op("i32v.const", [], 0));
    for (const block of [0, 1]) {
      if (block === 1) k.update(sum, "i32v.shl", [sum], 6);
      fours.forEach((four, run) => {
        const xs = this.#x.i32(x, blockOf(run, block), ACTIVATION_FIELDS.sumBytes);
        const bytes = [xs, four].map((value) => k.op("i32v.as_i8v", [value]));
        k.update(sum, "i32v.dot4", [bytes[0]!, bytes[1]!, sum]);
      });
    }
    return k.op("f32v.from_i32v", [sum]);
  }

  /** The integer products of a part: G x T. They start at -offset * sum(x), which takes the codes' offset out. */
  #dots(
    x: Reg<"ptr">,
    block: number,
    part: number,
    first: number,
    starts: readonly Reg<"i32v">[],
  ): Reg<"i32v">[][] {
    const k = this.#k;
    const { groups, tokens, layout } = this.#shape;
    const dot = layout.widened ? "i32v.dot4_ss" : "i32v.dot4";
    const dots = grid(groups, tokens, (_, t) => k.variable(starts[t]!));
    const vectors = layout.scaleCols / 4;
    const loaded: Loaded[] = Array.from({ length: groups }, () => ({ vector: -1 }));
    for (const v of codeOrder(layout.bits, part * vectors, (part + 1) * vectors)) {
      const codes = loaded.map((last, g) => this.#codes(first + g, block, v, last));
      for (let t = 0; t < tokens; t++) {
        const xs = this.#x.codes(x, t, v);
        for (let g = 0; g < groups; g++) {
          const acc = dots[g]![t]!;
          k.update(acc, dot, [xs, codes[g]!, acc]);
        }
      }
    }
    return dots;
  }

  #start(x: Reg<"ptr">, t: number, part: number): Reg<"i32v"> {
    const k = this.#k;
    const { offset } = this.#shape.layout;
    if (offset === 0) return k.op("i32v.const", [], 0);
    return k.op("i32v.mul", [this.#sumOf(x, t, part), k.op("i32v.const", [], -offset)]);
  }

  /** The sum of the activations that a part of a block meets. */
  #sumOf(x: Reg<"ptr">, t: number, part: number): Reg<"i32v"> {
    const k = this.#k;
    const { sum, firstSum } = ACTIVATION_FIELDS;
    if (scaleParts(this.#shape.layout) === 1) return this.#x.i32(x, t, sum);
    const first = this.#x.i32(x, t, firstSum);
    return part === 0 ? first : k.op("i32v.sub", [this.#x.i32(x, t, sum), first]);
  }

  /** Code vector v of a group's block. `last` is what was loaded last, and is kept up to date. */
  #codes(g: number, block: number, v: number, last: Loaded): Reg<"i8v"> {
    const { layout } = this.#shape;
    const [from, inStream] = this.#place(this.#codesAt, g);
    const at = this.#early + inStream * codesBytes(layout) + codesAt(layout, block);
    const code = emitCodes(this.#k, layout.bits, from, at, v, last);
    return this.#levels ? this.#k.op("i8v.lookup16", [this.#levels, code]) : code;
  }

  #store(sums: Grid, out: Reg<"ptr">, stride: Reg<"i32"> | undefined): void {
    const k = this.#k;
    const { tokens } = this.#shape;
    let row = out;
    for (let t = 0; t < tokens; t++) {
      sums.forEach((group, g) => {
        const sum = group[t]!;
        const factor = this.#factorsAt && k.op("f32v.load", [this.#factorsAt], 16 * g);
        k.op("f32v.store", [row, factor ? k.op("f32v.mul", [sum, factor]) : sum], 16 * g);
      });
      if (stride && t + 1 < tokens) row = k.op("ptr.add", [row, stride]);
    }
  }
}

/** The sums of one span, before its header and the activations' scale are multiplied in; and where its activations are. */
class SpanSums {
  readonly sums: Grid;
  readonly x: Reg<"ptr">;
  readonly #k: KernelBuilder;

  constructor(k: KernelBuilder, groups: number, tokens: number, x: Reg<"ptr">) {
    const zero = k.op("f32v.const", [], 0);
    this.#k = k;
    this.sums = grid(groups, tokens, () => k.variable(zero));
    this.x = k.variable(x, "x_span");
  }

  begin(x: Reg<"ptr">): void {
    const zero = this.#k.op("f32v.const", [], 0);
    this.#k.set(this.x, x);
    for (const sum of this.sums.flat()) this.#k.set(sum, zero);
  }
}

function grid<T>(rows: number, cols: number, make: (row: number, col: number) => T): T[][] {
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: cols }, (_, col) => make(row, col)),
  );
}
