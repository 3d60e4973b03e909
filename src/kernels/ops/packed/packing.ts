// The interface of a packing: how the blocks of one dtype, as they are in the file, become the quants and scales of
// packed.ts; and helpers that packings share. The table of packings is packings.ts.
//
// A packing reads one span of one row into a Span: `quants` are words of four quants, a byte each, in the order of columns
// (8 words a block). pack.ts puts them into a panel.

import { f16ToF32 } from "../../../base/half.ts";
import type { Dot4 } from "../../ir/meanings.ts";
import type { KernelTarget } from "../../target.ts";
import { type BlockLayout, blockLayoutFor, type QuantLayout } from "./packed.ts";

/** One span of one row, unpacked: at most 8 blocks. */
export interface Span {
  /** [block][8] words of four quants. */
  readonly quants: Uint32Array;
  /** Layouts with f16 or bf16 scales: the block's scale and min, as bits. */
  readonly halves: Uint16Array;
  /** Layouts with small scales: [block][part], and the header (scale, min) that they are multiplied by. */
  readonly smallScales: Int8Array;
  readonly smallMins: Int8Array;
  readonly header: Float32Array;
}

export function newSpan(): Span {
  return {
    quants: new Uint32Array(64),
    halves: new Uint16Array(2),
    smallScales: new Int8Array(16),
    smallMins: new Int8Array(16),
    header: new Float32Array(2),
  };
}

export interface Packing {
  /** Its quants and scales; layoutFor() gives the whole layout. */
  layout(dot4: Dot4): QuantLayout;
  /** The codebook of a layout with a lookup: 16 bytes; see codebookFor(). */
  codebook?(dot4: Dot4): Int8Array;
  /** Blocks of activations that share a scale beside this type. */
  readonly activationSpan: 1 | 8;
  /** Bytes of one span of a row in the file. */
  readonly spanBytes: number;
  read(view: DataView, at: number, span: Span, dot4: Dot4): void;
}

/** Properties that a layout depends on. */
export type LayoutTarget = Pick<KernelTarget, "width" | "dot4" | "halves" | "i8mm">;

export function layoutFor(packing: Packing, target: LayoutTarget): BlockLayout {
  return blockLayoutFor(packing.layout(target.dot4), target);
}

/** The codebook as the kernels load it, a vector: the 16 bytes again in each of its 16-byte groups. */
export function codebookFor(packing: Packing, target: LayoutTarget): Int8Array | undefined {
  const codebook = packing.codebook?.(target.dot4);
  if (!codebook) return undefined;
  // The layout's offset may be higher than the type's own: the next power of 2.
  const raise = layoutFor(packing, target).offset - packing.layout(target.dot4).offset;
  return Int8Array.from({ length: target.width }, (_, i) => codebook[i % 16]! + raise);
}

/** Nibbles with one half-float scale for 32; the other layouts say where they differ. */
export const blockLayout: QuantLayout = {
  bits: 4,
  offset: 0,
  hasMin: false,
  scales: "halves",
  scaleCols: 32,
  spanBlocks: 1,
  lookup: false,
  widened: false,
};

/** Small scales for 8 blocks with one header. */
export const spanLayout: QuantLayout = { ...blockLayout, scales: "bytes", spanBlocks: 8 };

/** A layout whose quants or codebook values are any signed bytes: unchanged or 128 higher, as the target's dot4 needs. */
export function anySigned(layout: QuantLayout, dot4: Dot4): QuantLayout {
  return {
    ...layout,
    offset: dot4 === "unsigned" ? 128 : 0,
    widened: dot4 === "i7" || dot4 === "words",
  };
}

/** The number that is added to values before they are stored as such bytes. */
export function raised(dot4: Dot4): number {
  return dot4 === "unsigned" ? 128 : 0;
}

/** A codebook whose values are at most 127 apart, raised so that none is negative: exact with every kind of dot4. */
export function raisedCodebook(values: readonly number[]): { offset: number; codebook: Int8Array } {
  const offset = -Math.min(...values);
  const codebook = new Int8Array(16);
  values.forEach((value, i) => {
    codebook[i] = value + offset;
  });
  return { offset, codebook };
}

export function half(view: DataView, at: number): number {
  return f16ToF32(view.getUint16(at, true));
}

/** The low nibbles of four bytes. */
export const NIBBLES = 0x0f0f0f0f;

/** A block of 16 bytes: low nibbles are the first 16 columns, high nibbles the last. */
export function readNibbles(view: DataView, at: number, quants: Uint32Array, block: number): void {
  for (let v = 0; v < 4; v++) {
    const word = view.getUint32(at + 4 * v, true);
    quants[8 * block + v] = word & NIBBLES;
    quants[8 * block + 4 + v] = (word >>> 4) & NIBBLES;
  }
}
