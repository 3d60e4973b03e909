// A row of a weight matrix out of its tile (packed.ts), as floats: for the embedding table where it is also the output
// matrix, and lies in memory only once. The values are those that the dtype's own dequantize() gives.

import type { Dot4 } from "../ir/meanings.ts";
import type { TileMemory } from "./pack.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  blockBytes,
  GROUP_ROWS,
  GROUPS_PER_TILE,
  groupSpanBytes,
  headerBytes,
  scalesBytes,
} from "./packed.ts";
import type { Packing } from "./packings.ts";

/** Unpacks row `row` (0 to 15) of the tile at byte address `at` into target[to...]. */
export function unpackRow(
  packing: Packing,
  dot4: Dot4,
  memory: TileMemory,
  at: number,
  row: number,
  cols: number,
  target: Float32Array,
  to: number,
): void {
  const layout = packing.layout(dot4);
  const levels = packing.levels?.(dot4);
  const spanStride = GROUPS_PER_TILE * groupSpanBytes(layout);
  const group = at + Math.floor(row / GROUP_ROWS) * groupSpanBytes(layout);
  const lane = row % GROUP_ROWS;
  const blocks = cols / BLOCK_COLS;
  for (let b = 0; b < blocks; b++) {
    const span = group + Math.floor(b / layout.spanBlocks) * spanStride;
    const block = span + headerBytes(layout) + (b % layout.spanBlocks) * blockBytes(layout);
    unpackBlock(layout, levels, memory, span, block, lane, target, to + b * BLOCK_COLS);
  }
}

/** One lane of the block at byte address `block`, in the span at `span`. */
function unpackBlock(
  layout: BlockLayout,
  levels: Int8Array | undefined,
  memory: TileMemory,
  span: number,
  block: number,
  lane: number,
  target: Float32Array,
  to: number,
): void {
  const codes = (block + scalesBytes(layout)) / 4 + lane;
  const isNibbles = layout.codes === "nibbles";
  const min = layout.hasMin ? minimumOf(layout, memory, span, block, lane) : 0;
  for (let v = 0; v < BLOCK_COLS / 4; v++) {
    const word = memory.words[codes + 4 * (isNibbles ? v % 4 : v)]!;
    const shift = isNibbles && v >= 4 ? 4 : 0;
    const scale = scaleOf(layout, memory, span, block, lane, 4 * v);
    for (let i = 0; i < 4; i++) {
      const code = (word >>> (8 * i + shift)) & (isNibbles ? 0x0f : 0xff);
      const byte = levels ? levels[code]! : code;
      // Bytes are signed, except those that were raised by an offset.
      const level = layout.offset === 0 ? (byte << 24) >> 24 : (byte & 0xff) - layout.offset;
      const value = scale * level;
      target[to + 4 * v + i] = layout.hasMin ? value + min : value;
    }
  }
}

function scaleOf(
  layout: BlockLayout,
  memory: TileMemory,
  span: number,
  block: number,
  lane: number,
  col: number,
): number {
  if (layout.scales === "f32") return memory.floats[block / 4 + lane]!;
  const part = Math.floor(col / layout.scaleCols);
  return memory.floats[span / 4 + lane]! * memory.bytes[block + 4 * part + lane]!;
}

function minimumOf(
  layout: BlockLayout,
  memory: TileMemory,
  span: number,
  block: number,
  lane: number,
): number {
  if (layout.scales === "f32") return memory.floats[block / 4 + 4 + lane]!;
  const parts = BLOCK_COLS / layout.scaleCols;
  return memory.floats[span / 4 + 4 + lane]! * memory.bytes[block + 4 * parts + lane]!;
}
