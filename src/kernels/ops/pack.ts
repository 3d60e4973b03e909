// Puts rows of a weight matrix, as they are in the file, into tiles (packed.ts). Runs once, while a model is loaded;
// rows that fill up the last tile are zeros.

import type { Dot4 } from "../ir/meanings.ts";
import { writeCodes } from "./pack-codes.ts";
import {
  BLOCK_COLS,
  type BlockLayout,
  codesBytes,
  GROUP_ROWS,
  GROUPS_PER_TILE,
  groupSpanBytes,
  headerBytes,
  runBlocks,
  runBytes,
  scaleByte,
  scaleParts,
  scalesBytes,
  TILE_ROWS,
} from "./packed.ts";
import { newSpan, type Packing, type Span } from "./packing.ts";

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
  const places = placesOf(layout);
  const write = writeCodes[layout.bits];
  const spans = cols / (BLOCK_COLS * layout.spanBlocks);
  const rowBytes = spans * packing.spanBytes;
  const groupWords = groupSpanBytes(layout) / 4;
  const start = target / 4;
  if (rows < TILE_ROWS) {
    memory.words.fill(0, start, start + spans * GROUPS_PER_TILE * groupWords);
  }
  // Four rows side by side, as they lie in memory: what is written stays in the nearest cache until it is complete.
  for (let first = 0; first < rows; first += GROUP_ROWS) {
    const lanes = Math.min(GROUP_ROWS, rows - first);
    let at = start + (first / GROUP_ROWS) * groupWords;
    for (let s = 0; s < spans; s++) {
      for (let lane = 0; lane < lanes; lane++) {
        const from = (first + lane) * rowBytes + s * packing.spanBytes;
        packing.read(source, from, scratch, dot4);
        if (layout.scales === "f32") writeFloatScales(layout, scratch, memory.floats, at + lane);
        else writeSmallScales(layout, places, scratch, memory, at, lane);
        for (let block = 0; block < places.codes.length; block++) {
          write(scratch.codes, 8 * block, memory.words, at + lane + places.codes[block]!);
        }
      }
      at += GROUPS_PER_TILE * groupWords;
    }
  }
}

/** Where the parts of a group's span are: what writing needs of a layout, computed once a tile. */
interface Places {
  /** Of each block: the word where its codes begin. */
  readonly codes: Int32Array;
  /** Of each scale, [block][part]: its byte. */
  readonly scales: Int32Array;
}

function placesOf(layout: BlockLayout): Places {
  const [inRun, parts] = [runBlocks(layout), scaleParts(layout)];
  const runStart = (block: number) =>
    headerBytes(layout) + Math.floor(block / inRun) * runBytes(layout);
  const codes = Array.from({ length: layout.spanBlocks }, (_, block) => {
    return (runStart(block) + scalesBytes(layout) + (block % inRun) * codesBytes(layout)) / 4;
  });
  const scales = Array.from({ length: layout.spanBlocks * parts }, (_, i) => {
    const block = Math.floor(i / parts);
    return runStart(block) + scaleByte(layout, block % inRun, i % parts);
  });
  return { codes: Int32Array.from(codes), scales: Int32Array.from(scales) };
}

function writeFloatScales(
  { hasMin }: BlockLayout,
  { scales, mins }: Span,
  floats: Float32Array,
  at: number,
): void {
  floats[at] = scales[0]!;
  if (hasMin) floats[at + 4] = mins[0]!;
}

function writeSmallScales(
  { hasMin, scales }: BlockLayout,
  places: Places,
  { header, smallScales, smallMins }: Span,
  { floats, bytes }: TileMemory,
  at: number,
  lane: number,
): void {
  floats[at + lane] = header[0]!;
  if (hasMin) floats[at + 4 + lane] = header[1]!;
  const first = 4 * (at + lane);
  for (let i = 0; i < places.scales.length; i++) {
    const place = first + places.scales[i]!;
    const scale = smallScales[i]!;
    if (scales === "nibbles") bytes[place] = scale | (smallMins[i]! << 4);
    else {
      bytes[place] = scale;
      if (hasMin) bytes[place + 1] = smallMins[i]!;
    }
  }
}
