// Puts rows of a weight matrix, as they are in the file, into tiles (packed.ts). Runs once, while a model is loaded;
// rows that fill up the last tile are zeros.

import type { Dot4 } from "../ir/meanings.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  blockBytes,
  GROUP_ROWS,
  GROUPS_PER_TILE,
  groupSpanBytes,
  headerBytes,
  scalesBytes,
  TILE_ROWS,
} from "./packed.ts";
import { newSpan, type Packing, type Span } from "./packings.ts";

/** The memory that tiles are written to, seen three ways. */
export interface TileMemory {
  readonly bytes: Int8Array;
  readonly words: Uint32Array;
  readonly floats: Float32Array;
}

const scratch: Span = newSpan();

/** Packs up to 16 rows into the tile at byte address `target`. `source` holds the rows behind each other. */
export function packTile(
  packing: Packing,
  dot4: Dot4,
  source: DataView,
  rows: number,
  cols: number,
  memory: TileMemory,
  target: number,
): void {
  const layout = packing.layout(dot4);
  const sizes = sizesOf(layout);
  const spans = cols / (BLOCK_COLS * layout.spanBlocks);
  const rowBytes = spans * packing.spanBytes;
  const groupWords = groupSpanBytes(layout) / 4;
  const start = target / 4;
  if (rows < TILE_ROWS) {
    memory.words.fill(0, start, start + spans * GROUPS_PER_TILE * groupWords);
  }
  const write = layout.scales === "f32" ? writeFloatScales : writeByteScales;
  // Four rows side by side, as they lie in memory: what is written stays in the nearest cache until it is complete.
  for (let first = 0; first < rows; first += GROUP_ROWS) {
    const lanes = Math.min(GROUP_ROWS, rows - first);
    let at = start + (first / GROUP_ROWS) * groupWords;
    for (let s = 0; s < spans; s++) {
      for (let lane = 0; lane < lanes; lane++) {
        const from = (first + lane) * rowBytes + s * packing.spanBytes;
        packing.read(source, from, scratch, dot4);
        write(sizes, scratch, memory, at, lane);
        writeCodes(sizes, scratch.codes, memory.words, at, lane);
      }
      at += GROUPS_PER_TILE * groupWords;
    }
  }
}

/** What writing a span needs of its layout, computed once. Lengths are in words of four bytes. */
interface Sizes {
  readonly blocks: number;
  readonly header: number;
  readonly block: number;
  readonly scales: number;
  /** Words of codes in a block. */
  readonly words: number;
  /** Scales of a block. */
  readonly parts: number;
  readonly hasMin: boolean;
}

function sizesOf(layout: BlockLayout): Sizes {
  return {
    blocks: layout.spanBlocks,
    header: headerBytes(layout) / 4,
    block: blockBytes(layout) / 4,
    scales: scalesBytes(layout) / 4,
    words: layout.codes === "nibbles" ? 4 : 8,
    parts: BLOCK_COLS / layout.scaleCols,
    hasMin: layout.hasMin,
  };
}

/** One row's codes into its lane of a group's span at word `at`. */
function writeCodes(
  { blocks, header, block, scales, words }: Sizes,
  codes: Uint32Array,
  memory: Uint32Array,
  at: number,
  lane: number,
): void {
  let to = at + header + scales + lane;
  let from = 0;
  for (let b = 0; b < blocks; b++) {
    for (let v = 0; v < words; v++) memory[to + 4 * v] = codes[from + v]!;
    from += words;
    to += block;
  }
}

function writeFloatScales(
  { blocks, block, hasMin }: Sizes,
  span: Span,
  { floats }: TileMemory,
  at: number,
  lane: number,
): void {
  for (let b = 0; b < blocks; b++) {
    const to = at + b * block + lane;
    floats[to] = span.scales[b]!;
    if (hasMin) floats[to + 4] = span.mins[b]!;
  }
}

function writeByteScales(
  { blocks, header, block, parts, hasMin }: Sizes,
  span: Span,
  { floats, bytes }: TileMemory,
  at: number,
  lane: number,
): void {
  floats[at + lane] = span.header[0]!;
  if (hasMin) floats[at + 4 + lane] = span.header[1]!;
  for (let b = 0; b < blocks; b++) {
    const to = 4 * (at + header + b * block) + lane;
    for (let part = 0; part < parts; part++) {
      bytes[to + 4 * part] = span.scaleBytes[b * parts + part]!;
    }
    if (hasMin) bytes[to + 4 * parts] = span.minBytes[b]!;
  }
}
