// Where the tiled matmul kernels are in their weights: the pointers into a tile, or into several of them in turns, and the
// displacements from these to the parts of a group (packed.ts). What is loaded there is the kernel's business
// (dot4.ts).
//
// A stream is a tile that is walked; all streams are at the same place of their tiles.

import type { KernelBuilder } from "../../ir/builder.ts";
import type { Reg } from "../../ir/kernel.ts";
import {
  type BlockLayout,
  factorsBytes,
  groupsPerPanel,
  headerBytes,
  quantsAt,
  quantsBytes,
  runAt,
  runBlocks,
  runBytes,
  scaleByte,
  scalesAt,
} from "../packed/packed.ts";

/**
 * Runs of two blocks are written out, longer ones are loops. Measured with one token: four blocks written out, for all
 * groups of all streams, run a quarter slower than a loop over them; a loop over two runs a third slower than both.
 */
const WRITTEN_OUT = 2;

/** How far in front of a span of coded half-float scales its pointer is. The factors of its tile are there, at the least. */
const EARLY = 16;

/** A pointer and the displacement from it. */
export type Place = readonly [from: Reg<"ptr">, at: number];

export class TilePointers {
  /** Where the tile begins that is computed, and with it the factors of its rows; undefined where there are none. */
  factors: Reg<"ptr"> | undefined;
  /** Groups of a stream. */
  readonly inStream: number;
  readonly #k: KernelBuilder;
  readonly #layout: BlockLayout;
  /** From one stream to the next. */
  #apart: Reg<"i32"> | undefined;
  /** Part of a tile: how far the parts of its first group are from those of group 0. */
  #shifts: Record<"factors" | "header" | "scales" | "quants", Reg<"i32">> | undefined;
  /**
   * Of each stream: pointers into its span, whose run or whose header begins there; displacements lead to the parts.
   * They are the same pointer as far as possible: scales have one of their own where blocks are a loop (isApart), and a
   * kernel that begins at any group has one for each part.
   */
  readonly #quantsAt: Reg<"ptr">[] = [];
  readonly #scalesAt: Reg<"ptr">[] = [];
  readonly #headersAt: Reg<"ptr">[] = [];

  constructor(k: KernelBuilder, layout: BlockLayout, inStream: number) {
    this.#k = k;
    this.#layout = layout;
    this.inStream = inStream;
  }

  /** Runs are so long that they are not written out: their scales and their quants need pointers of their own. */
  get isApart(): boolean {
    return runBlocks(this.#layout) > WRITTEN_OUT;
  }

  /** Pointers are so much before what they point to: vectors of coded half floats are loaded from there, too. */
  get early(): number {
    return this.factors ? EARLY : 0;
  }

  /** The parts are those of the groups from this one on. */
  shiftTo(group: Reg<"i32">): void {
    const k = this.#k;
    const layout = this.#layout;
    const shift = (bytes: number) => k.op("i32.mul", [group, k.i32(bytes)]);
    this.#shifts = {
      factors: shift(factorsBytes(layout) / groupsPerPanel(layout)),
      header: shift(headerBytes(layout)),
      // scalesAt() for a group that is not known yet.
      scales: k.op("i32.add", [
        shift(scalesAt(layout, 1)),
        k.op("i32.mul", [
          k.op("i32.shr_u", [group], 1),
          k.i32(scalesAt(layout, 2) - 2 * scalesAt(layout, 1)),
        ]),
      ]),
      quants: shift(quantsBytes(layout)),
    };
  }

  /** Makes the pointers of so many streams, the first at w. */
  begin(w: Reg<"ptr">, streams: number, apart: Reg<"i32"> | undefined): void {
    const k = this.#k;
    this.#apart = apart;
    if (factorsBytes(this.#layout) > 0) this.factors = k.variable(w, "factors");
    for (let s = 0; s < streams; s++) {
      const quants = k.variable(w, `quants${s}`);
      const isOwn = this.#shifts !== undefined;
      this.#quantsAt.push(quants);
      this.#scalesAt.push(isOwn || this.isApart ? k.variable(w, `scales${s}`) : quants);
      this.#headersAt.push(isOwn && this.#hasHeader ? k.variable(w, `header${s}`) : quants);
    }
  }

  get #hasHeader(): boolean {
    return headerBytes(this.#layout) > 0;
  }

  /** Notes where a tile's factors are, and moves w on to its spans. */
  toTile(w: Reg<"ptr">): void {
    const k = this.#k;
    const at = this.factors;
    if (!at) return;
    k.set(at, this.#shifts ? k.op("ptr.add", [w, this.#shifts.factors]) : w);
    k.advance(w, factorsBytes(this.#layout) - EARLY);
  }

  /** Moves w on to the next tile, from behind the last span of this one. */
  endTile(w: Reg<"ptr">): void {
    if (this.early > 0) this.#k.advance(w, this.early);
  }

  /** Moves on to the factors of the next stream's tile. */
  toNextFactors(): void {
    const at = this.factors;
    if (at) this.#k.update(at, "ptr.add", [at, this.#apart!]);
  }

  /** Sets the streams' pointers to a span. */
  toSpan(w: Reg<"ptr">): void {
    const k = this.#k;
    const shifts = this.#shifts;
    if (shifts) {
      k.set(this.#quantsAt[0]!, k.op("ptr.add", [w, shifts.quants]));
      k.set(this.#scalesAt[0]!, k.op("ptr.add", [w, shifts.scales]));
      if (this.#hasHeader) k.set(this.#headersAt[0]!, k.op("ptr.add", [w, shifts.header]));
      return;
    }
    this.#quantsAt.forEach((quants, s) => {
      k.set(quants, s === 0 ? w : k.op("ptr.add", [this.#quantsAt[s - 1]!, this.#apart!]));
      if (this.isApart) k.set(this.#scalesAt[s]!, quants);
    });
  }

  /** Moves all pointers to runs; those to headers, where they are others, stay. */
  advanceRuns(bytes: number): void {
    for (const at of new Set([...this.#quantsAt, ...this.#scalesAt])) this.#k.advance(at, bytes);
  }

  /** Runs `block` for each block of a run that is a loop, and moves on to the next run. */
  longRun(block: () => void): void {
    const k = this.#k;
    const layout = this.#layout;
    const inRun = runBlocks(layout);
    const quantStep = groupsPerPanel(layout) * quantsBytes(layout);
    const scaleStep = scaleByte(layout, 1, 0);
    k.loop(k.i32(inRun), () => {
      block();
      for (const quants of this.#quantsAt) k.advance(quants, quantStep);
      for (const scales of this.#scalesAt) k.advance(scales, scaleStep);
    });
    for (const quants of this.#quantsAt) k.advance(quants, runBytes(layout) - inRun * quantStep);
    for (const scales of this.#scalesAt) k.advance(scales, runBytes(layout) - inRun * scaleStep);
  }

  /** The quants of a group's block of the run. */
  quants(g: number, block: number): Place {
    const [from, inStream] = this.#place(this.#quantsAt, g);
    return [
      from,
      this.early + inStream * quantsBytes(this.#layout) + quantsAt(this.#layout, block),
    ];
  }

  /** A group's scales of the run; where it is a loop, those of the block. */
  scales(g: number): Place {
    const [from, inStream] = this.#place(this.#scalesAt, g);
    return [from, this.early + scalesAt(this.#layout, inStream)];
  }

  /** A group's scales of run number `run`, while the pointers are at the span. */
  scalesOfRun(g: number, run: number): Place {
    const [from, at] = this.scales(g);
    return [from, at + runAt(this.#layout, run)];
  }

  header(g: number): Place {
    const [from, inStream] = this.#place(this.#headersAt, g);
    return [from, inStream * headerBytes(this.#layout)];
  }

  /** A group's stream pointer, and which of its stream's groups it is. */
  #place(streams: readonly Reg<"ptr">[], g: number): [Reg<"ptr">, number] {
    return [streams[Math.floor(g / this.inStream)]!, g % this.inStream];
  }
}
