// The tiled matmul kernels for quantized weights: G groups of four rows times T tokens, all columns, in integers per
// scale and floats above that. Layouts: packed.ts.
//
// Cost per block of 32 columns of a G x T tile, nibbles with one scale: 4G code loads, 8G unpack ops, 8T activation
// loads, 8GT dot4, and per (g, t) a convert, a multiply and an fma. 256 GT multiply-adds are done by 8GT dot4.
//
// Two loop orders:
//   vector  one token: walks down the tiles of a thread's share of rows; weights stream, the token stays in the cache.
//   matrix  part of one tile of rows: walks over token tiles; the weights of the tile stay in the cache.

import { KernelBuilder } from "../ir/builder.ts";
import type { Kernel, Reg } from "../ir/kernel.ts";
import {
  ACTIVATION_FIELDS,
  activationBlockBytes,
  BLOCK_COLS,
  type BlockLayout,
  blockBytes,
  GROUP_ROWS,
  GROUPS_PER_TILE,
  groupSpanBytes,
  headerBytes,
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

/** What a group's span multiplies its byte scales with. */
interface Header {
  scale: Reg<"f32v">;
  min: Reg<"f32v"> | undefined;
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
    const block = k.variable(w, "block");
    k.loop(spans, () => {
      this.#others.forEach((other, s) => {
        k.set(other, k.op("ptr.add", [s === 0 ? w : this.#others[s - 1]!, this.#apart!]));
      });
      const headers = Array.from({ length: this.#groups }, (_, g) => this.#header(w, g));
      k.set(block, w);
      const once = () => {
        for (let part = 0; part < BLOCK_COLS / layout.scaleCols; part++) {
          this.#part(block, x, part, headers, sums);
        }
        k.advance(block, blockBytes(layout));
        for (const other of this.#others) k.advance(other, blockBytes(layout));
        k.advance(x, tokens * this.#activationBytes);
      };
      if (layout.spanBlocks === 1) once();
      else k.loop(k.i32(layout.spanBlocks), once);
      k.advance(w, GROUPS_PER_TILE * groupSpanBytes(layout));
    });
    return sums;
  }

  #header(w: Reg<"ptr">, g: number): Header | undefined {
    const { layout } = this.#shape;
    if (layout.scales === "f32") return undefined;
    const [from, at] = this.#place(w, g);
    return {
      scale: this.#k.op("f32v.load", [from], at),
      min: layout.hasMin ? this.#k.op("f32v.load", [from], at + 16) : undefined,
    };
  }

  /** The columns of one scale: integer products, scaled into the sums. */
  #part(
    block: Reg<"ptr">,
    x: Reg<"ptr">,
    part: number,
    headers: readonly (Header | undefined)[],
    sums: Grid,
  ): void {
    const k = this.#k;
    const { tokens, layout } = this.#shape;
    for (let first = 0; first < this.#groups; first += this.#shape.groups) {
      const dots = this.#dots(block, x, part, first);
      for (let g = first; g < first + this.#shape.groups; g++) {
        const { scale, min } = this.#scales(block, g, part, headers[g]);
        for (let t = 0; t < tokens; t++) {
          const value = k.op("f32v.from_i32v", [dots[g - first]![t]!]);
          const factor = k.op("f32v.mul", [scale, this.#fieldF32(x, t, ACTIVATION_FIELDS.scale)]);
          const sum = sums[g]![t]!;
          k.update(sum, "f32v.fma", [value, factor, sum]);
          if (!min) continue;
          const scaledSum = this.#fieldF32(x, t, ACTIVATION_FIELDS.scaledSum);
          k.update(sum, "f32v.fma", [min, scaledSum, sum]);
        }
      }
    }
    if (layout.hasMin && layout.scaleCols !== BLOCK_COLS) {
      throw new Error(`${this.#shape.name}: minimums are per block of ${BLOCK_COLS}`);
    }
  }

  /** Scale and minimum of a group's rows for one part of a block. */
  #scales(block: Reg<"ptr">, g: number, part: number, header: Header | undefined): Header {
    const k = this.#k;
    const { layout } = this.#shape;
    const [from, start] = this.#place(block, g);
    const at = start + headerBytes(layout);
    if (!header) {
      return {
        scale: k.op("f32v.load", [from], at),
        min: layout.hasMin ? k.op("f32v.load", [from], at + 16) : undefined,
      };
    }
    const widen = (where: number) => k.op("f32v.from_i32v", [k.op("i32v.load_i8", [from], where)]);
    return {
      scale: k.op("f32v.mul", [header.scale, widen(at + 4 * part)]),
      min: header.min && k.op("f32v.mul", [header.min, widen(at + 4)]),
    };
  }

  /** The integer products of a part: G x T. They start at -offset * sum(x), which takes the codes' offset out. */
  #dots(block: Reg<"ptr">, x: Reg<"ptr">, part: number, first: number): Reg<"i32v">[][] {
    const k = this.#k;
    const { groups, tokens, layout } = this.#shape;
    const dot = layout.widened ? "i32v.dot4_ss" : "i32v.dot4";
    const starts = Array.from({ length: tokens }, (_, t) => this.#start(x, t, part));
    const dots = grid(groups, tokens, (_, t) => k.variable(starts[t]!));
    const vectors = layout.codes === "nibbles" ? 4 : layout.scaleCols / 4;
    for (let i = 0; i < vectors; i++) {
      const v = part * vectors + i;
      const columns = layout.codes === "nibbles" ? [v, v + 4] : [v];
      const codes = Array.from({ length: groups }, (_, g) => this.#codes(block, first + g, v));
      columns.forEach((column, half) => {
        for (let t = 0; t < tokens; t++) {
          const xs = this.#activations(x, t, column);
          for (let g = 0; g < groups; g++) {
            const acc = dots[g]![t]!;
            k.update(acc, dot, [xs, codes[g]![half]!, acc]);
          }
        }
      });
    }
    return dots;
  }

  #start(x: Reg<"ptr">, t: number, part: number): Reg<"i32v"> {
    const k = this.#k;
    const { offset, scaleCols } = this.#shape.layout;
    if (offset === 0) return k.op("i32v.const", [], 0);
    const minus = k.op("i32v.const", [], -offset);
    const { sum, firstSum } = ACTIVATION_FIELDS;
    if (scaleCols === BLOCK_COLS) return k.op("i32v.mul", [this.#fieldI32(x, t, sum), minus]);
    const first = this.#fieldI32(x, t, firstSum);
    const own = part === 0 ? first : k.op("i32v.sub", [this.#fieldI32(x, t, sum), first]);
    return k.op("i32v.mul", [own, minus]);
  }

  /** Vector v of a group's codes: one for bytes, low and high half for nibbles. */
  #codes(block: Reg<"ptr">, g: number, v: number): Reg<"i8v">[] {
    const k = this.#k;
    const { layout } = this.#shape;
    const [from, start] = this.#place(block, g);
    const at = start + headerBytes(layout) + scalesBytes(layout) + 16 * v;
    const raw = k.op("i8v.load", [from], at);
    if (layout.codes === "bytes") return [raw];
    const low = k.op("i8v.and", [raw, k.op("i8v.splat", [], 0x0f)]);
    const high = k.op("i8v.shr_u", [raw], 4);
    const levels = this.#levels;
    return levels ? [low, high].map((code) => k.op("i8v.lookup16", [levels, code])) : [low, high];
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

function grid<T>(rows: number, cols: number, make: (row: number, col: number) => T): T[][] {
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: cols }, (_, col) => make(row, col)),
  );
}
