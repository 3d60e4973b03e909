// Prepares activations for matmuls that are computed neuron by neuron (neurons.ts): quantized to bytes as for any other matmul,
// and then put in the order that the kernels read.
//
//   neuron_slabs  activations of neuron rows: lanes are blocks (kernels/ops/neurons/neuron-rows.ts)
//   neuron_list   activations of neuron columns: only those that are not zero (neuron-list.ts). A list has parts, so that threads can
//                 make them in parallel (column-stages.ts); a reader of several puts them one behind the other

import type { Rows } from "../../../graph/graph.ts";
import { COLUMN_HEADER, LIST_PART } from "../../../kernels/ops/neurons/neuron-list.ts";
import { X_SLAB_VECTORS } from "../../../kernels/ops/neurons/neuron-rows.ts";
import { activationBlockBytes, BLOCK_COLS } from "../../../kernels/ops/packed/packed.ts";
import { columnBounds, type ExecutorContext, perRow, rowCount } from "../executor.ts";
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
  /** Quantized blocks of a token, for each thread. */
  readonly scratch: number;
  readonly scratchBytes: number;
  /** The most tokens that need them: those of larger batches read other activations. */
  readonly mostTokens: number;
}

export interface NeuronSlabs extends NeuronActivations {
  readonly op: "neuron_slabs";
  readonly lanes: number;
  /** The kernel that makes slabs. */
  readonly slabber: string;
}

export interface NeuronList extends NeuronActivations {
  readonly op: "neuron_list";
  readonly place: ListPlace;
  /** The kernel that makes a part of a list. */
  readonly lister: string;
}

/** The offsets of the parts of a token's list, and of a block and a column in the matrix. */
export interface ListPlace {
  /** The first block of each part, and the number of all blocks. A chunk of columns has whole parts. */
  readonly parts: readonly number[];
  /** A LIST_PART for each at the beginning. Then areas for headers, columns and activations, as large as they may be. */
  readonly headersAt: number;
  readonly columnsAt: number;
  readonly xsAt: number;
  readonly bytes: number;
  readonly blockBytes: number;
  readonly firstColumn: number;
  readonly columnBytes: number;
}

/** The most blocks of a part where large batches read lists: columns should stay in the cache while all their tokens read them. */
export const PART_BLOCKS = 16;

/**
 * The numbers of headers and columns that may be written behind the end of each part, and copied by whole vectors, without being part
 * of a list.
 */
const HEADERS_BEHIND = 3;
const COLUMNS_BEHIND = 64;

const BLOCK_BYTES = activationBlockBytes(false, 16);

/** Bytes of the quantized blocks of a token, in whole slabs. A store may write past the last. */
export function neuronScratchBytes(cols: number, width: number): number {
  const lanes = width / 4;
  return Math.ceil(cols / BLOCK_COLS / lanes) * lanes * BLOCK_BYTES + 64; // a multiple of 16
}

export function slabsBytes(cols: number, width: number): number {
  return Math.ceil(cols / BLOCK_COLS / (width / 4)) * X_SLAB_VECTORS * width;
}

/** The list of a token for a matrix with `cols` columns, with at most `mostBlocks` blocks in a part. */
export function listPlace(
  cols: number,
  threads: number,
  mostBlocks: number,
  matrix: Pick<ListPlace, "blockBytes" | "firstColumn" | "columnBytes">,
): ListPlace {
  const chunks = columnBounds(cols, threads).map((bound) => bound / BLOCK_COLS);
  const parts = chunks.slice(1).flatMap((end, chunk) => {
    const [first, count] = [chunks[chunk]!, Math.ceil((end - chunks[chunk]!) / mostBlocks)];
    const size = (end - first) / count;
    return Array.from({ length: count }, (_, part) => first + Math.round(part * size));
  });
  parts.push(cols / BLOCK_COLS);
  return { parts, ...areasOf(cols / BLOCK_COLS, parts.length - 1), ...matrix };
}

/** The offsets of the areas of a list that has `blocks` blocks in `parts` parts. */
function areasOf(blocks: number, parts: number) {
  const whole = (bytes: number) => Math.ceil(bytes / 16) * 16;
  const headersAt = whole(parts * LIST_PART.bytes);
  const headers = blocks + parts * HEADERS_BEHIND;
  const columnsAt = whole(headersAt + headers * COLUMN_HEADER.bytes);
  const most = blocks * BLOCK_COLS + parts * COLUMNS_BEHIND;
  const xsAt = columnsAt + 4 * most;
  return { headersAt, columnsAt, xsAt, bytes: xsAt + most };
}

/** Addresses of the headers, columns and activations of a list, or of a part of one. */
export interface ListAddresses {
  headers: number;
  columns: number;
  xs: number;
}

/** Sets the addresses of a part of the list at this address. */
export function setPart(at: ListAddresses, list: number, place: ListPlace, part: number): void {
  const block = place.parts[part]!;
  const column = block * BLOCK_COLS + part * COLUMNS_BEHIND;
  at.headers = list + place.headersAt + (block + part * HEADERS_BEHIND) * COLUMN_HEADER.bytes;
  at.columns = list + place.columnsAt + 4 * column;
  at.xs = list + place.xsAt + column;
}

/** Quantizes columns from..to of a token's activations; returns the address of their blocks. */
function quantizer(
  i: NeuronActivations,
  c: ExecutorContext,
): (row: number, from: number, to: number) => number {
  const quantize = c.kernels[i.kernel]!;
  const blocks = i.scratch + c.thread * i.scratchBytes;
  return (row, from, to) => {
    quantize(i.x + (row * i.cols + from) * 4, blocks, (to - from) / BLOCK_COLS, BLOCK_BYTES);
    return blocks;
  };
}

function access<I extends NeuronActivations & { op: string }>(): InstructionDef<I>["access"] {
  return {
    stage: "row by row",
    of: ({ rows, x, cols }) => ({ rows, reads: [area(x, cols * 4)], writes: [] }),
  };
}

export const neuronSlabs: InstructionDef<NeuronSlabs> = {
  access: access(),
  kernels: ({ kernel, slabber }) => [kernel, slabber],
  code: "target",

  execute(i, c) {
    const quantized = quantizer(i, c);
    const slabber = c.kernels[i.slabber]!;
    const [blocks, slabs] = [i.cols / BLOCK_COLS, Math.ceil(i.cols / BLOCK_COLS / i.lanes)];
    const behind = slabs * i.lanes - blocks;
    return perRow(c, i.rows, (row) => {
      if (rowCount(c, i.rows) > i.mostTokens) return;
      const from = quantized(row, 0, i.cols);
      if (behind > 0) {
        const end = (from + blocks * BLOCK_BYTES) / 4;
        c.views.i32.fill(0, end, end + (behind * BLOCK_BYTES) / 4);
      }
      slabber(from, i.out + row * i.tokenBytes, slabs);
    });
  },
};

export const neuronList: InstructionDef<NeuronList> = {
  access: access(),
  kernels: ({ kernel, lister }) => [kernel, lister],
  code: "target",
  columns: ({ rows, cols, out }) => ({ rows, cols, whole: [], writes: [out], isSparse: true }),

  execute(i, c) {
    const quantized = quantizer(i, c);
    const { i32 } = c.views;
    const lister = c.kernels[i.lister]!;
    const { parts, blockBytes, firstColumn, columnBytes } = i.place;
    const at: ListAddresses = { headers: 0, columns: 0, xs: 0 };
    const listPart = (row: number, part: number) => {
      const first = parts[part]!;
      const blocks = parts[part + 1]! - first;
      const list = i.out + row * i.tokenBytes;
      const known = list + part * LIST_PART.bytes;
      setPart(at, list, i.place, part);
      lister(
        quantized(row, first * BLOCK_COLS, (first + blocks) * BLOCK_COLS),
        at.headers,
        at.columns,
        at.xs,
        blocks,
        first * blockBytes,
        blockBytes,
        columnBytes,
        firstColumn,
        known + LIST_PART.headers,
      );
      i32[(known + LIST_PART.headersAt) / 4] = at.headers - list;
      i32[(known + LIST_PART.columnsAt) / 4] = at.columns - list;
      i32[(known + LIST_PART.xsAt) / 4] = at.xs - list;
    };
    const count = () => rowCount(c, i.rows);
    const byRow = perRow(c, i.rows, (row) => {
      if (count() > i.mostTokens) return;
      for (let part = 0; part + 1 < parts.length; part++) listPart(row, part);
    });
    const run = (from: number, to: number) => {
      const tokens = count();
      let part = parts.indexOf(from / BLOCK_COLS);
      for (; parts[part]! * BLOCK_COLS < to; part++) {
        for (let row = 0; row < tokens; row++) listPart(row, part);
      }
    };
    return { ...byRow, columns: { count, run } };
  },
};
