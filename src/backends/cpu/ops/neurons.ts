// Matmuls that are computed neuron by neuron (docs/sparse.md): rows of `up` whose gate is not zero, and columns of `down` whose
// activation is not zero. neuron-weights.ts finds them in the graph, neuron-lower.ts makes the instructions, and
// neuron-activations.ts prepares what they read. Results have the bits of the matmuls that read everything.

import type { Rows } from "../../../graph/graph.ts";
import { COLUMN_ENTRY, COLUMN_HEADER } from "../../../kernels/ops/neurons/neuron-columns.ts";
import { ROW_ENTRY_BYTES, ROWS_TOGETHER } from "../../../kernels/ops/neurons/neuron-rows.ts";
import { chunkBounds, type Executor, rowCount } from "../executor.ts";
import { addBias } from "./matmul-run.ts";
import type { ListPlace } from "./neuron-activations.ts";
import { area, type InstructionDef } from "./op.ts";

export interface NeuronRows {
  readonly op: "neuron_rows";
  readonly rows: Rows;
  readonly n: number;
  readonly out: number;
  readonly kernel: string;
  /** f32 [rows][n]: neurons with a gate of zero or less are left out. */
  readonly gate: number;
  /** Slabs of activations, and the bytes of a token's. */
  readonly x: number;
  readonly tokenBytes: number;
  readonly slabs: number;
  readonly w: number;
  readonly rowBytes: number;
  /** For each thread: the list of a chunk's rows, and scratch memory of the kernel. */
  readonly list: number;
  readonly listBytes: number;
  readonly scratch: number;
  readonly scratchBytes: number;
}

export interface NeuronColumns {
  readonly op: "neuron_columns";
  readonly rows: Rows;
  readonly n: number;
  readonly out: number;
  readonly bias: number;
  readonly kernel: string;
  /** Lists of activations, one for each token. */
  readonly x: number;
  readonly place: ListPlace;
  readonly w: number;
  readonly tileRows: number;
  /** Bytes of a tile's quants in a column. */
  readonly tileBytes: number;
  /** Which sum of a tile each of its rows is. */
  readonly order: Int32Array;
}

/** Neurons whose rows should stay in the cache while all tokens of a batch read them. */
const RANGE_ROWS = 256;

/** The most bytes of a list of n rows, with a whole group at the end and another to prefetch. */
export function rowListBytes(n: number): number {
  return (n + 2 * ROWS_TOGETHER) * ROW_ENTRY_BYTES;
}

export const neuronRows: InstructionDef<NeuronRows> = {
  access: {
    stage: "as one",
    of: ({ rows, x, gate, out }) => ({
      rows,
      reads: [area(x, 0), area(gate, 0)],
      writes: [area(out, 0)],
    }),
  },
  kernels: ({ kernel }) => [kernel],
  code: "target",

  execute(i, c): Executor {
    const kernel = c.kernels[i.kernel]!;
    const { f32, i32 } = c.views;
    const w = c.memories.pointer(i.w);
    const list = i.list + c.thread * i.listBytes;
    const scratch = i.scratch + c.thread * i.scratchBytes;
    const bounds = chunkBounds(i.n, c.program.threads);
    // Small indices are faster than those into a large memory.
    const entries = i32.subarray(list / 4, (list + i.listBytes) / 4);
    const runToken = (token: number, from: number, to: number) => {
      const out = i.out + token * i.n * 4;
      const gates = i.gate / 4 + token * i.n;
      f32.fill(0, out / 4 + from, out / 4 + to);
      const groups = listRows(f32.subarray(gates + from, gates + to), from, i.rowBytes, entries);
      if (groups > 0) kernel(w, i.x + token * i.tokenBytes, out, list, scratch, groups, i.slabs);
    };
    return {
      chunks: () => (rowCount(c, i.rows) === 0 ? 0 : bounds.length - 1),
      weight: (chunk) => (bounds[chunk + 1]! - bounds[chunk]!) * i.rowBytes,
      run: (chunk) => {
        const tokens = rowCount(c, i.rows);
        const end = bounds[chunk + 1]!;
        const step = tokens === 1 ? i.n : RANGE_ROWS;
        for (let from = bounds[chunk]!; from < end; from += step) {
          const to = Math.min(end, from + step);
          for (let token = 0; token < tokens; token++) runToken(token, from, to);
        }
      },
    };
  },
};

/** Writes the list of the rows that are needed, from row `first` on, in whole groups; returns how many groups it has. */
function listRows(gates: Float32Array, first: number, rowBytes: number, list: Int32Array): number {
  let at = 0;
  for (let row = 0; row < gates.length; row++) {
    if (gates[row]! <= 0) continue; // what is not a number is needed
    list[at] = (first + row) * rowBytes;
    list[at + 1] = (first + row) * 4;
    at += 2;
  }
  if (at === 0) return 0;
  const groups = Math.ceil(at / 2 / ROWS_TOGETHER);
  const [lastRow, lastOut] = [list[at - 2]!, list[at - 1]!];
  for (; at < 2 * ROWS_TOGETHER * (groups + 1); at += 2) {
    list[at] = lastRow;
    list[at + 1] = lastOut;
  }
  return groups;
}

export const neuronColumns: InstructionDef<NeuronColumns> = {
  access: {
    stage: "as one",
    of: ({ rows, x, out }) => ({ rows, reads: [area(x, 0)], writes: [area(out, 0)] }),
  },
  kernels: ({ kernel }) => [kernel],
  code: "target",

  execute(i, c): Executor {
    const kernel = c.kernels[i.kernel]!;
    const { f32, i32 } = c.views;
    const w = c.memories.pointer(i.w);
    const { place } = i;
    const bounds = tileBounds(i.n / i.tileRows, c.program.threads);
    const sums = new Float32Array(i.tileRows);
    /** Adds the columns of some ranges of blocks to a token's results. */
    const addRanges = (token: number, first: number, end: number, from: number, to: number) => {
      const list = i.x + token * place.bytes;
      const [header, entry] = [i32[list / 4 + 2 * from]!, i32[list / 4 + 2 * from + 1]!];
      const blocks = i32[list / 4 + 2 * to]! - header;
      if (blocks === 0) return;
      kernel(
        w + first * i.tileRows * 2,
        w + first * i.tileBytes,
        list + place.headersAt + header * COLUMN_HEADER.bytes,
        list + place.entriesAt + entry * COLUMN_ENTRY.bytes,
        i.out + (token * i.n + first * i.tileRows) * 4,
        blocks,
        end - first,
      );
    };
    /** Puts the results of a tile in order. */
    const order = (at: number) => {
      for (let row = 0; row < i.tileRows; row++) sums[row] = f32[at + i.order[row]!]!;
      f32.set(sums, at);
    };
    return {
      chunks: () => (rowCount(c, i.rows) === 0 ? 0 : bounds.length - 1),
      weight: (chunk) => bounds[chunk + 1]! - bounds[chunk]!,
      run: (chunk) => {
        const tokens = rowCount(c, i.rows);
        const [first, end] = [bounds[chunk]!, bounds[chunk + 1]!];
        const results = (token: number) => i.out / 4 + token * i.n;
        for (let token = 0; token < tokens; token++) {
          f32.fill(0, results(token) + first * i.tileRows, results(token) + end * i.tileRows);
        }
        const step = tokens === 1 ? place.ranges : 1;
        for (let range = 0; range < place.ranges; range += step) {
          for (let token = 0; token < tokens; token++) {
            addRanges(token, first, end, range, range + step);
          }
        }
        for (let token = 0; token < tokens; token++) {
          for (let tile = first; tile < end; tile++) order(results(token) + tile * i.tileRows);
        }
        addBias(i, c, first * i.tileRows, end * i.tileRows);
      },
    };
  },
};

/** Chunks of tiles: two for each thread, since a chunk reads its part of every column. */
function tileBounds(tiles: number, threads: number): readonly number[] {
  const chunks = Math.min(tiles, threads === 1 ? 1 : 2 * threads);
  return Array.from({ length: chunks + 1 }, (_, chunk) => Math.round((chunk * tiles) / chunks));
}
