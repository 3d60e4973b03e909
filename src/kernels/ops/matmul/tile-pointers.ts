// The pointers of the tiled matmul kernel (dot4.ts) into its weights: into one row panel, or into several that are computed
// alternately; and the displacements from them to the parts of a group (packed.ts). It loads nothing.
//
// A stream is one of the row panels that are walked; all streams are at the same position of their panels.

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
 * Runs of up to this many blocks are unrolled, longer ones are loops. Measured with one token: four blocks unrolled, for
 * all groups of all streams, are a quarter slower than a loop over them; a loop over two is a third slower than both
 * unrolled.
 */
const WRITTEN_OUT = 2;

/** Distance of a pointer before its span of coded half-float scales. At least the panel's factors lie there. */
const EARLY = 16;

/** A pointer and the displacement from it. */
export type Place = readonly [from: Reg<"ptr">, at: number];

export class TilePointers {
  /** The factors of the current row panel's rows, which are at its beginning; undefined if there are none. */
  factors: Reg<"ptr"> | undefined;
  /** Groups of a stream. */
  readonly inStream: number;
  readonly #k: KernelBuilder;
  readonly #layout: BlockLayout;
  /** Bytes from one stream to the next. */
  #apart: Reg<"i32"> | undefined;
  /** For part of a row panel: the distances of the parts of its first group from those of group 0. */
  #shifts: Record<"factors" | "header" | "scales" | "quants", Reg<"i32">> | undefined;
  /**
   * For each stream, pointers to the current run or header of its span; displacements lead to the parts. They are the same
   * pointer where possible: scales have their own where blocks are a loop (isApart), and a kernel that begins at any group
   * has one for each part.
   */
  readonly #quantsAt: Reg<"ptr">[] = [];
  readonly #scalesAt: Reg<"ptr">[] = [];
  readonly #headersAt: Reg<"ptr">[] = [];

  constructor(k: KernelBuilder, layout: BlockLayout, inStream: number) {
    this.#k = k;
    this.#layout = layout;
    this.inStream = inStream;
  }

  /** Runs are loops: their scales and their quants need pointers of their own. */
  get isApart(): boolean {
    return runBlocks(this.#layout) > WRITTEN_OUT;
  }

  /** Distance in bytes of pointers before their target, because vectors of coded half floats are loaded from there. */
  get early(): number {
    return this.factors ? EARLY : 0;
  }

  /** Makes this group the first: its parts are at displacement 0. */
  shiftTo(group: Reg<"i32">): void {
    const k = this.#k;
    const layout = this.#layout;
    const shift = (bytes: number) => k.op("i32.mul", [group, k.i32(bytes)]);
    this.#shifts = {
      factors: shift(factorsBytes(layout) / groupsPerPanel(layout)),
      header: shift(headerBytes(layout)),
      // scalesAt() for a group that is known only at run time.
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

  /** Makes the pointers of `streams` streams, the first at w. */
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

  /** Keeps the address of a row panel's factors, and moves w to its spans. */
  toTile(w: Reg<"ptr">): void {
    const k = this.#k;
    const at = this.factors;
    if (!at) return;
    k.set(at, this.#shifts ? k.op("ptr.add", [w, this.#shifts.factors]) : w);
    k.advance(w, factorsBytes(this.#layout) - EARLY);
  }

  /** Moves w from the end of this row panel's last span to the next panel. */
  endTile(w: Reg<"ptr">): void {
    if (this.early > 0) this.#k.advance(w, this.early);
  }

  /** Moves to the factors of the next stream's row panel. */
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

  /** Moves all pointers to runs; separate pointers to headers stay. */
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
