// The matmul kernel for quantized weights on processors with tile registers (AMX): one tile of 16 rows times T tokens, all
// columns. It computes what matmul-blocks.ts computes, bit for bit: products are integers, which are exact in any order, and
// what is added in floats is added in the same order. Layouts: packed.ts.
//
// The codes of a block, a byte each, are what a tile register multiplies with: 8 rows of 16 x 4 bytes. Activations lie so
// that the codes of a block of T tokens are a tile of T rows, one activation block apart. One instruction then does what
// 8T dot4 do. Its T x 16 sums go through memory into vectors, where they are scaled.
//
// Columns are cut into panels: a span with a header, or PANEL blocks without. The codes of a panel are unpacked into scratch
// memory once for all tokens, their offset taken out on the way (so nothing has to be added per token for it); then each
// tile of tokens goes through the panel. Results are summed up in place, a panel at a time.

import { KernelBuilder } from "../ir/builder.ts";
import type { Kernel, Reg } from "../ir/kernel.ts";
import { threeTiles, tileShape, tileStride } from "../ir/tiles.ts";
import { codeOrder } from "./code-fields.ts";
import { ActivationReader } from "./emit-activations.ts";
import { emitCodes, type Loaded } from "./emit-codes.ts";
import { emitMinimums } from "./emit-minimums.ts";
import { emitActivationScale, emitScales } from "./emit-scales.ts";
import {
  ACTIVATION_FIELDS,
  BLOCK_COLS,
  type BlockLayout,
  codesAt,
  groupsPerTile,
  hasSmallScales,
  runAt,
  runBlocks,
  runBytes,
  scaleByte,
  scaleParts,
  scalesAt,
} from "./packed.ts";

export interface TileMatmul {
  readonly name: string;
  /** For vectors of 64 bytes. */
  readonly layout: BlockLayout;
  /** Tokens computed at once: 1 to 16. */
  readonly tokens: number;
}

/** Blocks of a panel without a header. */
const PANEL = 8;
const CACHE_LINE = 64;
/** Code vectors of a block. */
const VECTORS = BLOCK_COLS / 4;
/** Tokens whose minimums are added up at once, as far as registers reach. */
const MINIMUMS_TOGETHER = 4;

/** Tile registers: products, two at a time; activations; codes. */
const SUMS: readonly [number, number] = [0, 1];
const TOKENS = 2;
const CODES = 3;
/** Bytes of a tile register of products. Two of them are in scratch memory; unpacked codes lie behind these. */
const SUMS_BYTES = 16 * 64;
const CODES_AT: number = 2 * SUMS_BYTES;
/** Where the codes of an activation block begin. */
const ACTIVATION_CODES_AT = 16;

/** Bytes of scratch memory that the kernels need, for each thread. */
export const TILE_SCRATCH_BYTES: number = CODES_AT + PANEL * VECTORS * 64;

/**
 * (w, x, out, spans, tokenTiles, levels, outStride, group, scratch): as blockMatmulKernel in matrix order, with all groups of
 * the tile; `scratch` has TILE_SCRATCH_BYTES.
 */
export function tileMatmulKernel(shape: TileMatmul): Kernel {
  return new TileMatmulBuilder(shape).build();
}

class TileMatmulBuilder {
  readonly #shape: TileMatmul;
  readonly #k: KernelBuilder;
  readonly #x: ActivationReader;
  /** Taken out of every code; undefined: there is none, or the levels have it taken out already. */
  #offset: Reg<"i8v"> | undefined;
  #levels: Reg<"i8v"> | undefined;

  constructor(shape: TileMatmul) {
    const { layout, name } = shape;
    if (groupsPerTile(layout) !== 1) {
      throw new Error(`${name}: vectors of ${layout.width} bytes; a tile register has rows of 64`);
    }
    this.#shape = shape;
    this.#k = new KernelBuilder(name, layout.width);
    this.#x = new ActivationReader(this.#k, false);
  }

  build(): Kernel {
    const k = this.#k;
    const { layout } = this.#shape;
    const w = k.param("ptr", "w");
    const x = k.param("ptr", "x");
    const out = k.param("ptr", "out");
    const spans = k.param("i32", "spans");
    const tokenTiles = k.param("i32", "tokenTiles");
    const levels = k.param("ptr", "levels");
    const outStride = k.param("i32", "outStride");
    k.param("i32", "group");
    const scratch = k.param("ptr", "scratch");
    this.#shapes();
    this.#prepareCodes(levels);
    const blockBytes = this.#blockBytes * layout.spanBlocks;
    const tileStep = k.op("i32.mul", [spans, k.i32(blockBytes)]);
    const all = { w, x, out, outStride, tokenTiles, tileStep, scratch };
    this.#clear(all);
    if (hasSmallScales(layout)) {
      k.loop(spans, () => {
        this.#panel(all, undefined);
        k.advance(w, runAt(layout, layout.spanBlocks / runBlocks(layout)));
        k.advance(x, blockBytes);
      });
    } else this.#panels(all, spans);
    return k.finish();
  }

  /** Bytes of one block of activations, all tokens. */
  get #blockBytes(): number {
    return this.#shape.tokens * this.#x.blockBytes;
  }

  #shapes(): void {
    const { tokens, layout } = this.#shape;
    const { scaleCols } = layout;
    const shapes = [
      { tile: SUMS[0], rows: tokens, bytes: 64 },
      { tile: SUMS[1], rows: tokens, bytes: 64 },
      { tile: TOKENS, rows: tokens, bytes: scaleCols },
      { tile: CODES, rows: scaleCols / 4, bytes: 64 },
    ] as const;
    for (const { tile, ...shape } of shapes) this.#k.op("amx.shape", [], tileShape(tile, shape));
  }

  #prepareCodes(levels: Reg<"ptr">): void {
    const k = this.#k;
    const { offset, lookup } = this.#shape.layout;
    const taken = offset === 0 ? undefined : k.op("i8v.splat", [], offset);
    if (!lookup) this.#offset = taken;
    else {
      const stored = k.op("i8v.load", [levels]);
      this.#levels = taken ? k.op("i8v.sub", [stored, taken]) : stored;
    }
  }

  /** Results begin at zero. */
  #clear({ out, outStride, tokenTiles }: Panels): void {
    const k = this.#k;
    const { tokens } = this.#shape;
    const zero = k.op("f32v.const", [], 0);
    const row = k.variable(out);
    k.loop(tokenTiles, () => {
      for (let t = 0; t < tokens; t++) {
        k.op("f32v.store", [row, zero]);
        k.update(row, "ptr.add", [row, outStride]);
      }
    });
  }

  /** Blocks without headers: the first panel has what does not fill the others. */
  #panels(all: Panels, blocks: Reg<"i32">): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const bits = Math.log2(PANEL);
    const full = k.op("i32.shr_u", [k.op("i32.sub", [blocks, k.i32(1)])], bits);
    const first = k.op("i32.sub", [blocks, k.op("i32.mul", [full, k.i32(PANEL)])]);
    const count = k.variable(first, "count");
    k.loop(k.op("i32.add", [full, k.i32(1)]), () => {
      this.#panel(all, count);
      k.update(all.w, "ptr.add_product", [all.w, count, k.i32(runBytes(layout))]);
      k.update(all.x, "ptr.add_product", [all.x, count, k.i32(this.#blockBytes)]);
      k.set(count, k.i32(PANEL));
    });
  }

  /** So many blocks, or a span with a header, of all tokens: added to the results. */
  #panel(all: Panels, blocks: Reg<"i32"> | undefined): void {
    const k = this.#k;
    const codes = k.variable(k.op("ptr.add", [all.scratch, k.i32(CODES_AT)]), "codes");
    const { layout } = this.#shape;
    this.#unpack(all.w, codes, blocks ?? k.i32(layout.spanBlocks / runBlocks(layout)));
    const xTile = k.variable(all.x, "x_tile");
    const out = k.variable(all.out, "out_tile");
    k.loop(all.tokenTiles, () => {
      this.#tokenTile(all, blocks, xTile, out);
      k.update(xTile, "ptr.add", [xTile, all.tileStep]);
    });
  }

  /** The codes of a panel as bytes: [block][8] vectors. */
  #unpack(w: Reg<"ptr">, codes: Reg<"ptr">, runs: Reg<"i32">): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const from = k.variable(k.op("ptr.add", [w, k.i32(runAt(layout, 0))]), "packed");
    // The next panel is brought while this one is multiplied.
    const panel = Math.max(PANEL / runBlocks(layout), 1) * runBytes(layout);
    k.loop(runs, () => {
      for (let line = 0; line < runBytes(layout); line += CACHE_LINE) {
        k.op("ptr.prefetch", [from], line + panel);
      }
      for (let block = 0; block < runBlocks(layout); block++) {
        const last: Loaded = { vector: -1 };
        for (const v of codeOrder(layout.bits, 0, VECTORS)) {
          const code = emitCodes(k, layout.bits, from, codesAt(layout, block), v, last);
          k.op("i8v.store", [codes, this.#value(code)], k.width * (block * VECTORS + v));
        }
      }
      k.advance(from, runBytes(layout));
      k.advance(codes, runBlocks(layout) * VECTORS * k.width);
    });
  }

  #value(code: Reg<"i8v">): Reg<"i8v"> {
    if (this.#levels) return this.#k.op("i8v.lookup16", [this.#levels, code]);
    return this.#offset ? this.#k.op("i8v.sub", [code, this.#offset]) : code;
  }

  /** A panel for one tile of tokens. `out` moves on to the next one's results. */
  #tokenTile(
    all: Panels,
    blocks: Reg<"i32"> | undefined,
    xTile: Reg<"ptr">,
    out: Reg<"ptr">,
  ): void {
    const k = this.#k;
    const { tokens } = this.#shape;
    const zero = k.op("f32v.const", [], 0);
    // Two pointers, each short-lived: one that lived on while blocks are computed would not be kept in a register.
    const read = blocks && k.variable(out, "read");
    const sums = Array.from({ length: tokens }, () => {
      const sum = k.variable(read ? k.op("f32v.load", [read]) : zero);
      if (read) k.update(read, "ptr.add", [read, all.outStride]);
      return sum;
    });
    if (blocks) this.#blocks(all, blocks, xTile, sums);
    else this.#span(all, xTile, sums);
    const row = k.variable(out, "row");
    const next = () => k.update(row, "ptr.add", [row, all.outStride]);
    if (!blocks) this.#addSpan(all.w, xTile, sums, row, next);
    else {
      for (const sum of sums) {
        k.op("f32v.store", [row, sum]);
        next();
      }
    }
    k.set(out, row);
  }

  /**
   * A span, written out. Products of a part are on their way while those of the part before are stored and those of the one
   * before that are scaled: no instruction waits for the tile registers, which are slow to answer.
   */
  #span({ w, scratch }: Panels, x: Reg<"ptr">, sums: Reg<"f32v">[]): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const parts = this.#partsOfSpan();
    const at = (pointer: Reg<"ptr">, bytes: number) => k.op("ptr.add", [pointer, k.i32(bytes)]);
    const buffer = (i: number) => (i % 2) * SUMS_BYTES;
    for (let i = 0; i < parts.length + 2; i++) {
      const [toMultiply, toStore, toScale] = [parts[i], parts[i - 1], parts[i - 2]];
      if (toStore) this.#storeProducts(i - 1, at(scratch, buffer(i - 1)));
      if (toMultiply) {
        const { block, column } = toMultiply;
        const codes = CODES_AT + k.width * (block * VECTORS + column / 4);
        const xAt = block * this.#blockBytes + ACTIVATION_CODES_AT + column;
        this.#multiply(i, at(x, xAt), at(scratch, codes));
      }
      if (toScale) {
        const { block, run, byte } = toScale;
        const scalesIn = runAt(layout, run) + scalesAt(layout, 0);
        // Stored above, into the other buffer, is what comes next.
        this.#scale({ x, block, w, scalesIn, byte, from: scratch, at: buffer(i - 2), sums });
      }
    }
  }

  /** Of all columns that share a scale: which block they are of, where they begin in it, and where their scale is. */
  #partsOfSpan(): { block: number; column: number; run: number; byte: number }[] {
    const { layout } = this.#shape;
    const inRun = runBlocks(layout);
    return Array.from({ length: layout.spanBlocks * scaleParts(layout) }, (_, i) => {
      const block = Math.floor(i / scaleParts(layout));
      const part = i % scaleParts(layout);
      const byte = scaleByte(layout, block % inRun, part);
      return { block, column: part * layout.scaleCols, run: Math.floor(block / inRun), byte };
    });
  }

  /** So many blocks that have no header, one after the other in the same way. */
  #blocks(all: Panels, blocks: Reg<"i32">, x: Reg<"ptr">, sums: Reg<"f32v">[]): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const { scratch } = all;
    const plus = (pointer: Reg<"ptr">, bytes: number) => k.op("ptr.add", [pointer, k.i32(bytes)]);
    const xCodes = k.variable(plus(x, ACTIVATION_CODES_AT), "x_codes");
    const codes = k.variable(plus(scratch, CODES_AT), "codes");
    const xAt = k.variable(x, "x_at");
    const w = k.variable(all.w, "w_at");
    const stored = k.variable(scratch, "stored");
    const scaled = k.variable(plus(scratch, SUMS_BYTES), "scaled");
    const multiply = () => {
      this.#multiply(0, xCodes, codes);
      k.advance(xCodes, this.#blockBytes);
      k.advance(codes, VECTORS * k.width);
    };
    const store = () => this.#storeProducts(0, stored);
    const scale = (from: Reg<"ptr">) => {
      const scalesIn = scalesAt(layout, 0);
      this.#scale({ x: xAt, block: 0, w, scalesIn, byte: 0, from, at: 0, sums });
      k.advance(xAt, this.#blockBytes);
      k.advance(w, runBytes(layout));
    };
    const swap = () => {
      const other = k.variable(stored);
      k.set(stored, scaled);
      k.set(scaled, other);
    };
    multiply();
    store();
    // Of one block alone, there is nothing to overlap.
    k.loop(
      k.op("i32.shr_u", [k.op("i32.add", [blocks, k.i32(PANEL - 2)])], Math.log2(PANEL)),
      () => {
        swap();
        multiply();
        k.loop(k.op("i32.sub", [blocks, k.i32(2)]), () => {
          store();
          multiply();
          scale(scaled);
          swap();
        });
        store();
        scale(scaled);
      },
    );
    scale(stored);
  }

  /** Sets out to multiply the codes of all tokens in these columns with those of the weights. */
  #multiply(i: number, x: Reg<"ptr">, codes: Reg<"ptr">): void {
    const k = this.#k;
    const sums = SUMS[i % 2]!;
    k.op("amx.zero", [], sums);
    k.op("amx.load", [x], tileStride(TOKENS, this.#x.blockBytes));
    k.op("amx.load", [codes], tileStride(CODES, k.width));
    k.op("amx.dot4_ss", [], threeTiles(sums, TOKENS, CODES));
  }

  #storeProducts(i: number, to: Reg<"ptr">): void {
    this.#k.op("amx.store", [to], tileStride(SUMS[i % 2]!, this.#k.width));
  }

  /** Adds products that were stored, scaled; of small scales, what the header is multiplied with later. */
  #scale({ x, block, w, scalesIn, byte, from, at, sums }: Scaling): void {
    const k = this.#k;
    const { layout, tokens } = this.#shape;
    const { scale, min, isWhole } = emitScales(k, layout, [w, scalesIn], byte);
    sums.forEach((sum, t) => {
      const value = k.op("f32v.from_i32v", [k.op("i32v.load", [from], at + k.width * t)]);
      const inBlock = block * tokens + t;
      const factor = isWhole
        ? k.op("f32v.mul", [scale, emitActivationScale(k, layout, this.#x, x, inBlock)])
        : scale;
      k.update(sum, "f32v.fma", [value, factor, sum]);
      if (!min) return;
      const scaledSum = this.#x.f32(x, inBlock, ACTIVATION_FIELDS.scaledSum);
      k.update(sum, "f32v.fma", [min, scaledSum, sum]);
    });
  }

  /** Adds a span's sums to the results: times the header and the activations' scale, and with the minimums. */
  #addSpan(
    w: Reg<"ptr">,
    x: Reg<"ptr">,
    sums: readonly Reg<"f32v">[],
    row: Reg<"ptr">,
    next: () => void,
  ): void {
    const k = this.#k;
    const { hasMin } = this.#shape.layout;
    const scale = k.op("f32v.load", [w]);
    const min = hasMin ? k.op("f32v.load", [w], k.width) : undefined;
    let minimums: Reg<"f32v">[] = [];
    sums.forEach((inSpan, t) => {
      const inGroup = t % MINIMUMS_TOGETHER;
      if (min && inGroup === 0) minimums = this.#minimums(w, x, t);
      const sum = k.variable(k.op("f32v.load", [row]));
      const xScale = this.#x.f32(x, t, ACTIVATION_FIELDS.scale);
      k.update(sum, "f32v.fma", [inSpan, k.op("f32v.mul", [scale, xScale]), sum]);
      if (min) {
        const factor = k.op("f32v.mul", [min, xScale]);
        k.update(sum, "f32v.fma", [minimums[inGroup]!, factor, sum]);
      }
      k.op("f32v.store", [row, sum]);
      next();
    });
  }

  /** Of the next few tokens from `first` on: a span's minimums times the sums of their activations. */
  #minimums(w: Reg<"ptr">, x: Reg<"ptr">, first: number): Reg<"f32v">[] {
    const k = this.#k;
    const { layout, tokens: inTile } = this.#shape;
    const runs = layout.spanBlocks / runBlocks(layout);
    const fours = Array.from({ length: runs }, (_, run) =>
      k.op("i32v.load", [w], runAt(layout, run) + scalesAt(layout, 0)),
    );
    const count = Math.min(MINIMUMS_TOGETHER, inTile - first);
    const tokens = Array.from({ length: count }, (_, i) => first + i);
    return emitMinimums({ k, layout, reader: this.#x, x, inTile, tokens, fours });
  }
}

/** Products in scratch memory, and what they are multiplied with. */
interface Scaling {
  /** Activations, and which block of these. */
  readonly x: Reg<"ptr">;
  readonly block: number;
  /** Weights, where their scales are from there on, and which byte of small ones. */
  readonly w: Reg<"ptr">;
  readonly scalesIn: number;
  readonly byte: number;
  /** The products. */
  readonly from: Reg<"ptr">;
  readonly at: number;
  readonly sums: readonly Reg<"f32v">[];
}

/** Where a kernel is in its panels, and what does not change. */
interface Panels {
  /** Variables: the panel's weights, and its activations of the first tile of tokens. */
  readonly w: Reg<"ptr">;
  readonly x: Reg<"ptr">;
  readonly out: Reg<"ptr">;
  readonly outStride: Reg<"i32">;
  readonly tokenTiles: Reg<"i32">;
  /** Bytes of activations from one tile of tokens to the next. */
  readonly tileStep: Reg<"i32">;
  readonly scratch: Reg<"ptr">;
}
