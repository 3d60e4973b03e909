// The tiled matmul kernels for quantized weights: G groups of four rows times T tokens, all columns, in integers per
// scale and floats above that. Layouts: packed.ts.
//
// Cost per block of 32 columns of a G x T tile, nibbles with one scale: 4G code loads, 12G unpack ops, 8T activation
// loads, 8GT dot4, and per (g, t) a convert, a multiply and an fma. 256 GT multiply-adds are done by 8GT dot4. Where a
// span has a header, its blocks add up under their small scales alone; the header, the activations' scale and all
// minimums come on once per span.
//
// Two loop orders:
//   vector  one token: walks down the tiles of a thread's share of rows; weights stream, the token stays in the cache.
//   matrix  part of one tile of rows: walks over token tiles; the weights of the tile stay in the cache.

import { KernelBuilder } from "../ir/builder.ts";
import type { Kernel, Reg } from "../ir/kernel.ts";
import { codeOrder } from "./code-fields.ts";
import { emitCodes, emitSmallScale, type Loaded } from "./emit-codes.ts";
import {
  ACTIVATION_FIELDS,
  activationBlockBytes,
  type BlockLayout,
  codesBytes,
  GROUP_ROWS,
  GROUPS_PER_TILE,
  groupSpanBytes,
  headerBytes,
  runBlocks,
  runBytes,
  scaleByte,
  scaleParts,
  scalesBytes,
} from "./packed.ts";

export interface BlockMatmul {
  readonly name: string;
  readonly layout: BlockLayout;
  /** Groups of rows computed at once: 1, 2 or 4. */
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
 * vector: (w, x, out, spans, tiles, levels): all groups of each tile; writes 16 floats per tile. With several
 * streams: (..., apart, outApart): stream s begins `s * apart` bytes further, its results `s * outApart` bytes further.
 * matrix: (w, x, out, spans, tokenTiles, levels, outStride): w is the tile plus the offset of the first of its groups,
 * x the token tiles behind each other, outStride the bytes from one token's result to the next one's.
 * `levels` is the address of the 16 levels of a layout with a lookup, and not read otherwise.
 */
export function blockMatmulKernel(shape: BlockMatmul): Kernel {
  return new BlockMatmulBuilder(shape).build();
}

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
  readonly #activationBytes: number;
  /** The 16 levels, in a register for the whole kernel. */
  #levels: Reg<"i8v"> | undefined;
  /** From one stream to the next, and where the streams after the first are. */
  #apart: Reg<"i32"> | undefined;
  readonly #others: Reg<"ptr">[] = [];

  constructor(shape: BlockMatmul) {
    this.#shape = shape;
    this.#k = new KernelBuilder(shape.name, 16);
    this.#activationBytes = activationBlockBytes(shape.replicated);
  }

  build(): Kernel {
    const k = this.#k;
    const { order, groups, tokens, layout } = this.#shape;
    const wStart = k.param("ptr", "w");
    const xStart = k.param("ptr", "x");
    const out = k.param("ptr", "out");
    const spans = k.param("i32", "spans");
    const rounds = k.param("i32", order === "vector" ? "tiles" : "tokenTiles");
    const levels = k.param("ptr", "levels");
    const stride = order === "matrix" ? k.param("i32", "outStride") : undefined;
    const streams = this.#shape.streams ?? 1;
    const apart = streams > 1 ? k.param("i32", "apart") : undefined;
    const outApart = streams > 1 ? k.param("i32", "outApart") : undefined;
    if (layout.lookup) this.#levels = k.op("i8v.load", [levels]);
    const w = k.variable(wStart, "w_at");
    const x = k.variable(xStart, "x_at");
    this.#apart = apart;
    for (let s = 1; s < streams; s++) this.#others.push(k.variable(w, `stream${s}`));
    k.loop(rounds, () => {
      if (order === "vector") k.set(x, xStart);
      else k.set(w, wStart);
      const sums = this.#tile(w, x, spans);
      let target = out;
      for (let first = 0; first < sums.length; first += groups) {
        if (first > 0) target = k.op("ptr.add", [target, outApart!]);
        this.#store(sums.slice(first, first + groups), target, stride);
      }
      if (stride) for (let t = 0; t < tokens; t++) k.update(out, "ptr.add", [out, stride]);
      else k.advance(out, groups * GROUP_ROWS * 4);
    });
    return k.finish();
  }

  /** Groups of all streams. */
  get #groups(): number {
    return this.#shape.groups * (this.#shape.streams ?? 1);
  }

  /** Where a group of a span or block begins: every stream has a pointer of its own. */
  #place(first: Reg<"ptr">, g: number): [Reg<"ptr">, number] {
    const { groups, layout } = this.#shape;
    const size = groupSpanBytes(layout);
    const stream = Math.floor(g / groups);
    return [stream === 0 ? first : this.#others[stream - 1]!, (g % groups) * size];
  }

  /** All columns of one tile: G x T vectors of results. */
  #tile(w: Reg<"ptr">, x: Reg<"ptr">, spans: Reg<"i32">): Grid {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    const zero = k.op("f32v.const", [], 0);
    const sums = grid(this.#groups, tokens, () => k.variable(zero));
    const run = k.variable(w, "run");
    const inSpan = layout.scales === "f32" ? undefined : new SpanSums(k, this.#groups, tokens, x);
    k.loop(spans, () => {
      this.#toStreams(w);
      k.set(run, w);
      inSpan?.begin(x);
      const once = () => {
        for (let block = 0; block < runBlocks(layout); block++) {
          for (let part = 0; part < scaleParts(layout); part++) {
            this.#part(run, x, block, part, inSpan?.sums ?? sums);
          }
          k.advance(x, tokens * this.#activationBytes);
        }
        for (const place of [run, ...this.#others]) k.advance(place, runBytes(layout));
      };
      const runs = layout.spanBlocks / runBlocks(layout);
      if (runs === 1) once();
      else k.loop(k.i32(runs), once);
      if (inSpan) {
        this.#toStreams(w);
        this.#scaleSpan(w, inSpan, sums);
      }
      k.advance(w, GROUPS_PER_TILE * groupSpanBytes(layout));
    });
    return sums;
  }

  /** Sets the streams' pointers to where the first one's is. */
  #toStreams(w: Reg<"ptr">): void {
    const k = this.#k;
    this.#others.forEach((other, s) => {
      k.set(other, k.op("ptr.add", [s === 0 ? w : this.#others[s - 1]!, this.#apart!]));
    });
  }

  /** The columns of one scale: integer products, scaled into the sums (of the span, where it has a header). */
  #part(run: Reg<"ptr">, x: Reg<"ptr">, block: number, part: number, sums: Grid): void {
    const k = this.#k;
    const { tokens, groups } = this.#shape;
    const starts = Array.from({ length: tokens }, (_, t) => this.#start(x, t, part));
    for (let first = 0; first < this.#groups; first += groups) {
      const dots = this.#dots(run, x, block, part, first, starts);
      for (let g = first; g < first + groups; g++) {
        const { scale, min, isWhole } = this.#scales(run, g, block, part);
        for (let t = 0; t < tokens; t++) {
          const value = k.op("f32v.from_i32v", [dots[g - first]![t]!]);
          const factor = isWhole
            ? k.op("f32v.mul", [scale, this.#fieldF32(x, t, ACTIVATION_FIELDS.scale)])
            : scale;
          const sum = sums[g]![t]!;
          k.update(sum, "f32v.fma", [value, factor, sum]);
          if (!min) continue;
          const scaledSum = this.#fieldF32(x, t, ACTIVATION_FIELDS.scaledSum);
          k.update(sum, "f32v.fma", [min, scaledSum, sum]);
        }
      }
    }
  }

  /** Scale and minimum of a group's rows for one part of a block; small scales lack the header's and have none. */
  #scales(run: Reg<"ptr">, g: number, block: number, part: number): Scales {
    const k = this.#k;
    const { layout } = this.#shape;
    const [from, start] = this.#place(run, g);
    const at = start + headerBytes(layout);
    if (layout.scales === "f32") {
      const min = layout.hasMin ? k.op("f32v.load", [from], at + 16) : undefined;
      return { scale: k.op("f32v.load", [from], at), min, isWhole: true };
    }
    const four = k.op("i32v.load", [from], at);
    const integer = emitSmallScale(k, layout, four, scaleByte(layout, block, part));
    return { scale: k.op("f32v.from_i32v", [integer]), min: undefined, isWhole: false };
  }

  /** Adds what a span's blocks came to, times the header and the activations' scale, and its minimums. */
  #scaleSpan(w: Reg<"ptr">, span: SpanSums, sums: Grid): void {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    for (let g = 0; g < this.#groups; g++) {
      const [from, at] = this.#place(w, g);
      const scale = k.op("f32v.load", [from], at);
      const min = layout.hasMin ? k.op("f32v.load", [from], at + 16) : undefined;
      for (let t = 0; t < tokens; t++) {
        const xScale = this.#fieldF32(span.x, t, ACTIVATION_FIELDS.scale);
        const sum = sums[g]![t]!;
        k.update(sum, "f32v.fma", [span.sums[g]![t]!, k.op("f32v.mul", [scale, xScale]), sum]);
        if (!min) continue;
        const mins = this.#minimums(w, g, span.x, t);
        k.update(sum, "f32v.fma", [mins, k.op("f32v.mul", [min, xScale]), sum]);
      }
    }
  }

  /** The sum of a span's small minimums times the sums of their activations. */
  #minimums(w: Reg<"ptr">, g: number, x: Reg<"ptr">, t: number): Reg<"f32v"> {
    const k = this.#k;
    const { layout, tokens } = this.#shape;
    const [from, start] = this.#place(w, g);
    const runs = layout.spanBlocks / runBlocks(layout);
    const fours = Array.from({ length: runs }, (_, run) =>
      k.op("i32v.load", [from], start + headerBytes(layout) + run * runBytes(layout)),
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
        const xs = this.#fieldI32(x, blockOf(run, block), ACTIVATION_FIELDS.sumBytes);
        const bytes = [xs, four].map((value) => k.op("i32v.as_i8v", [value]));
        k.update(sum, "i32v.dot4", [bytes[0]!, bytes[1]!, sum]);
      });
    }
    return k.op("f32v.from_i32v", [sum]);
  }

  /** The integer products of a part: G x T. They start at -offset * sum(x), which takes the codes' offset out. */
  #dots(
    run: Reg<"ptr">,
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
      const codes = loaded.map((last, g) => this.#codes(run, first + g, block, v, last));
      for (let t = 0; t < tokens; t++) {
        const xs = this.#activations(x, t, v);
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
    if (scaleParts(this.#shape.layout) === 1) return this.#fieldI32(x, t, sum);
    const first = this.#fieldI32(x, t, firstSum);
    return part === 0 ? first : k.op("i32v.sub", [this.#fieldI32(x, t, sum), first]);
  }

  /** Code vector v of a group's block. `last` is what was loaded last, and is kept up to date. */
  #codes(run: Reg<"ptr">, g: number, block: number, v: number, last: Loaded): Reg<"i8v"> {
    const { layout } = this.#shape;
    const [from, start] = this.#place(run, g);
    const at = start + headerBytes(layout) + scalesBytes(layout) + block * codesBytes(layout);
    const code = emitCodes(this.#k, layout.bits, from, at, v, last);
    return this.#levels ? this.#k.op("i8v.lookup16", [this.#levels, code]) : code;
  }

  /** Four codes of a token, in every lane. */
  #activations(x: Reg<"ptr">, t: number, column: number): Reg<"i8v"> {
    const at = t * this.#activationBytes;
    return this.#shape.replicated
      ? this.#k.op("i8v.load", [x], at + 64 + 16 * column)
      : this.#k.op("i8v.load_splat32", [x], at + 16 + 4 * column);
  }

  #fieldF32(x: Reg<"ptr">, t: number, field: number): Reg<"f32v"> {
    const at = t * this.#activationBytes;
    return this.#shape.replicated
      ? this.#k.op("f32v.load", [x], at + 16 * field)
      : this.#k.op("f32v.load_splat", [x], at + 4 * field);
  }

  #fieldI32(x: Reg<"ptr">, t: number, field: number): Reg<"i32v"> {
    const at = t * this.#activationBytes;
    return this.#shape.replicated
      ? this.#k.op("i32v.load", [x], at + 16 * field)
      : this.#k.op("i32v.load_splat", [x], at + 4 * field);
  }

  #store(sums: Grid, out: Reg<"ptr">, stride: Reg<"i32"> | undefined): void {
    const k = this.#k;
    const { tokens } = this.#shape;
    let row = out;
    for (let t = 0; t < tokens; t++) {
      for (let g = 0; g < sums.length; g++) k.op("f32v.store", [row, sums[g]![t]!], 16 * g);
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
