// The second half of amx.ts: scales the integer sums of a slab, which AMX tiles have stored, and adds them to the results, as
// IR. Factors and the order of additions are those of dot4.ts, so that results have the same bits.
//
// Integer sums ("products" here) lie part by part (the columns that share a scale), a vector for every token; results are a
// vector for every token. Where a span has a header, its parts are summed with their small scales alone, in registers; the
// header, the activations' scale and all mins are applied once per span.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import {
  ACTIVATION_FIELDS,
  type BlockLayout,
  hasSmallScales,
  runAt,
  runBlocks,
  runBytes,
  scaleByte,
  scaleParts,
  scalesAt,
  spanBytes,
} from "../packed/packed.ts";
import type { ActivationReader } from "./emit-activations.ts";
import { emitMins, scalesOfRuns } from "./emit-mins.ts";
import { emitActivationScale, emitScales } from "./emit-scales.ts";
import { addSpanSum, loadHeader } from "./span-sums.ts";

/** Bytes from one part's products to the next one's: 16 tokens, a vector of 64 bytes each. */
export const SUMS_BYTES: number = 16 * 64;

/** Tokens whose mins are summed at once: as many as fit the registers. */
const MINS_TOGETHER = 4;

/** So many spans of one row panel and one token tile. */
export interface ScaledSlab {
  readonly w: Reg<"ptr">;
  readonly x: Reg<"ptr">;
  readonly products: Reg<"ptr">;
  readonly count: Reg<"i32">;
  readonly results: Reg<"ptr">;
}

/** A part's integer sums, and their factors. */
interface Part {
  /** Weights: a run, and which byte of small scales. */
  readonly run: Reg<"ptr">;
  readonly byte: number;
  /** Activations, and which block of these. */
  readonly x: Reg<"ptr">;
  readonly block: number;
  readonly products: Reg<"ptr">;
  readonly at: number;
  /** The sums that the products are added to, for each token. */
  readonly sums: readonly Reg<"f32v">[];
}

export class TileScaling {
  readonly #k: KernelBuilder;
  readonly #x: ActivationReader;
  readonly #layout: BlockLayout;
  readonly #tokens: number;

  constructor(
    k: KernelBuilder,
    x: ActivationReader,
    { layout, tokens }: { readonly layout: BlockLayout; readonly tokens: number },
  ) {
    this.#k = k;
    this.#x = x;
    this.#layout = layout;
    this.#tokens = tokens;
  }

  /** Adds the products of a slab to the results. */
  add(slab: ScaledSlab): void {
    if (hasSmallScales(this.#layout)) this.#addSpans(slab);
    else this.#addBlocks(slab);
  }

  /** Bytes of one block of activations, all tokens. */
  get #blockBytes(): number {
    return this.#tokens * this.#x.blockBytes;
  }

  /** Spans that are a block without a header each. */
  #addBlocks({ w, x, products, count, results }: ScaledSlab): void {
    const k = this.#k;
    const sums = Array.from({ length: this.#tokens }, (_, t) =>
      k.variable(k.op("f32v.load", [results], k.width * t)),
    );
    const [wAt, xAt, from] = [k.variable(w, "w_at"), k.variable(x, "x_at"), k.variable(products)];
    k.loop(count, () => {
      this.#addPart({ run: wAt, byte: 0, x: xAt, block: 0, products: from, at: 0, sums });
      k.advance(xAt, this.#blockBytes);
      k.advance(wAt, runBytes(this.#layout));
      k.advance(from, SUMS_BYTES);
    });
    sums.forEach((sum, t) => {
      k.op("f32v.store", [results, sum], k.width * t);
    });
  }

  /** Spans with headers. */
  #addSpans({ w, x, products, count, results }: ScaledSlab): void {
    const k = this.#k;
    const layout = this.#layout;
    const inRun = runBlocks(layout);
    const zero = k.op("f32v.const", [], 0);
    const [wSpan, xSpan] = [k.variable(w, "w_span"), k.variable(x, "x_span")];
    const from = k.variable(products, "from");
    k.loop(count, () => {
      const sums = Array.from({ length: this.#tokens }, () => k.variable(zero));
      const run = k.variable(k.plus(wSpan, runAt(layout, 0)), "run");
      k.loop(k.i32(layout.spanBlocks / inRun), () => {
        for (let part = 0; part < inRun * scaleParts(layout); part++) {
          const block = Math.floor(part / scaleParts(layout));
          const byte = scaleByte(layout, block, part % scaleParts(layout));
          const at = part * SUMS_BYTES;
          this.#addPart({ run, byte, x: xSpan, block, products: from, at, sums });
        }
        k.advance(run, runBytes(layout));
        k.advance(from, inRun * scaleParts(layout) * SUMS_BYTES);
      });
      this.#addSpan(wSpan, xSpan, sums, results);
      k.advance(wSpan, spanBytes(layout));
      k.advance(xSpan, this.#blockBytes * layout.spanBlocks);
    });
  }

  /** Scales a part's integer sums and adds them; small scales are multiplied by the header later. */
  #addPart({ run, byte, x, block, products, at, sums }: Part): void {
    const k = this.#k;
    const layout = this.#layout;
    const { scale, min, isWhole } = emitScales(k, layout, [run, scalesAt(layout, 0)], byte);
    sums.forEach((sum, t) => {
      const value = k.op("f32v.from_i32v", [k.op("i32v.load", [products], at + k.width * t)]);
      const inBlock = block * this.#tokens + t;
      const factor = isWhole
        ? k.op("f32v.mul", [scale, emitActivationScale(k, layout, this.#x, x, inBlock)])
        : scale;
      k.update(sum, "f32v.fma", [value, factor, sum]);
      if (!min) return;
      const scaledSum = this.#x.f32(x, inBlock, ACTIVATION_FIELDS.scaledSum);
      k.update(sum, "f32v.fma", [min, scaledSum, sum]);
    });
  }

  /** Adds a span's sums to the results, times the header and the activations' scale, and its mins. */
  #addSpan(w: Reg<"ptr">, x: Reg<"ptr">, sums: readonly Reg<"f32v">[], results: Reg<"ptr">): void {
    const k = this.#k;
    const header = loadHeader(k, this.#layout, [w, 0]);
    let mins: Reg<"f32v">[] = [];
    sums.forEach((inSpan, t) => {
      const inGroup = t % MINS_TOGETHER;
      if (header.min && inGroup === 0) mins = this.#mins(w, x, t);
      const sum = k.variable(k.op("f32v.load", [results], k.width * t));
      const xScale = this.#x.f32(x, t, ACTIVATION_FIELDS.scale);
      addSpanSum(k, sum, inSpan, header, xScale, () => mins[inGroup]!);
      k.op("f32v.store", [results, sum], k.width * t);
    });
  }

  /** For the next few tokens from `first` on: a span's mins times the sums of their activations. */
  #mins(w: Reg<"ptr">, x: Reg<"ptr">, first: number): Reg<"f32v">[] {
    const [k, layout, inTile] = [this.#k, this.#layout, this.#tokens];
    const count = Math.min(MINS_TOGETHER, inTile - first);
    const tokens = Array.from({ length: count }, (_, i) => first + i);
    const scales = scalesOfRuns(layout, w, 0);
    return emitMins({ k, layout, reader: this.#x, x, inTile, tokens, scales });
  }
}
