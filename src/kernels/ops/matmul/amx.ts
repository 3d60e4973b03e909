// The matmul kernel for quantized weights on processors with AMX tiles: one row panel times T tokens, all columns. It
// computes the same bits as dot4.ts: integer sums are exact in any order, and floats are added in the same order. Layouts:
// packed.ts.
//
// The quants of a block, a byte each, are one AMX tile of 8 rows of 16 x 4 bytes. The activations of a block of T tokens are
// an AMX tile of T rows, one activation block apart. One instruction does the work of 8T dot4. Its T x 16 sums go through
// memory into vectors, where they are scaled.
//
// Columns are split into slabs, slabs into parts (the columns that share a scale). The quants of a slab are unpacked into
// scratch memory once for all tokens, without their offset, so that tokens need no correction for it. Then each token tile
// goes over the slab twice: first everything is multiplied, then everything is scaled (tile-scaling.ts). The two are not
// interleaved, because a processor has only one of its two float multipliers while AMX tiles are busy. Results are summed
// in scratch memory, slab by slab: at their final addresses, a row apart, they would evict each other from the L1 cache.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { threeTiles, tileShape, tileStride } from "../../ir/tiles.ts";
import {
  ACTIVATION_QUANTS_AT,
  BLOCK_COLS,
  type BlockLayout,
  groupsPerPanel,
  quantsAt,
  runAt,
  runBlocks,
  scaleParts,
  spanBytes,
} from "../packed/packed.ts";
import { quantOrder } from "../packed/quant-fields.ts";
import { SignedQuants } from "../packed/signed-quants.ts";
import { forEachSlab, type SlabWalk } from "../packed/slabs.ts";
import { ActivationReader } from "./emit-activations.ts";
import { emitQuants, type Loaded } from "./emit-quants.ts";
import { CACHE_LINE } from "./prefetch.ts";
import { SUMS_BYTES, TileScaling } from "./tile-scaling.ts";

export interface TileMatmul {
  readonly name: string;
  /** For vectors of 64 bytes. */
  readonly layout: BlockLayout;
  /** Tokens of a token tile: 1 to 16. */
  readonly tokens: number;
}

/** Blocks of a slab: their sums stay in the L1 cache until they are scaled. A span has as many, at most. */
const SLAB = 8;
/** Quant vectors of a block. */
const VECTORS = BLOCK_COLS / 4;

/** Numbers of AMX tiles: four for sums in flight, two for activations and two for quants, of one part and of the next. */
const SUMS: readonly number[] = [0, 1, 2, 3];
const TOKENS: readonly number[] = [4, 5];
const QUANTS: readonly number[] = [6, 7];
/** Scratch memory: the integer sums of a slab, its quants, and results. */
const QUANTS_AT: number = 2 * SLAB * SUMS_BYTES;
const RESULTS_AT: number = QUANTS_AT + SLAB * VECTORS * 64;

/** Bytes of scratch memory that the kernels need for batches of `tokens` tokens, for each thread. */
export function tileScratchBytes(tokens: number): number {
  return RESULTS_AT + Math.ceil(tokens / 16) * SUMS_BYTES;
}

/**
 * (w, x, out, spans, tokenTiles, codebook, outStride, group, scratch): as blockMatmulKernel in matrix order, with all groups
 * of the row panel; `scratch` has tileScratchBytes().
 */
export function tileMatmulKernel(shape: TileMatmul): Kernel {
  return new TileMatmulBuilder(shape).build();
}

class TileMatmulBuilder {
  readonly #shape: TileMatmul;
  readonly #k: KernelBuilder;
  readonly #x: ActivationReader;
  readonly #scaling: TileScaling;

  constructor(shape: TileMatmul) {
    const { layout, name } = shape;
    if (groupsPerPanel(layout) !== 1) {
      throw new Error(`${name}: vectors of ${layout.width} bytes; an AMX tile has rows of 64`);
    }
    this.#shape = shape;
    this.#k = new KernelBuilder(name, layout.width);
    this.#x = new ActivationReader(this.#k, false);
    this.#scaling = new TileScaling(this.#k, this.#x, shape);
  }

  build(): Kernel {
    const k = this.#k;
    const w = k.param("ptr", "w");
    const x = k.param("ptr", "x");
    const out = k.param("ptr", "out");
    const spans = k.param("i32", "spans");
    const tokenTiles = k.param("i32", "tokenTiles");
    const codebook = k.param("ptr", "codebook");
    const outStride = k.param("i32", "outStride");
    k.param("i32", "group");
    const scratch = k.param("ptr", "scratch");
    this.#shapes();
    const quants = new SignedQuants(k, this.#shape.layout, codebook);
    const tileStep = k.op("i32.mul", [spans, k.i32(this.#spanStep)]);
    this.#clear(scratch, tokenTiles);
    this.#slabs({ w, x, tokenTiles, tileStep, scratch, quants }, spans);
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
    shape(QUANTS, scaleCols / 4, 64);
  }

  /** Sets the results to zero. */
  #clear(scratch: Reg<"ptr">, tokenTiles: Reg<"i32">): void {
    const k = this.#k;
    const zero = k.op("f32v.const", [], 0);
    const results = k.variable(k.plus(scratch, RESULTS_AT), "results");
    k.loop(tokenTiles, () => {
      for (let t = 0; t < this.#shape.tokens; t++) {
        k.op("f32v.store", [results, zero], k.width * t);
      }
      k.advance(results, SUMS_BYTES);
    });
  }

  /** Copies the results to `out`. */
  #write(
    scratch: Reg<"ptr">,
    tokenTiles: Reg<"i32">,
    out: Reg<"ptr">,
    outStride: Reg<"i32">,
  ): void {
    const k = this.#k;
    const results = k.variable(k.plus(scratch, RESULTS_AT), "results");
    const row = k.variable(out, "row");
    k.loop(tokenTiles, () => {
      for (let t = 0; t < this.#shape.tokens; t++) {
        k.op("f32v.store", [row, k.op("f32v.load", [results], k.width * t)]);
        k.update(row, "ptr.add", [row, outStride]);
      }
      k.advance(results, SUMS_BYTES);
    });
  }

  /** Spans of a slab. */
  get #slabSpans(): number {
    return SLAB / this.#shape.layout.spanBlocks;
  }

  #slabs(all: SlabWalk, spans: Reg<"i32">): void {
    const k = this.#k;
    const { layout } = this.#shape;
    forEachSlab(k, spans, this.#slabSpans, (count) => {
      this.#slab(all, count);
      k.update(all.w, "ptr.add_product", [all.w, count, k.i32(spanBytes(layout))]);
      k.update(all.x, "ptr.add_product", [all.x, count, k.i32(this.#spanStep)]);
    });
  }

  /** Adds `count` spans of all tokens to the results. */
  #slab(all: SlabWalk, count: Reg<"i32">): void {
    const k = this.#k;
    this.#unpack(all, count);
    const x = k.variable(all.x, "x_tile");
    const results = k.variable(k.plus(all.scratch, RESULTS_AT), "results");
    k.loop(all.tokenTiles, () => {
      this.#multiply(all, x, count);
      this.#scaling.add({ w: all.w, x, products: all.scratch, count, results });
      k.update(x, "ptr.add", [x, all.tileStep]);
      k.advance(results, SUMS_BYTES);
    });
  }

  /** Unpacks the quants of `count` spans into bytes: [block][8] vectors. */
  #unpack({ w, scratch, quants: signed }: SlabWalk, count: Reg<"i32">): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const from = k.variable(w, "packed");
    const quants = k.variable(k.plus(scratch, QUANTS_AT), "quants");
    // Prefetches the next slab while this one is multiplied.
    const slab = this.#slabSpans * spanBytes(layout);
    const runs = layout.spanBlocks / runBlocks(layout);
    k.loop(count, () => {
      for (let line = 0; line < spanBytes(layout); line += CACHE_LINE) {
        k.op("ptr.prefetch", [from], line + slab);
      }
      for (let block = 0; block < layout.spanBlocks; block++) {
        const run = Math.floor(block / runBlocks(layout));
        const at = runAt(layout, run) + quantsAt(layout, block % runBlocks(layout));
        const last: Loaded = { vector: -1 };
        for (const v of quantOrder(layout.bits, 0, VECTORS)) {
          const packed = emitQuants(k, layout.bits, from, at, v, last);
          k.op("i8v.store", [quants, signed.value(packed)], k.width * (block * VECTORS + v));
        }
      }
      k.advance(from, runAt(layout, runs));
      k.advance(quants, layout.spanBlocks * VECTORS * k.width);
    });
  }

  /**
   * The integer sums of `count` spans, part by part. Four parts are in flight at once, and each is stored when its AMX tile
   * is needed again, since AMX tiles have a long latency.
   */
  #multiply({ scratch }: SlabWalk, x: Reg<"ptr">, count: Reg<"i32">): void {
    const k = this.#k;
    const inSpan = this.#spanParts;
    const parts = inSpan === 1 ? count : k.op("i32.mul", [count, k.i32(inSpan)]);
    const fours = k.op("i32.shr_u", [parts], 2);
    const at: Parts = {
      x: k.variable(k.plus(x, ACTIVATION_QUANTS_AT), "x_codes"),
      quants: k.variable(k.plus(scratch, QUANTS_AT), "quants"),
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

  /** Part number i, counted from the pointers. */
  #multiplyPart({ x, quants }: Parts, i: number): void {
    const k = this.#k;
    const { scaleCols } = this.#shape.layout;
    const [sums, tokens, weights] = [SUMS[i]!, TOKENS[i % 2]!, QUANTS[i % 2]!];
    const column = i * scaleCols;
    const block = Math.floor(column / BLOCK_COLS);
    const xAt = k.plus(x, block * this.#blockBytes + (column % BLOCK_COLS));
    k.op("amx.zero", [], sums);
    k.op("amx.load", [xAt], tileStride(tokens, this.#x.blockBytes));
    k.op("amx.load", [k.plus(quants, column * 16)], tileStride(weights, k.width));
    k.op("amx.dot4_ss", [], threeTiles(sums, tokens, weights));
  }

  #store({ sums }: Parts, i: number): void {
    const k = this.#k;
    k.op("amx.store", [k.plus(sums, i * SUMS_BYTES)], tileStride(SUMS[i]!, k.width));
  }

  /** Moves the pointers by `parts` parts, which are whole blocks. */
  #skipParts({ x, quants }: Parts, parts: number): void {
    const columns = parts * this.#shape.layout.scaleCols;
    this.#k.advance(x, (columns / BLOCK_COLS) * this.#blockBytes);
    this.#k.advance(quants, columns * 16);
  }
}

/** Variables: where the next part's activations and weights are, and where its integer sums go. */
interface Parts {
  readonly x: Reg<"ptr">;
  readonly quants: Reg<"ptr">;
  readonly sums: Reg<"ptr">;
}
