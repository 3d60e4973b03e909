// Prepares activations for matmuls that are computed neuron by neuron (neurons.ts): quantized to bytes as for any other matmul,
// and then put in the order that the kernels read.
//
//   neuron_slabs  activations of neuron rows: lanes are blocks (kernels/ops/neurons/neuron-rows.ts)
//   neuron_list   activations of neuron columns: only those that are not zero (neuron-list.ts), and where each range of blocks
//                 begins

import type { Rows } from "../../../graph/graph.ts";
import {
  COLUMN_ENTRY,
  COLUMN_HEADER,
  ENTRIES_AHEAD,
} from "../../../kernels/ops/neurons/neuron-list.ts";
import { X_SLAB_VECTORS } from "../../../kernels/ops/neurons/neuron-rows.ts";
import { RAISED_SCALE } from "../../../kernels/ops/packed/half-panels.ts";
import {
  ACTIVATION_FIELDS,
  ACTIVATION_QUANTS_AT,
  activationBlockBytes,
  BLOCK_COLS,
} from "../../../kernels/ops/packed/packed.ts";
import type { Halves } from "../../../kernels/target.ts";
import { type ExecutorContext, perRow, rowCount } from "../executor.ts";
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
  /** The most tokens that need them: those of larger batches read other activations. */
  readonly mostTokens: number;
}

export interface NeuronSlabs extends NeuronActivations {
  readonly op: "neuron_slabs";
  readonly lanes: number;
}

export interface NeuronList extends NeuronActivations {
  readonly op: "neuron_list";
  readonly place: ListPlace;
  /** The kernel that makes a list, and where it writes how long it is, for each thread. */
  readonly lister: string;
  readonly written: number;
}

/** Where the parts of a token's list are, and where a block and a column are in the matrix. */
export interface ListPlace {
  readonly blocks: number;
  /** i32 [ranges + 1][2]: the number of the first header and of the first entry of each range of RANGE_BLOCKS blocks. */
  readonly ranges: number;
  readonly headersAt: number;
  readonly columnsAt: number;
  readonly xsAt: number;
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

/** Bytes of what a thread's lister writes beside a list. */
export const WRITTEN_BYTES = 16;

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
  const columnsAt = Math.ceil((headersAt + (blocks + 1) * COLUMN_HEADER.bytes) / 16) * 16;
  // What is not part of a list may be written behind its end.
  const most = blocks * BLOCK_COLS + 16;
  const xsAt = columnsAt + 4 * most;
  const bytes = xsAt + most;
  return { blocks, ranges, headersAt, columnsAt, xsAt, bytes, ...matrix };
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
      if (rowCount(c, i.rows) > i.mostTokens) return;
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
  kernels: ({ kernel, lister }) => [kernel, lister],
  code: "target",

  execute(i, c) {
    const quantized = quantizer(i, c);
    const { i32 } = c.views;
    const lister = c.kernels[i.lister]!;
    const written = i.written + c.thread * WRITTEN_BYTES;
    const { blocks, blockBytes, firstColumn, columnBytes, headersAt, columnsAt, xsAt } = i.place;
    return perRow(c, i.rows, (row) => {
      if (rowCount(c, i.rows) > i.mostTokens) return;
      const from = quantized(row);
      const list = i.out + row * i.tokenBytes;
      let [range, header, entry] = [list / 4, 0, 0];
      for (let block = 0; block < blocks; block += RANGE_BLOCKS, range += 2) {
        i32[range] = header;
        i32[range + 1] = entry;
        lister(
          from + block * BLOCK_BYTES,
          list + headersAt + header * COLUMN_HEADER.bytes,
          list + columnsAt + entry * 4 * COLUMN_ENTRY,
          list + xsAt + entry * COLUMN_ENTRY,
          Math.min(RANGE_BLOCKS, blocks - block),
          block * blockBytes,
          blockBytes,
          columnBytes,
          firstColumn,
          written,
        );
        header += i32[written / 4]!;
        entry += i32[written / 4 + 1]!;
      }
      i32[range] = header;
      i32[range + 1] = entry;
      // What is prefetched beyond the last of each.
      i32[(list + headersAt + header * COLUMN_HEADER.bytes + COLUMN_HEADER.block) / 4] = 0;
      const end = (list + columnsAt) / 4 + entry * COLUMN_ENTRY;
      i32.fill(0, end, end + ENTRIES_AHEAD * COLUMN_ENTRY);
    });
  },
};
