// The matmul kernel for quantized weights on processors with tile registers (AMX): one tile of 16 rows times T tokens, all
// columns. It computes what matmul-blocks.ts computes, bit for bit: products are integers, which are exact in any order, and
// what is added in floats is added in the same order. Layouts: packed.ts.
//
// The codes of a block, a byte each, are what a tile register multiplies with: 8 rows of 16 x 4 bytes. Activations lie so
// that the codes of a block of T tokens are a tile of T rows, one activation block apart. One instruction then does what
// 8T dot4 do. Its T x 16 sums go through memory into vectors, where they are scaled.
//
// Columns are cut into panels, these into parts (the columns that share a scale). The codes of a panel are unpacked into
// scratch memory once for all tokens, their offset taken out on the way (so nothing has to be added per token for it). Then
// each tile of tokens goes through the panel twice: first everything is multiplied, then everything is scaled. Not in turns:
// while tile registers are at work, a processor multiplies floats in one of its two places only. Results are summed up in
// scratch memory, a panel at a time: in their own place, a row apart, they would push each other out of the first cache.

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
  spanBytes,
} from "./packed.ts";

export interface TileMatmul {
  readonly name: string;
  /** For vectors of 64 bytes. */
  readonly layout: BlockLayout;
  /** Tokens computed at once: 1 to 16. */
  readonly tokens: number;
}

/** Blocks of a panel: products stay in the first cache until they are scaled. A span has as many, at most. */
const PANEL = 8;
const CACHE_LINE = 64;
/** Code vectors of a block. */
const VECTORS = BLOCK_COLS / 4;
/** Tokens whose minimums are added up at once, as far as registers reach. */
const MINIMUMS_TOGETHER = 4;

/** Tile registers: products, four on their way; activations and codes, of one part and of the next. */
const SUMS: readonly number[] = [0, 1, 2, 3];
const TOKENS: readonly number[] = [4, 5];
const CODES: readonly number[] = [6, 7];
/** Scratch memory: the products of a panel, its codes, and results. */
const SUMS_BYTES = 16 * 64;
const CODES_AT: number = 2 * PANEL * SUMS_BYTES;
const RESULTS_AT: number = CODES_AT + PANEL * VECTORS * 64;
/** Where the codes of an activation block begin. */
const ACTIVATION_CODES_AT = 16;

/** Bytes of scratch memory that the kernels need for steps of so many tokens, for each thread. */
export function tileScratchBytes(tokens: number): number {
  return RESULTS_AT + Math.ceil(tokens / 16) * SUMS_BYTES;
}

/**
 * (w, x, out, spans, tokenTiles, levels, outStride, group, scratch): as blockMatmulKernel in matrix order, with all groups of
 * the tile; `scratch` has tileScratchBytes().
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
    const tileStep = k.op("i32.mul", [spans, k.i32(this.#spanStep)]);
    this.#clear(scratch, tokenTiles);
    this.#panels({ w, x, tokenTiles, tileStep, scratch }, spans);
    this.#write(scratch, tokenTiles, out, outStride);
    return k.finish();
  }

  /** Bytes of one block of activations, all tokens. */
  get #blockBytes(): number {
    return this.#shape.tokens * this.#x.blockBytes;
  }

  /** Bytes of a span of activations, all tokens. */
  get #spanStep(): number {
    return this.#blockBytes * this.#shape.layout.spanBlocks;
  }

  /** Parts of a span. */
  get #spanParts(): number {
    return this.#shape.layout.spanBlocks * scaleParts(this.#shape.layout);
  }

  #shapes(): void {
    const { tokens, layout } = this.#shape;
    const { scaleCols } = layout;
    const shape = (tiles: readonly number[], rows: number, bytes: number) => {
      for (const tile of tiles) this.#k.op("amx.shape", [], tileShape(tile, { rows, bytes }));
    };
    shape(SUMS, tokens, 64);
    shape(TOKENS, tokens, scaleCols);
    shape(CODES, scaleCols / 4, 64);
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
  #clear(scratch: Reg<"ptr">, tokenTiles: Reg<"i32">): void {
    const k = this.#k;
    const zero = k.op("f32v.const", [], 0);
    const results = k.variable(this.#plus(scratch, RESULTS_AT), "results");
    k.loop(tokenTiles, () => {
      for (let t = 0; t < this.#shape.tokens; t++) {
        k.op("f32v.store", [results, zero], k.width * t);
      }
      k.advance(results, SUMS_BYTES);
    });
  }

  /** Results to where they belong. */
  #write(
    scratch: Reg<"ptr">,
    tokenTiles: Reg<"i32">,
    out: Reg<"ptr">,
    outStride: Reg<"i32">,
  ): void {
    const k = this.#k;
    const results = k.variable(this.#plus(scratch, RESULTS_AT), "results");
    const row = k.variable(out, "row");
    k.loop(tokenTiles, () => {
      for (let t = 0; t < this.#shape.tokens; t++) {
        k.op("f32v.store", [row, k.op("f32v.load", [results], k.width * t)]);
        k.update(row, "ptr.add", [row, outStride]);
      }
      k.advance(results, SUMS_BYTES);
    });
  }

  #plus(pointer: Reg<"ptr">, bytes: number): Reg<"ptr"> {
    return bytes === 0 ? pointer : this.#k.op("ptr.add", [pointer, this.#k.i32(bytes)]);
  }

  /** Spans of a panel. */
  get #panelSpans(): number {
    return PANEL / this.#shape.layout.spanBlocks;
  }

  #panels(all: Panels, spans: Reg<"i32">): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const inPanel = this.#panelSpans;
    const { first, more } = inPanel === 1 ? this.#singles(spans) : this.#cut(spans, inPanel);
    const count = k.variable(first, "count");
    k.loop(k.op("i32.add", [more, k.i32(1)]), () => {
      this.#panel(all, count);
      k.update(all.w, "ptr.add_product", [all.w, count, k.i32(spanBytes(layout))]);
      k.update(all.x, "ptr.add_product", [all.x, count, k.i32(this.#spanStep)]);
      k.set(count, k.i32(inPanel));
    });
  }

  /** Spans of the first panel, which has what does not fill the others, and how many others there are. */
  #cut(spans: Reg<"i32">, inPanel: number): { first: Reg<"i32">; more: Reg<"i32"> } {
    const k = this.#k;
    const more = k.op("i32.shr_u", [k.op("i32.sub", [spans, k.i32(1)])], Math.log2(inPanel));
    return { first: k.op("i32.sub", [spans, k.op("i32.mul", [more, k.i32(inPanel)])]), more };
  }

  /** The same, with one span in each. */
  #singles(spans: Reg<"i32">): { first: Reg<"i32">; more: Reg<"i32"> } {
    const k = this.#k;
    return { first: k.i32(1), more: k.op("i32.sub", [spans, k.i32(1)]) };
  }

  /** So many spans of all tokens: added to the results. */
  #panel(all: Panels, count: Reg<"i32">): void {
    const k = this.#k;
    this.#unpack(all, count);
    const x = k.variable(all.x, "x_tile");
    const results = k.variable(this.#plus(all.scratch, RESULTS_AT), "results");
    k.loop(all.tokenTiles, () => {
      this.#multiply(all, x, count);
      if (hasSmallScales(this.#shape.layout)) this.#scaleSpans(all, x, count, results);
      else this.#scaleBlocks(all, x, count, results);
      k.update(x, "ptr.add", [x, all.tileStep]);
      k.advance(results, SUMS_BYTES);
    });
  }

  /** The codes of so many spans as bytes: [block][8] vectors. */
  #unpack({ w, scratch }: Panels, count: Reg<"i32">): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const from = k.variable(w, "packed");
    const codes = k.variable(this.#plus(scratch, CODES_AT), "codes");
    // The next panel is brought while this one is multiplied.
    const panel = this.#panelSpans * spanBytes(layout);
    const runs = layout.spanBlocks / runBlocks(layout);
    k.loop(count, () => {
      for (let line = 0; line < spanBytes(layout); line += CACHE_LINE) {
        k.op("ptr.prefetch", [from], line + panel);
      }
      for (let block = 0; block < layout.spanBlocks; block++) {
        const run = Math.floor(block / runBlocks(layout));
        const at = runAt(layout, run) + codesAt(layout, block % runBlocks(layout));
        const last: Loaded = { vector: -1 };
        for (const v of codeOrder(layout.bits, 0, VECTORS)) {
          const code = emitCodes(k, layout.bits, from, at, v, last);
          k.op("i8v.store", [codes, this.#value(code)], k.width * (block * VECTORS + v));
        }
      }
      k.advance(from, runAt(layout, runs));
      k.advance(codes, layout.spanBlocks * VECTORS * k.width);
    });
  }

  #value(code: Reg<"i8v">): Reg<"i8v"> {
    if (this.#levels) return this.#k.op("i8v.lookup16", [this.#levels, code]);
    return this.#offset ? this.#k.op("i8v.sub", [code, this.#offset]) : code;
  }

  /**
   * The products of so many spans, part by part. Four parts are on their way at once, each stored when its tile register is
   * needed again: tile registers are slow to answer.
   */
  #multiply({ scratch }: Panels, x: Reg<"ptr">, count: Reg<"i32">): void {
    const k = this.#k;
    const inSpan = this.#spanParts;
    const parts = inSpan === 1 ? count : k.op("i32.mul", [count, k.i32(inSpan)]);
    const fours = k.op("i32.shr_u", [parts], 2);
    const at: Parts = {
      x: k.variable(this.#plus(x, ACTIVATION_CODES_AT), "x_codes"),
      codes: k.variable(this.#plus(scratch, CODES_AT), "codes"),
      sums: k.variable(scratch, "sums"),
    };
    if (inSpan % 4 !== 0) {
      k.loop(k.op("i32.sub", [parts, k.op("i32.mul", [fours, k.i32(4)])]), () => {
        this.#multiplyPart(at, 0);
        this.#store(at, 0);
        this.#skipParts(at, 1);
        k.advance(at.sums, SUMS_BYTES);
      });
    }
    // Once, if there are four parts at all.
    k.loop(k.op("i32.shr_u", [k.op("i32.add", [fours, k.i32(3)])], 2), () => {
      for (const i of SUMS) this.#multiplyPart(at, i);
      this.#skipParts(at, 4);
      k.loop(k.op("i32.sub", [fours, k.i32(1)]), () => {
        for (const i of SUMS) {
          this.#store(at, i);
          this.#multiplyPart(at, i);
        }
        this.#skipParts(at, 4);
        k.advance(at.sums, 4 * SUMS_BYTES);
      });
      for (const i of SUMS) this.#store(at, i);
    });
  }

  /** Part number i from there on. */
  #multiplyPart({ x, codes }: Parts, i: number): void {
    const k = this.#k;
    const { scaleCols } = this.#shape.layout;
    const [sums, tokens, weights] = [SUMS[i]!, TOKENS[i % 2]!, CODES[i % 2]!];
    const column = i * scaleCols;
    const block = Math.floor(column / BLOCK_COLS);
    const xAt = this.#plus(x, block * this.#blockBytes + (column % BLOCK_COLS));
    k.op("amx.zero", [], sums);
    k.op("amx.load", [xAt], tileStride(tokens, this.#x.blockBytes));
    k.op("amx.load", [this.#plus(codes, column * 16)], tileStride(weights, k.width));
    k.op("amx.dot4_ss", [], threeTiles(sums, tokens, weights));
  }

  #store({ sums }: Parts, i: number): void {
    const k = this.#k;
    k.op("amx.store", [this.#plus(sums, i * SUMS_BYTES)], tileStride(SUMS[i]!, k.width));
  }

  /** On to the next parts, whole blocks. */
  #skipParts({ x, codes }: Parts, parts: number): void {
    const columns = parts * this.#shape.layout.scaleCols;
    this.#k.advance(x, (columns / BLOCK_COLS) * this.#blockBytes);
    this.#k.advance(codes, columns * 16);
  }

  /** Adds the products of so many blocks that have no header. */
  #scaleBlocks(
    { w, scratch }: Panels,
    x: Reg<"ptr">,
    count: Reg<"i32">,
    results: Reg<"ptr">,
  ): void {
    const k = this.#k;
    const { layout, tokens } = this.#shape;
    const sums = Array.from({ length: tokens }, (_, t) =>
      k.variable(k.op("f32v.load", [results], k.width * t)),
    );
    const [wAt, xAt, from] = [k.variable(w, "w_at"), k.variable(x, "x_at"), k.variable(scratch)];
    k.loop(count, () => {
      this.#scale({
        x: xAt,
        block: 0,
        w: wAt,
        scalesIn: scalesAt(layout, 0),
        byte: 0,
        from,
        at: 0,
        sums,
      });
      k.advance(xAt, this.#blockBytes);
      k.advance(wAt, runBytes(layout));
      k.advance(from, SUMS_BYTES);
    });
    sums.forEach((sum, t) => {
      k.op("f32v.store", [results, sum], k.width * t);
    });
  }

  /** Adds the products of so many spans with headers. */
  #scaleSpans({ w, scratch }: Panels, x: Reg<"ptr">, count: Reg<"i32">, results: Reg<"ptr">): void {
    const k = this.#k;
    const { layout, tokens } = this.#shape;
    const inRun = runBlocks(layout);
    const zero = k.op("f32v.const", [], 0);
    const [wSpan, xSpan] = [k.variable(w, "w_span"), k.variable(x, "x_span")];
    const from = k.variable(scratch, "from");
    k.loop(count, () => {
      const sums = Array.from({ length: tokens }, () => k.variable(zero));
      const run = k.variable(this.#plus(wSpan, runAt(layout, 0)), "run");
      k.loop(k.i32(layout.spanBlocks / inRun), () => {
        for (let part = 0; part < inRun * scaleParts(layout); part++) {
          const block = Math.floor(part / scaleParts(layout));
          const byte = scaleByte(layout, block, part % scaleParts(layout));
          const at = part * SUMS_BYTES;
          this.#scale({
            x: xSpan,
            block,
            w: run,
            scalesIn: scalesAt(layout, 0),
            byte,
            from,
            at,
            sums,
          });
        }
        k.advance(run, runBytes(layout));
        k.advance(from, inRun * scaleParts(layout) * SUMS_BYTES);
      });
      this.#addSpan(wSpan, xSpan, sums, results);
      k.advance(wSpan, spanBytes(layout));
      k.advance(xSpan, this.#spanStep);
    });
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
  #addSpan(w: Reg<"ptr">, x: Reg<"ptr">, sums: readonly Reg<"f32v">[], results: Reg<"ptr">): void {
    const k = this.#k;
    const { hasMin } = this.#shape.layout;
    const scale = k.op("f32v.load", [w]);
    const min = hasMin ? k.op("f32v.load", [w], k.width) : undefined;
    let minimums: Reg<"f32v">[] = [];
    sums.forEach((inSpan, t) => {
      const inGroup = t % MINIMUMS_TOGETHER;
      if (min && inGroup === 0) minimums = this.#minimums(w, x, t);
      const sum = k.variable(k.op("f32v.load", [results], k.width * t));
      const xScale = this.#x.f32(x, t, ACTIVATION_FIELDS.scale);
      k.update(sum, "f32v.fma", [inSpan, k.op("f32v.mul", [scale, xScale]), sum]);
      if (min) {
        const factor = k.op("f32v.mul", [min, xScale]);
        k.update(sum, "f32v.fma", [minimums[inGroup]!, factor, sum]);
      }
      k.op("f32v.store", [results, sum], k.width * t);
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

/** Variables: where the next part's codes are, those of activations and of weights, and where products go. */
interface Parts {
  readonly x: Reg<"ptr">;
  readonly codes: Reg<"ptr">;
  readonly sums: Reg<"ptr">;
}

/** Where a kernel is in its panels, and what does not change. */
interface Panels {
  /** Variables: the panel's weights, and its activations of the first tile of tokens. */
  readonly w: Reg<"ptr">;
  readonly x: Reg<"ptr">;
  readonly tokenTiles: Reg<"i32">;
  /** Bytes of activations from one tile of tokens to the next. */
  readonly tileStep: Reg<"i32">;
  readonly scratch: Reg<"ptr">;
}
