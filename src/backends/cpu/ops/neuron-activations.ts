// Prepares activations for matmuls that are computed neuron by neuron (neurons.ts): quantized to bytes as for any other matmul,
// and then put in the order that the kernels read. A few thousand numbers for a token, in TypeScript.
//
//   neuron_slabs  activations of neuron rows: lanes are blocks (kernels/ops/neurons/neuron-rows.ts)
//   neuron_list   activations of neuron columns: only those that are not zero (neuron-columns.ts), and where each range of
//                 blocks begins

import type { Rows } from "../../../graph/graph.ts";
import {
  COLUMN_ENTRY,
  COLUMN_HEADER,
  ENTRIES_AHEAD,
  HIGH_FACTOR,
} from "../../../kernels/ops/neurons/neuron-columns.ts";
import { X_SLAB_VECTORS } from "../../../kernels/ops/neurons/neuron-rows.ts";
import { RAISED_SCALE } from "../../../kernels/ops/packed/half-panels.ts";
import {
  ACTIVATION_FIELDS,
  ACTIVATION_QUANTS_AT,
  activationBlockBytes,
  BLOCK_COLS,
} from "../../../kernels/ops/packed/packed.ts";
import type { Halves } from "../../../kernels/target.ts";
import { type ExecutorContext, perRow } from "../executor.ts";
import { area, type InstructionDef } from "./op.ts";

interface NeuronActivations {
  readonly rows: Rows;
  readonly x: number;
  readonly cols: number;
  readonly out: number;
  /** Bytes of a token's. */
  readonly tokenBytes: number;
  /** The kernel that quantizes them. */
  readonly kernel: string;
  readonly halves: Halves;
  /** Of the weights' quants. */
  readonly offset: number;
  /** Quantized blocks of a token, for each thread. */
  readonly scratch: number;
  readonly scratchBytes: number;
}

export interface NeuronSlabs extends NeuronActivations {
  readonly op: "neuron_slabs";
  readonly lanes: number;
}

export interface NeuronList extends NeuronActivations {
  readonly op: "neuron_list";
  readonly place: ListPlace;
}

/** Where the parts of a token's list are, and where a block and a column are in the matrix. */
export interface ListPlace {
  readonly blocks: number;
  /** i32 [ranges + 1][2]: the number of the first header and of the first entry of each range of RANGE_BLOCKS blocks. */
  readonly ranges: number;
  readonly headersAt: number;
  readonly entriesAt: number;
  readonly bytes: number;
  readonly blockBytes: number;
  readonly firstColumn: number;
  readonly columnBytes: number;
}

/** Blocks whose columns should stay in the cache while all tokens of a batch read them. */
const RANGE_BLOCKS = 16;

const BLOCK_BYTES = activationBlockBytes(false, 16);
const BLOCK_WORDS = BLOCK_BYTES / 4;
const QUANTS_AT = ACTIVATION_QUANTS_AT / 4;
const HEADER_WORDS = COLUMN_HEADER.bytes / 4;
const ENTRY_WORDS = COLUMN_ENTRY.bytes / 4;

/** Bytes of the quantized blocks of a token. A store may write past the last. */
export function neuronScratchBytes(cols: number): number {
  return (cols / BLOCK_COLS) * BLOCK_BYTES + 64; // a multiple of 16
}

export function slabsBytes(cols: number, width: number): number {
  return Math.ceil(cols / BLOCK_COLS / (width / 4)) * X_SLAB_VECTORS * width;
}

/** The list of a token for a matrix with so many columns. */
export function listPlace(
  cols: number,
  matrix: Pick<ListPlace, "blockBytes" | "firstColumn" | "columnBytes">,
): ListPlace {
  const blocks = cols / BLOCK_COLS;
  const ranges = Math.ceil(blocks / RANGE_BLOCKS);
  const headersAt = Math.ceil(((ranges + 1) * 8) / 16) * 16;
  const entriesAt = Math.ceil((headersAt + (blocks + 1) * COLUMN_HEADER.bytes) / 16) * 16;
  const most = blocks * (BLOCK_COLS / COLUMN_ENTRY.columns) + ENTRIES_AHEAD;
  const bytes = Math.ceil((entriesAt + most * COLUMN_ENTRY.bytes) / 16) * 16;
  return { blocks, ranges, headersAt, entriesAt, bytes, ...matrix };
}

/** Quantizes the activations of a token; returns the address of its blocks. */
function quantizer(i: NeuronActivations, c: ExecutorContext): (row: number) => number {
  const quantize = c.kernels[i.kernel]!;
  const blocks = i.scratch + c.thread * i.scratchBytes;
  return (row) => {
    quantize(i.x + row * i.cols * 4, blocks, i.cols / BLOCK_COLS, BLOCK_BYTES);
    return blocks;
  };
}

/** What the fields of a block are multiplied by: scales may be raised, sums stored negated (packed.ts). */
function unitsOf({ halves, offset }: NeuronActivations): { scale: number; start: number } {
  return halves === "coded"
    ? { scale: 1 / RAISED_SCALE, start: -offset }
    : { scale: 1, start: offset };
}

function access<I extends NeuronActivations & { op: string }>(): InstructionDef<I>["access"] {
  return {
    stage: "row by row",
    of: ({ rows, x, cols }) => ({ rows, reads: [area(x, cols * 4)], writes: [] }),
  };
}

export const neuronSlabs: InstructionDef<NeuronSlabs> = {
  access: access(),
  kernels: ({ kernel }) => [kernel],
  code: "target",

  execute(i, c) {
    const { i32, f32 } = c.views;
    const quantized = quantizer(i, c);
    const unit = unitsOf(i);
    const blocks = i.cols / BLOCK_COLS;
    return perRow(c, i.rows, (row) => {
      const from = quantized(row) / 4;
      const to = (i.out + row * i.tokenBytes) / 4;
      i32.fill(0, to, to + i.tokenBytes / 4);
      for (let block = 0; block < blocks; block++) {
        const lane = block % i.lanes;
        const source = from + block * BLOCK_WORDS;
        const target = to + X_SLAB_VECTORS * (block - lane) + lane;
        f32[target] = f32[source + ACTIVATION_FIELDS.scale]! * unit.scale;
        i32[target + i.lanes] = i32[source + ACTIVATION_FIELDS.sum]! * unit.start;
        for (let v = 0; v < BLOCK_COLS / 4; v++) {
          i32[target + (2 + v) * i.lanes] = i32[source + QUANTS_AT + v]!;
        }
      }
    });
  },
};

export const neuronList: InstructionDef<NeuronList> = {
  access: access(),
  kernels: ({ kernel }) => [kernel],
  code: "target",

  execute(i, c) {
    const quantized = quantizer(i, c);
    const { buffer } = c.views;
    // Small indices are faster than those into a large memory.
    const blocks = wordsAt(buffer, i.scratch + c.thread * i.scratchBytes, i.scratchBytes);
    return perRow(c, i.rows, (row) => {
      quantized(row);
      writeList(i, blocks, wordsAt(buffer, i.out + row * i.tokenBytes, i.tokenBytes));
    });
  },
};

interface Words {
  readonly i32: Int32Array;
  readonly f32: Float32Array;
}

function wordsAt(buffer: ArrayBufferLike, at: number, bytes: number): Words {
  return {
    i32: new Int32Array(buffer, at, bytes / 4),
    f32: new Float32Array(buffer, at, bytes / 4),
  };
}

function writeList(i: NeuronList, from: Words, to: Words): void {
  const unit = unitsOf(i);
  const { blocks, blockBytes, firstColumn, columnBytes, ranges } = i.place;
  const [headers, entries] = [i.place.headersAt / 4, i.place.entriesAt / 4];
  const [x, list] = [from.i32, to.i32];
  let [header, entry] = [headers, entries];
  for (let block = 0; block < blocks; block++) {
    if (block % RANGE_BLOCKS === 0) {
      list[(2 * block) / RANGE_BLOCKS] = (header - headers) / HEADER_WORDS;
      list[(2 * block) / RANGE_BLOCKS + 1] = (entry - entries) / ENTRY_WORDS;
    }
    const source = block * BLOCK_WORDS;
    const start = entry;
    entry = writeEntries(
      x,
      source + QUANTS_AT,
      list,
      entry,
      block * blockBytes + firstColumn,
      columnBytes,
    );
    const scale = from.f32[source + ACTIVATION_FIELDS.scale]! * unit.scale;
    // A block of zeros adds nothing, unless its scale is not a number: then nor are the results.
    if (entry === start && Number.isFinite(scale)) continue;
    const sum = x[source + ACTIVATION_FIELDS.sum]! * unit.start;
    list[header + COLUMN_HEADER.count / 4] = (entry - start) / ENTRY_WORDS;
    list[header + COLUMN_HEADER.block / 4] = block * blockBytes;
    to.f32[header + COLUMN_HEADER.scale / 4] = scale;
    list[header + COLUMN_HEADER.start / 4] = sum;
    to.f32[header + COLUMN_HEADER.highScale / 4] = scale / HIGH_FACTOR;
    list[header + COLUMN_HEADER.highStart / 4] = sum * HIGH_FACTOR;
    header += HEADER_WORDS;
  }
  list[2 * ranges] = (header - headers) / HEADER_WORDS;
  list[2 * ranges + 1] = (entry - entries) / ENTRY_WORDS;
  // What is prefetched beyond the last of each.
  list[header + COLUMN_HEADER.block / 4] = 0;
  list.fill(0, entry, entry + ENTRIES_AHEAD * ENTRY_WORDS);
}

/** The columns of a block that are not zero, and their quants. */
const columns = new Int32Array(BLOCK_COLS + COLUMN_ENTRY.columns);
const quants = new Int32Array(BLOCK_COLS + COLUMN_ENTRY.columns);

/**
 * Writes the entries of a block, whose quants begin at x[from]; returns where the next one goes. Which quants are zero cannot be
 * predicted, so that nothing branches on it: every column is noted, and what is zero is overwritten by the next.
 */
function writeEntries(
  x: Int32Array,
  from: number,
  list: Int32Array,
  first: number,
  block: number,
  columnBytes: number,
): number {
  let [count, column] = [0, block];
  for (let four = 0; four < BLOCK_COLS / 4; four++) {
    const word = x[from + four]!;
    for (let shift = 0; shift < 32; shift += 8) {
      const quant = (word >>> shift) & 255;
      columns[count] = column;
      quants[count] = quant;
      count += (quant + 255) >>> 8; // 1, or 0 for 0
      column += columnBytes;
    }
  }
  if (count === 0) return first;
  for (let more = count; more % COLUMN_ENTRY.columns !== 0; more++) {
    columns[more] = columns[0]!;
    quants[more] = 0;
  }
  let entry = first;
  for (let i = 0; i < count; i += COLUMN_ENTRY.columns) {
    list[entry] = columns[i]!;
    list[entry + 1] = columns[i + 1]!;
    list[entry + 2] = columns[i + 2]!;
    list[entry + 3] = columns[i + 3]!;
    list[entry + COLUMN_ENTRY.quants / 4] =
      quants[i]! | (quants[i + 1]! << 8) | (quants[i + 2]! << 16) | (quants[i + 3]! << 24);
    entry += ENTRY_WORDS;
  }
  return entry;
}
