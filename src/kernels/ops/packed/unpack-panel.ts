// Unpacks a row panel for the tokens of a batch, as IR: quants become the signed bytes that they stand for, scales floats. Small
// scales and headers stay as they are. A register tile then spends no instruction on unpacking, nor on the offset of quants.
// The layout is that of packed.ts with other fields, so that dot4.ts reads either.
//
// Instructions of vector units per block of a group, 4 bits with an offset: 12 to unpack and 8 to store 32 bytes of 4 rows, 4
// for scales. A register tile of 8 x 6 that unpacks by itself takes 16 for two groups, for every 6 tokens.

import { KernelBuilder } from "../../ir/builder.ts";
import type { Kernel, Reg } from "../../ir/kernel.ts";
import { emitQuants, type Loaded } from "../matmul/emit-quants.ts";
import { emitScales } from "../matmul/emit-scales.ts";
import { CACHE_LINE } from "../matmul/prefetch.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  groupsPerPanel,
  hasSmallScales,
  headerBytes,
  isSecond,
  PANEL_ROWS,
  quantsAt,
  quantsBytes,
  runAt,
  runBlocks,
  runBytes,
  scalesAt,
  spanBytes,
} from "./packed.ts";
import { quantOrder } from "./quant-fields.ts";
import { SignedQuants } from "./signed-quants.ts";

/** Quant vectors of a group's block. */
const VECTORS = BLOCK_COLS / 4;
/** The distance in bytes by which packed weights are prefetched. */
const AHEAD = 2048;

/** The layout of an unpacked panel. */
export function unpackedLayout(layout: BlockLayout): BlockLayout {
  const scales = hasSmallScales(layout) ? layout.scales : "floats";
  return { ...layout, bits: 8, offset: 0, lookup: false, scales, paired: false };
}

/** Bytes of an unpacked panel of `cols` columns, at most: a byte for each column, and for 32 of them a scale and a min. */
export function mostUnpackedBytes(cols: number): number {
  return PANEL_ROWS * (cols + (cols / BLOCK_COLS) * 8);
}

/** (w, out, spans, codebook): unpacks the panel at w; `codebook` as of blockMatmulKernel in dot4.ts. */
export function unpackPanelKernel(name: string, layout: BlockLayout): Kernel {
  return new PanelUnpacker(name, layout).build();
}

class PanelUnpacker {
  readonly #k: KernelBuilder;
  readonly #from: BlockLayout;
  readonly #to: BlockLayout;

  constructor(name: string, layout: BlockLayout) {
    this.#k = new KernelBuilder(name, layout.width);
    this.#from = layout;
    this.#to = unpackedLayout(layout);
  }

  build(): Kernel {
    const k = this.#k;
    const w = k.param("ptr", "w");
    const out = k.param("ptr", "out");
    const spans = k.param("i32", "spans");
    const codebook = k.param("ptr", "codebook");
    const quants = this.#isShifted ? undefined : new SignedQuants(k, this.#from, codebook);
    const runs = this.#from.spanBlocks / runBlocks(this.#from);
    k.loop(spans, () => {
      this.#askAhead(w);
      this.#copyHeaders(w, out);
      k.advance(w, runAt(this.#from, 0));
      k.advance(out, runAt(this.#to, 0));
      const run = () => {
        this.#run(w, out, quants);
        k.advance(w, runBytes(this.#from));
        k.advance(out, runBytes(this.#to));
      };
      if (runs === 1) run();
      else k.loop(k.i32(runs), run);
    });
    return k.finish();
  }

  /**
   * Nibbles with an offset of 8 become bytes that are 16 times too large, and their scales are 16 times smaller. Both are
   * exact: the product of two half floats, which all scales here are, is never subnormal.
   */
  get #isShifted(): boolean {
    const { bits, offset, lookup } = this.#from;
    return bits === 4 && offset === 8 && !lookup && !hasSmallScales(this.#from);
  }

  /** Prefetches packed weights: those of the next row panel at the end of this one. */
  #askAhead(w: Reg<"ptr">): void {
    for (let line = 0; line < spanBytes(this.#from); line += CACHE_LINE) {
      this.#k.op("ptr.prefetch", [w], line + AHEAD);
    }
  }

  #copyHeaders(w: Reg<"ptr">, out: Reg<"ptr">): void {
    const k = this.#k;
    for (let at = 0; at < groupsPerPanel(this.#from) * headerBytes(this.#from); at += k.width) {
      k.op("f32v.store", [out, k.op("f32v.load", [w], at)], at);
    }
  }

  #run(w: Reg<"ptr">, out: Reg<"ptr">, quants: SignedQuants | undefined): void {
    for (let group = 0; group < groupsPerPanel(this.#from); group++) {
      this.#scales(w, out, group);
      for (let block = 0; block < runBlocks(this.#from); block++) {
        const at = quantsAt(this.#from, block) + group * quantsBytes(this.#from);
        const to = quantsAt(this.#to, block) + group * quantsBytes(this.#to);
        if (quants) this.#quants(w, at, out, to, quants);
        else if (!this.#from.paired) this.#shiftedQuants(w, at, out, to);
        else if (!isSecond(this.#from, group)) this.#pairedQuants(w, at, out, to);
      }
    }
  }

  #scales(w: Reg<"ptr">, out: Reg<"ptr">, group: number): void {
    const k = this.#k;
    const to = scalesAt(this.#to, group);
    const from = [w, scalesAt(this.#from, group)] as const;
    if (hasSmallScales(this.#from)) {
      k.op("i32v.store", [out, k.op("i32v.load", [from[0]], from[1])], to);
      return;
    }
    const { scale, min } = emitScales(k, this.#from, from, 0);
    const stored = this.#isShifted
      ? k.op("f32v.mul", [scale, k.op("f32v.const", [], 1 / 16)])
      : scale;
    k.op("f32v.store", [out, stored], to);
    if (min) k.op("f32v.store", [out, min], to + k.width);
  }

  #quants(w: Reg<"ptr">, at: number, out: Reg<"ptr">, to: number, quants: SignedQuants): void {
    const k = this.#k;
    const { bits } = this.#from;
    const last: Loaded = { vector: -1 };
    for (const v of quantOrder(bits, 0, VECTORS)) {
      const value = quants.value(emitQuants(k, bits, w, at, v, last));
      k.op("i8v.store", [out, value], to + k.width * v);
    }
  }

  #shiftedQuants(w: Reg<"ptr">, at: number, out: Reg<"ptr">, to: number): void {
    const k = this.#k;
    const offsets = k.op("i8v.splat", [], 0x88);
    const high = k.op("i8v.splat", [], 0xf0);
    for (let vector = 0; vector < VECTORS / 2; vector++) {
      const both = k.op("i8v.xor", [k.op("i8v.load", [w], at + k.width * vector), offsets]);
      k.op("i8v.store", [out, k.op("i8v.shl", [both], 4)], to + k.width * vector);
      const upper = to + k.width * (vector + VECTORS / 2);
      k.op("i8v.store", [out, k.op("i8v.and", [both, high])], upper);
    }
  }

  /** The same for two groups that share bytes: the second one's quants are less the offset already. */
  #pairedQuants(w: Reg<"ptr">, at: number, out: Reg<"ptr">, to: number): void {
    const k = this.#k;
    const offsets = k.op("i8v.splat", [], 0x08);
    const high = k.op("i8v.splat", [], 0xf0);
    for (let v = 0; v < VECTORS; v++) {
      const both = k.op("i8v.load", [w], at + k.width * v);
      const first = k.op("i8v.shl", [k.op("i8v.xor", [both, offsets])], 4);
      k.op("i8v.store", [out, first], to + k.width * v);
      const second = to + quantsBytes(this.#to) + k.width * v;
      k.op("i8v.store", [out, k.op("i8v.and", [both, high])], second);
    }
  }
}
