// Puts rows of a weight matrix, as they are in the file, into tiles (packed.ts). Runs once, while a model is loaded;
// rows that fill up the last tile are zeros.

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
import { type Dot4, newSpan, type Packing, type Span } from "./packings.ts";

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
  const spans = cols / (BLOCK_COLS * layout.spanBlocks);
  const rowBytes = spans * packing.spanBytes;
  const spanStride = GROUPS_PER_TILE * groupSpanBytes(layout);
  if (rows < TILE_ROWS) memory.words.fill(0, target / 4, (target + spans * spanStride) / 4);
  for (let row = 0; row < rows; row++) {
    const group = target + Math.floor(row / GROUP_ROWS) * groupSpanBytes(layout);
    for (let s = 0; s < spans; s++) {
      packing.read(source, row * rowBytes + s * packing.spanBytes, scratch, dot4);
      writeSpan(layout, scratch, memory, group + s * spanStride, row % GROUP_ROWS);
    }
  }
}

/** One row's span into its lane of a group's span at byte address `at`. */
function writeSpan(
  layout: BlockLayout,
  span: Span,
  memory: TileMemory,
  at: number,
  lane: number,
): void {
  if (layout.scales === "bytes") {
    memory.floats[at / 4 + lane] = span.header[0]!;
    if (layout.hasMin) memory.floats[at / 4 + 4 + lane] = span.header[1]!;
  }
  const words = layout.codes === "nibbles" ? 4 : 8;
  for (let block = 0; block < layout.spanBlocks; block++) {
    const start = at + headerBytes(layout) + block * blockBytes(layout);
    writeScales(layout, span, memory, start, block, lane);
    const codes = (start + scalesBytes(layout)) / 4 + lane;
    for (let v = 0; v < words; v++) memory.words[codes + 4 * v] = span.codes[block * words + v]!;
  }
}

function writeScales(
  layout: BlockLayout,
  span: Span,
  memory: TileMemory,
  at: number,
  block: number,
  lane: number,
): void {
  const parts = BLOCK_COLS / layout.scaleCols;
  if (layout.scales === "f32") {
    memory.floats[at / 4 + lane] = span.scales[block]!;
    if (layout.hasMin) memory.floats[at / 4 + 4 + lane] = span.mins[block]!;
    return;
  }
  for (let part = 0; part < parts; part++) {
    memory.bytes[at + 4 * part + lane] = span.scaleBytes[block * parts + part]!;
  }
  if (layout.hasMin) memory.bytes[at + 4 * parts + lane] = span.minBytes[block]!;
}
