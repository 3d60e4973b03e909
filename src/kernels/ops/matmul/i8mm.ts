// The matmul kernel for quantized weights on processors with SMMLA, which multiplies pairs of rows: one row panel times T
// tokens, all columns. It computes the same bits as dot4.ts: integer sums are exact in any order, and floats are added in
// the same order. The layouts of weights and activations are the same, too (packed.ts): a pair of rows is two quant vectors
// zipped, a pair of tokens two loads.
//
// Columns are split into slabs: a span with a header, or SLAB blocks without. Quants and scales of a slab are unpacked and
// zipped into scratch memory once for all tokens (unpack-pairs.ts); then each token tile goes over the slab.
// A vector of sums has two tokens of two rows: a.r0, a.r1, b.r0, b.r1.
//
// Vector instructions per block of 16 rows x 4 tokens (2048 multiply-adds), one scale: 64 SMMLA, 12 zips of activations,
// and 4 for each of 16 sums (zero, convert, two multiplications): 140. dot4.ts has 160 for 8 x 6 (1536).

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import {
  ACTIVATION_FIELDS,
  ACTIVATION_QUANTS_AT,
  type BlockLayout,
  groupsPerPanel,
  hasSmallScales,
  headerBytes,
  runAt,
  runBlocks,
  runBytes,
  scaleParts,
} from "../packed/packed.ts";
import { SignedQuants } from "../packed/signed-quants.ts";
import { forEachSlab, type SlabWalk } from "../packed/slabs.ts";
import {
  CHUNKS,
  GROUPS,
  hasWholeMins,
  MOST_UNPACKED_BYTES,
  PAIRS,
  SCALES_AT,
  unpackedBytes,
  unpackPairs,
  WIDTH,
  zip,
} from "../packed/unpack-pairs.ts";
import { ActivationReader } from "./emit-activations.ts";
import { emitMins, scalesOfRuns } from "./emit-mins.ts";
import { addSpanSum, loadHeader } from "./span-sums.ts";

export interface PairMatmul {
  readonly name: string;
  /** For vectors of 16 bytes. */
  readonly layout: BlockLayout;
  /** Tokens of a token tile. With an odd number, the last is computed twice. */
  readonly tokens: number;
}

/** Blocks of a slab without a header; a span has as many. */
const SLAB = 8;

/** Bytes of scratch memory that the kernels need, for each thread. */
export const PAIR_SCRATCH_BYTES: number = SLAB * MOST_UNPACKED_BYTES;

/**
 * (w, x, out, spans, tokenTiles, codebook, outStride, group, scratch): as blockMatmulKernel in matrix order, with all groups
 * of the row panel; `scratch` has PAIR_SCRATCH_BYTES.
 */
export function pairMatmulKernel(shape: PairMatmul): Kernel {
  return new PairMatmulBuilder(shape).build();
}

/** Two tokens of a token tile, which may be the same; a and b are their numbers. */
interface TokenPair {
  readonly a: number;
  readonly b: number;
  /** One for each pair of rows. */
  readonly sums: readonly Reg<"f32v">[];
}

interface Slabs extends SlabWalk {
  readonly out: Reg<"ptr">;
  readonly outStride: Reg<"i32">;
}

class PairMatmulBuilder {
  readonly #shape: PairMatmul;
  readonly #k: KernelBuilder;
  readonly #x: ActivationReader;

  constructor(shape: PairMatmul) {
    const { layout, name } = shape;
    if (groupsPerPanel(layout) !== GROUPS) {
      throw new Error(`${name}: vectors of ${layout.width} bytes; pairs of rows have ${WIDTH}`);
    }
    if (layout.paired) {
      throw new Error(`${name}: groups share bytes, which targets without i8mm have`);
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
    const codebook = k.param("ptr", "codebook");
    const outStride = k.param("i32", "outStride");
    k.param("i32", "group");
    const scratch = k.param("ptr", "scratch");
    const quants = new SignedQuants(k, layout, codebook);
    const spanOfX = this.#blockBytes * layout.spanBlocks;
    const tileStep = k.op("i32.mul", [spans, k.i32(spanOfX)]);
    const all = { w, x, out, outStride, tokenTiles, tileStep, scratch, quants };
    this.#clear(all);
    if (!hasSmallScales(layout)) this.#slabs(all, spans);
    else {
      k.loop(spans, () => {
        this.#slab(all, undefined);
        k.advance(w, runAt(layout, layout.spanBlocks / runBlocks(layout)));
        k.advance(x, spanOfX);
      });
    }
    return k.finish();
  }

  /** Bytes of one block of activations, all tokens. */
  get #blockBytes(): number {
    return this.#shape.tokens * this.#x.blockBytes;
  }

  /** Sets the results to zero: each slab adds to them. */
  #clear({ out, outStride, tokenTiles }: Slabs): void {
    const k = this.#k;
    const zero = k.op("f32v.const", [], 0);
    const row = k.variable(out);
    k.loop(tokenTiles, () => {
      for (let t = 0; t < this.#shape.tokens; t++) {
        for (let g = 0; g < GROUPS; g++) k.op("f32v.store", [row, zero], WIDTH * g);
        k.update(row, "ptr.add", [row, outStride]);
      }
    });
  }

  /** All slabs of a layout without headers. */
  #slabs(all: Slabs, blocks: Reg<"i32">): void {
    const k = this.#k;
    forEachSlab(k, blocks, SLAB, (count) => {
      this.#slab(all, count);
      const step = k.i32(runBytes(this.#shape.layout));
      k.update(all.w, "ptr.add_product", [all.w, count, step]);
      k.update(all.x, "ptr.add_product", [all.x, count, k.i32(this.#blockBytes)]);
    });
  }

  /** Adds `blocks` blocks, or a span with a header, of all tokens to the results. */
  #slab(all: Slabs, blocks: Reg<"i32"> | undefined): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const runs = blocks ?? k.i32(layout.spanBlocks / runBlocks(layout));
    unpackPairs({ k, layout, quants: all.quants }, all.w, all.scratch, runs);
    const xTile = k.variable(all.x, "x_tile");
    const out = k.variable(all.out, "out_tile");
    k.loop(all.tokenTiles, () => {
      const pairs = this.#tokenPairs();
      const sums = blocks ? this.#loadSums(pairs, out, all.outStride) : this.#zeroSums(pairs);
      this.#blocks(all.scratch, xTile, blocks ?? k.i32(layout.spanBlocks), sums);
      if (blocks) this.#storeSums(sums, out, all.outStride);
      else this.#addSpan(all.w, xTile, sums, out, all.outStride);
      k.update(xTile, "ptr.add", [xTile, all.tileStep]);
    });
  }

  #bytes(floats: Reg<"f32v">): Reg<"i8v"> {
    return this.#k.op("i32v.as_i8v", [this.#k.op("f32v.as_i32v", [floats])]);
  }

  #tokenPairs(): Omit<TokenPair, "sums">[] {
    const { tokens } = this.#shape;
    return Array.from({ length: Math.ceil(tokens / 2) }, (_, i) => {
      return { a: 2 * i, b: Math.min(2 * i + 1, tokens - 1) };
    });
  }

  #zeroSums(pairs: readonly Omit<TokenPair, "sums">[]): TokenPair[] {
    const k = this.#k;
    const zero = k.op("f32v.const", [], 0);
    return pairs.map((pair) => ({
      ...pair,
      sums: Array.from({ length: PAIRS }, () => k.variable(zero)),
    }));
  }

  /** Calls visit with the rows of results of each pair of tokens. */
  #forEachPair<P extends { readonly a: number; readonly b: number }, R>(
    pairs: readonly P[],
    out: Reg<"ptr">,
    outStride: Reg<"i32">,
    visit: (pair: P, rows: readonly Reg<"ptr">[]) => R,
  ): { results: R[]; end: Reg<"ptr"> } {
    const k = this.#k;
    const row = k.variable(out, "row");
    const results = pairs.map((pair) => {
      const isPair = pair.a !== pair.b;
      const first = isPair ? k.variable(row, "first") : row;
      if (isPair) k.update(row, "ptr.add", [row, outStride]);
      const result = visit(pair, isPair ? [first, row] : [row]);
      k.update(row, "ptr.add", [row, outStride]);
      return result;
    });
    return { results, end: row };
  }

  #loadSums(
    pairs: readonly Omit<TokenPair, "sums">[],
    out: Reg<"ptr">,
    outStride: Reg<"i32">,
  ): TokenPair[] {
    const k = this.#k;
    return this.#forEachPair(pairs, out, outStride, (pair, rows) => {
      const [a = [], b = a] = rows.map((row) =>
        groups().map((g) => k.op("f32v.load", [row], WIDTH * g)),
      );
      const sums = groups().flatMap((g) =>
        zip(k, "zip64", a[g]!, b[g]!).map((sum) => k.variable(sum)),
      );
      return { ...pair, sums };
    }).results;
  }

  /** Moves `out` to the next token tile. */
  #storeSums(pairs: readonly TokenPair[], out: Reg<"ptr">, outStride: Reg<"i32">): void {
    const k = this.#k;
    const { end } = this.#forEachPair(pairs, out, outStride, ({ sums }, rows) => {
      rows.forEach((row, i) => {
        const half = i === 0 ? "arm64.zip64_low" : "arm64.zip64_high";
        const results = groups().map((g) => k.op(half, [sums[2 * g]!, sums[2 * g + 1]!]));
        results.forEach((result, g) => {
          k.op("f32v.store", [row, result], WIDTH * g);
        });
      });
    });
    k.set(out, end);
  }

  #blocks(
    scratch: Reg<"ptr">,
    xTile: Reg<"ptr">,
    count: Reg<"i32">,
    pairs: readonly TokenPair[],
  ): void {
    const k = this.#k;
    const w = k.variable(scratch, "w_at");
    const x = k.variable(xTile, "x_at");
    k.loop(count, () => {
      for (const pair of pairs) this.#block(w, x, pair);
      k.advance(w, unpackedBytes(this.#shape.layout));
      k.advance(x, this.#blockBytes);
    });
  }

  /** One block of two tokens and all rows. */
  #block(w: Reg<"ptr">, x: Reg<"ptr">, pair: TokenPair): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const parts = scaleParts(layout);
    const inPart = CHUNKS / parts;
    const quants = this.#activations(x, pair);
    for (let part = 0; part < parts; part++) {
      const zero = k.op("i32v.const", [], 0);
      const dots = Array.from({ length: PAIRS }, () => k.variable(zero));
      for (let chunk = part * inPart; chunk < (part + 1) * inPart; chunk++) {
        for (let p = 0; p < PAIRS; p += 2) {
          const at = WIDTH * (PAIRS * chunk + p);
          // Both loads first: two neighbouring loads become one instruction.
          const rows = [0, WIDTH].map((next) => k.op("i8v.load", [w], at + next));
          rows.forEach((row, i) => {
            const dot = dots[p + i]!;
            k.update(dot, "i8mm.dot8_ss", [quants[chunk]!, row, dot]);
          });
        }
      }
      this.#scale(w, x, part, pair, dots);
    }
  }

  /** The quants of two tokens: 8 columns of each, four times. */
  #activations(x: Reg<"ptr">, { a, b }: TokenPair): Reg<"i8v">[] {
    const k = this.#k;
    const load = (t: number) =>
      [0, WIDTH].map((next) =>
        k.op("f32v.load", [x], t * this.#x.blockBytes + ACTIVATION_QUANTS_AT + next),
      );
    const first = load(a);
    const second = a === b ? first : load(b);
    return first.flatMap((half, i) =>
      zip(k, "zip64", half, second[i]!).map((quants) => this.#bytes(quants)),
    );
  }

  /** Scales integer sums and adds them; small scales are multiplied by the header later. */
  #scale(
    w: Reg<"ptr">,
    x: Reg<"ptr">,
    part: number,
    pair: TokenPair,
    dots: readonly Reg<"i32v">[],
  ): void {
    const k = this.#k;
    const fields = hasSmallScales(this.#shape.layout) ? undefined : this.#fields(x, pair);
    dots.forEach((dot, p) => {
      const at = SCALES_AT + WIDTH * (PAIRS * part + p);
      const scale = k.op("f32v.load", [w], at);
      const factor = fields ? k.op("f32v.mul", [scale, fields.scale]) : scale;
      const sum = pair.sums[p]!;
      k.update(sum, "f32v.fma", [k.op("f32v.from_i32v", [dot]), factor, sum]);
      if (!fields?.scaledSum) return;
      const min = k.op("f32v.load", [w], at + PAIRS * WIDTH);
      k.update(sum, "f32v.fma", [min, fields.scaledSum, sum]);
    });
  }

  /** The fields of two tokens' blocks, each twice: a, a, b, b. */
  #fields(
    x: Reg<"ptr">,
    { a, b }: TokenPair,
  ): { scale: Reg<"f32v">; scaledSum: Reg<"f32v"> | undefined } {
    const k = this.#k;
    // All four fields of a block are one vector: scale, sum, scale * sum, another sum (packed.ts).
    const [ofA, ofB] = [a, b].map((t) => k.op("f32v.load", [x], t * this.#x.blockBytes));
    const twice = (both: Reg<"f32v">) => k.op("arm64.zip32_low", [both, both]);
    return {
      scale: twice(k.op("arm64.zip32_low", [ofA!, ofB!])),
      scaledSum: hasWholeMins(this.#shape.layout)
        ? twice(k.op("arm64.zip32_high", [ofA!, ofB!]))
        : undefined,
    };
  }

  /** Adds a span's sums to the results, times the header and the activations' scale, and its mins. */
  #addSpan(
    w: Reg<"ptr">,
    x: Reg<"ptr">,
    pairs: readonly TokenPair[],
    out: Reg<"ptr">,
    outStride: Reg<"i32">,
  ): void {
    const k = this.#k;
    const { layout } = this.#shape;
    const { end } = this.#forEachPair(pairs, out, outStride, ({ a, b, sums }, rows) => {
      const tokens = [a, b].slice(0, rows.length);
      for (const g of groups()) {
        const inSpan = zip(k, "zip64", sums[2 * g]!, sums[2 * g + 1]!);
        const header = loadHeader(k, layout, [w, g * headerBytes(layout)]);
        const mins = header.min ? this.#mins(w, x, g, tokens) : [];
        tokens.forEach((t, i) => {
          const sum = k.variable(k.op("f32v.load", [rows[i]!], WIDTH * g));
          const xScale = this.#x.f32(x, t, ACTIVATION_FIELDS.scale);
          addSpanSum(k, sum, inSpan[i]!, header, xScale, () => mins[i]!);
          k.op("f32v.store", [rows[i]!, sum], WIDTH * g);
        });
      }
    });
    k.set(out, end);
  }

  /** For each token: a span's mins times the sums of its activations. */
  #mins(w: Reg<"ptr">, x: Reg<"ptr">, group: number, tokens: readonly number[]): Reg<"f32v">[] {
    const k = this.#k;
    const { layout, tokens: inTile } = this.#shape;
    const scales = scalesOfRuns(layout, w, group);
    return emitMins({ k, layout, reader: this.#x, x, inTile, tokens, scales });
  }
}

function groups(): number[] {
  return Array.from({ length: GROUPS }, (_, g) => g);
}
