// The layouts of the two matrices of a feed-forward network that need not be read as a whole where most of its neurons are zero
// (docs/inside/sparse.md), for types with a half-float scale for 32 columns. A neuron is a row of `up` and a column of `down`.
//
// Neuron rows (`up`): one row after the other, so that rows can be left out. Lanes of a vector are blocks: a slab is as many
// blocks as a vector has 32-bit lanes, and a row is
//   slab -> { half-float scale of each block; `bits` vectors of quants }
// Vector v of a slab has, in lane l, four bytes of block l: columns 4v..4v+3, and in the high nibbles of 4 bits columns
// 16+4v..16+4v+3. Blocks beyond the last are zeros, which add nothing.
//
// Neuron columns (`down`): lanes are rows of results, so that columns can be left out. A tile is as many rows as a vector has
// quants. The matrix is
//   block of 32 columns -> { tile -> half-float scale of each row; column -> tile -> a vector of quants }
// All quants of a column lie side by side. Four columns are interleaved byte by byte as they are read, which makes four vectors
// of bytes 0..3, 4..7, 8..11 and 12..15 of each 16-byte group. Bytes are in such an order that lane l of vector a is row
// a * lanes + l of the tile; with 4 bits, the high nibbles are vectors 4 to 7. These are the vectors of row panels (packed.ts), so
// that panels for a batch are made without a shuffle (neuron-panels.ts). Paired (nibbles on arm64): the interleaved vector a has
// vector 2a of the rows in its low nibbles and vector 2a+1, less 8, in its high ones, as paired groups of row panels have.

import { BLOCK_COLS, type BlockLayout } from "../packed/packed.ts";
import {
  type LayoutTarget,
  layoutFor,
  newSpan,
  type Packing,
  type Span,
} from "../packed/packing.ts";

export interface NeuronLayout {
  readonly bits: 4 | 8;
  /** Subtracted from every quant, by way of the sum of the activations. */
  readonly offset: number;
  /** Quants are out of range for this target's dot4. */
  readonly widened: boolean;
  /** Bytes of a vector. */
  readonly width: number;
  /** The second operand of dot4 may be any unsigned byte. */
  readonly unsigned: boolean;
  /** Integer sums start as floats (float-sums.ts): on arm64. */
  readonly floatSums: boolean;
  /** Neuron columns: bytes are signed, 16 times a quant less 8 plus another one, so that the sums of both need one mask. */
  readonly paired: boolean;
}

/** undefined: the type has no such layout. */
export function neuronLayoutFor(packing: Packing, target: LayoutTarget): NeuronLayout | undefined {
  const layout: BlockLayout = layoutFor(packing, target);
  const { bits, offset, widened, width, scales } = layout;
  const isPlain = !layout.lookup && !layout.hasMin && layout.spanBlocks === 1;
  const hasHalves = scales === "halves" || scales === "plain_halves";
  if (!isPlain || !hasHalves || (bits !== 4 && bits !== 8)) return undefined;
  const floatSums = width === 16 && target.halves === "hardware";
  const paired = floatSums && bits === 4 && offset === 8;
  return { bits, offset, widened, width, unsigned: target.dot4 === "unsigned", floatSums, paired };
}

export function lanesOf({ width }: NeuronLayout): number {
  return width / 4;
}

/** Slabs of a row of `cols` columns. */
export function slabsOf(layout: NeuronLayout, cols: number): number {
  return Math.ceil(cols / BLOCK_COLS / lanesOf(layout));
}

export function slabBytes(layout: NeuronLayout): number {
  return 2 * lanesOf(layout) + layout.bits * layout.width;
}

export function neuronRowBytes(layout: NeuronLayout, cols: number): number {
  return slabsOf(layout, cols) * slabBytes(layout);
}

/** Rows of a tile. */
export function tileRows({ bits, width }: NeuronLayout): number {
  return (8 / bits) * width;
}

/** Bytes of the quants of a column of n rows. */
export function columnBytes({ bits }: NeuronLayout, n: number): number {
  return (n * bits) / 8;
}

/** Bytes of a block of 32 columns. */
export function columnBlockBytes(layout: NeuronLayout, n: number): number {
  return 2 * n + BLOCK_COLS * columnBytes(layout, n);
}

/** Memory that rows are packed into. */
export interface NeuronMemory {
  readonly halves: Uint16Array;
  readonly words: Uint32Array;
}

const span: Span = newSpan();

/** Packs rows, which `source` has one after the other, as neuron rows from byte `at` on. */
export function packNeuronRows(
  packing: Packing,
  target: LayoutTarget,
  source: DataView,
  rows: number,
  cols: number,
  { halves, words }: NeuronMemory,
  at: number,
): void {
  const layout = neuronLayoutFor(packing, target)!;
  const lanes = lanesOf(layout);
  const blocks = cols / BLOCK_COLS;
  const rowBytes = neuronRowBytes(layout, cols);
  words.fill(0, at / 4, (at + rows * rowBytes) / 4);
  for (let row = 0; row < rows; row++) {
    for (let block = 0; block < blocks; block++) {
      packing.read(source, (row * blocks + block) * packing.spanBytes, span, target.dot4);
      const lane = block % lanes;
      const slab = at + row * rowBytes + ((block - lane) / lanes) * slabBytes(layout);
      halves[slab / 2 + lane] = span.halves[0]!;
      const first = (slab + 2 * lanes) / 4 + lane;
      for (let v = 0; v < layout.bits; v++) {
        const high = layout.bits === 4 ? span.quants[v + 4]! << 4 : 0;
        words[first + v * lanes] = span.quants[v]! | high;
      }
    }
  }
}

/** Takes 8 of the quants in the high nibbles of a word. */
const HIGH_LESS_8 = 0x80808080 | 0;

/** The quants of a tile's rows of a block, row by row. */
const MOST_TILE_ROWS = 128;
const rowQuants = new Uint8Array(MOST_TILE_ROWS * BLOCK_COLS);
const rowWords = new Uint32Array(rowQuants.buffer);

/** Packs the rows of a tile, of `n`, into neuron columns. The matrix begins at byte `at`. */
export function packNeuronColumns(
  packing: Packing,
  target: LayoutTarget,
  source: DataView,
  tile: number,
  n: number,
  cols: number,
  { halves, words }: NeuronMemory,
  at: number,
): void {
  const layout = neuronLayoutFor(packing, target)!;
  const lanes = lanesOf(layout);
  const inTile = tileRows(layout);
  const blocks = cols / BLOCK_COLS;
  const stride = columnBytes(layout, n) / 4;
  for (let block = 0; block < blocks; block++) {
    const start = at + block * columnBlockBytes(layout, n);
    for (let row = 0; row < inTile; row++) {
      packing.read(source, (row * blocks + block) * packing.spanBytes, span, target.dot4);
      halves[start / 2 + tile * inTile + row] = span.halves[0]!;
      for (let v = 0; v < 8; v++) rowWords[8 * row + v] = span.quants[v]!;
    }
    let to = (start + 2 * n + tile * layout.width) / 4;
    for (let column = 0; column < BLOCK_COLS; column++, to += stride) {
      for (let word = 0; word < lanes; word++) {
        const row = layout.paired ? 8 * word : (word & 3) * lanes + (word & ~3);
        const low = fourRows(row, column);
        const high = fourRows(row + (layout.paired ? 4 : 4 * lanes), column) << 4;
        const both = layout.bits === 4 ? low | high : low;
        words[to + word] = layout.paired ? both ^ HIGH_LESS_8 : both;
      }
    }
  }
}

/** The quants of a column of rows row..row+3. */
function fourRows(row: number, column: number): number {
  let word = 0;
  for (let i = 3; i >= 0; i--) word = (word << 8) | rowQuants[(row + i) * BLOCK_COLS + column]!;
  return word;
}
