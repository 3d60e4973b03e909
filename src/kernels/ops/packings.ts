// The table of packings: how the blocks of each dtype become the codes and scales of packed.ts. One entry a type; a type
// without one is computed by the generic path (unpack a row, multiply floats).
//
// An entry reads one span of one row: it fills `codes` with words of four codes (nibbles: 4 words a block, low nibbles
// the first 16 columns, high nibbles the last; bytes: 8 words a block), and the scales.

import { f16ToF32 } from "../../base/half.ts";
import { iq2xxsGrid, paritySigns } from "../../dtypes/codebooks.ts";
import { levelValues } from "../../dtypes/nonlinear-levels.ts";
import type { Dot4 } from "../ir/meanings.ts";
import type { BlockLayout } from "./packed.ts";

/** One span of one row, unpacked: the largest is 8 blocks of bytes. */
export interface Span {
  readonly codes: Uint32Array;
  /** Layouts with f32 scales: [block][part]. */
  readonly scales: Float32Array;
  readonly mins: Float32Array;
  /** Layouts with byte scales: [block][part], and the header they are multiplied by. */
  readonly scaleBytes: Int8Array;
  readonly minBytes: Int8Array;
  readonly header: Float32Array;
}

export function newSpan(): Span {
  return {
    codes: new Uint32Array(64),
    scales: new Float32Array(16),
    mins: new Float32Array(16),
    scaleBytes: new Int8Array(16),
    minBytes: new Int8Array(16),
    header: new Float32Array(2),
  };
}

export interface Packing {
  layout(dot4: Dot4): BlockLayout;
  /** The table of a layout with a lookup: 16 bytes. */
  levels?(dot4: Dot4): Int8Array;
  /** Blocks of activations that share a scale beside this type. */
  readonly activationSpan: 1 | 8;
  /** Bytes of one span of a row in the file. */
  readonly spanBytes: number;
  read(view: DataView, at: number, span: Span, dot4: Dot4): void;
}

const base: BlockLayout = {
  codes: "nibbles",
  offset: 0,
  hasMin: false,
  scales: "f32",
  scaleCols: 32,
  spanBlocks: 1,
  lookup: false,
  widened: false,
};

const nibbles = 0x0f0f0f0f;

/** Signed bytes as the target takes them: as they are, or 128 higher. */
function signedLayout(codes: BlockLayout["codes"], dot4: Dot4): BlockLayout {
  const unsigned = dot4 === "unsigned";
  return { ...base, codes, offset: unsigned ? 128 : 0, widened: dot4 === "i7" };
}

function half(view: DataView, at: number): number {
  return f16ToF32[view.getUint16(at, true)]!;
}

/** Four bits (columns 4v..4v+3 of a 32-bit mask) as bit 4 of four bytes. */
const spreadBit4 = Uint32Array.from({ length: 16 }, (_, bits) => {
  return ((bits & 1) << 4) | ((bits & 2) << 11) | ((bits & 4) << 18) | ((bits & 8) << 25);
});

/** Q5_0 and Q5_1: nibbles at `at`, fifth bits in `high`. */
function readFiveBits(view: DataView, at: number, high: number, codes: Uint32Array): void {
  for (let v = 0; v < 4; v++) {
    const word = view.getUint32(at + 4 * v, true);
    codes[v] = (word & nibbles) | spreadBit4[(high >>> (4 * v)) & 15]!;
    codes[v + 4] = ((word >>> 4) & nibbles) | spreadBit4[(high >>> (16 + 4 * v)) & 15]!;
  }
}

/** The 6-bit scales and minimums of Q4_K and Q5_K: 12 bytes at `at`. */
function readPackedScales(view: DataView, at: number, { scaleBytes, minBytes }: Span): void {
  for (let j = 0; j < 4; j++) {
    const [low, mid, top] = [
      view.getUint8(at + j),
      view.getUint8(at + 4 + j),
      view.getUint8(at + 8 + j),
    ];
    scaleBytes[j] = low & 63;
    minBytes[j] = mid & 63;
    scaleBytes[j + 4] = (top & 15) | ((low >> 6) << 4);
    minBytes[j + 4] = (top >> 4) | ((mid >> 6) << 4);
  }
}

const packings: Readonly<Record<string, Packing>> = {
  q4_0: {
    layout: () => ({ ...base, offset: 8 }),
    activationSpan: 1,
    spanBytes: 18,
    read(view, at, span) {
      span.scales[0] = half(view, at);
      for (let v = 0; v < 4; v++) span.codes[v] = view.getUint32(at + 2 + 4 * v, true);
    },
  },
  q4_1: {
    layout: () => ({ ...base, hasMin: true }),
    activationSpan: 1,
    spanBytes: 20,
    read(view, at, span) {
      span.scales[0] = half(view, at);
      span.mins[0] = half(view, at + 2);
      for (let v = 0; v < 4; v++) span.codes[v] = view.getUint32(at + 4 + 4 * v, true);
    },
  },
  q5_0: {
    layout: () => ({ ...base, codes: "bytes", offset: 16 }),
    activationSpan: 1,
    spanBytes: 22,
    read(view, at, span) {
      span.scales[0] = half(view, at);
      readFiveBits(view, at + 6, view.getUint32(at + 2, true), span.codes);
    },
  },
  q5_1: {
    layout: () => ({ ...base, codes: "bytes", hasMin: true }),
    activationSpan: 1,
    spanBytes: 24,
    read(view, at, span) {
      span.scales[0] = half(view, at);
      span.mins[0] = half(view, at + 2);
      readFiveBits(view, at + 8, view.getUint32(at + 4, true), span.codes);
    },
  },
  q8_0: {
    layout: (dot4) => signedLayout("bytes", dot4),
    activationSpan: 1,
    spanBytes: 34,
    read(view, at, span, dot4) {
      span.scales[0] = half(view, at);
      const flip = dot4 === "unsigned" ? 0x80808080 : 0;
      for (let v = 0; v < 8; v++) span.codes[v] = view.getUint32(at + 2 + 4 * v, true) ^ flip;
    },
  },
  iq4_nl: {
    layout: (dot4) => ({ ...signedLayout("nibbles", dot4), lookup: true }),
    levels: (dot4) =>
      Int8Array.from(levelValues, (level) => level + (dot4 === "unsigned" ? 128 : 0)),
    activationSpan: 1,
    spanBytes: 18,
    read(view, at, span) {
      span.scales[0] = half(view, at);
      for (let v = 0; v < 4; v++) span.codes[v] = view.getUint32(at + 2 + 4 * v, true);
    },
  },
  q4_k: {
    layout: () => ({ ...base, hasMin: true, scales: "bytes", spanBlocks: 8 }),
    activationSpan: 8,
    spanBytes: 144,
    read(view, at, span) {
      span.header[0] = half(view, at);
      span.header[1] = -half(view, at + 2);
      readPackedScales(view, at + 4, span);
      // 32 bytes hold two blocks: the low nibbles one, the high nibbles the next.
      for (let pair = 0; pair < 4; pair++) {
        for (let v = 0; v < 4; v++) {
          const first = view.getUint32(at + 16 + 32 * pair + 4 * v, true);
          const second = view.getUint32(at + 32 + 32 * pair + 4 * v, true);
          span.codes[8 * pair + v] = (first & nibbles) | ((second & nibbles) << 4);
          span.codes[8 * pair + 4 + v] = ((first >>> 4) & nibbles) | (second & ~nibbles);
        }
      }
    },
  },
  q5_k: {
    layout: () => ({ ...base, codes: "bytes", hasMin: true, scales: "bytes", spanBlocks: 8 }),
    activationSpan: 8,
    spanBytes: 176,
    read(view, at, span) {
      span.header[0] = half(view, at);
      span.header[1] = -half(view, at + 2);
      readPackedScales(view, at + 4, span);
      for (let block = 0; block < 8; block++) {
        const low = at + 48 + 32 * (block >> 1);
        for (let v = 0; v < 8; v++) {
          const word = view.getUint32(low + 4 * v, true) >>> (4 * (block & 1));
          const bits = (view.getUint32(at + 16 + 4 * v, true) >>> block) & 0x01010101;
          span.codes[8 * block + v] = (word & nibbles) | (bits << 4);
        }
      }
    },
  },
  q6_k: {
    layout: () => ({
      ...base,
      codes: "bytes",
      offset: 32,
      scales: "bytes",
      scaleCols: 16,
      spanBlocks: 8,
    }),
    activationSpan: 8,
    spanBytes: 210,
    read(view, at, span) {
      span.header[0] = half(view, at + 208);
      for (let i = 0; i < 16; i++) span.scaleBytes[i] = view.getInt8(at + 192 + i);
      // Each half of the span: 64 bytes of low bits, 32 bytes of high bits, four blocks.
      for (let block = 0; block < 8; block++) {
        const [side, quarter] = [block >> 2, block & 3];
        const low = at + 64 * side + 32 * (quarter & 1);
        const high = at + 128 + 32 * side;
        for (let v = 0; v < 8; v++) {
          const word = view.getUint32(low + 4 * v, true) >>> (4 * (quarter >> 1));
          const bits = (view.getUint32(high + 4 * v, true) >>> (2 * quarter)) & 0x03030303;
          span.codes[8 * block + v] = (word & nibbles) | (bits << 4);
        }
      }
    },
  },
  // Points and signs become bytes: four times the file's size, and some thirty times the speed of unpacking every row.
  iq2_xxs: {
    layout: (dot4) => ({ ...signedLayout("bytes", dot4), spanBlocks: 8 }),
    activationSpan: 8,
    spanBytes: 66,
    read(view, at, span, dot4) {
      const d = half(view, at);
      const grid = iq2xxsGrid();
      const raise = dot4 === "unsigned" ? 128 : 0;
      for (let block = 0; block < 8; block++) {
        const group = at + 2 + 8 * block;
        const tail = view.getUint32(group + 4, true);
        span.scales[block] = d * (0.5 + (tail >>> 28)) * 0.25;
        for (let v = 0; v < 8; v++) {
          const point = view.getUint8(group + (v >> 1)) * 8 + 4 * (v & 1);
          const signs = ((tail >>> (7 * (v >> 1))) & 127) * 8 + 4 * (v & 1);
          let word = 0;
          for (let i = 0; i < 4; i++) {
            word |= ((grid[point + i]! * paritySigns[signs + i]! + raise) & 0xff) << (8 * i);
          }
          span.codes[8 * block + v] = word;
        }
      }
    },
  },
};

export function packingOf(dtypeName: string): Packing | undefined {
  return packings[dtypeName];
}

export function packedTypes(): string[] {
  return Object.keys(packings);
}
