// Matmuls that are computed neuron by neuron (docs/inside/sparse.md): rows of `up` whose gate is not zero, and columns of `down` whose
// activation is not zero. neuron-weights.ts finds them in the graph, neuron-lower.ts makes the instructions,
// neuron-activations.ts prepares their activations, and neuron-batch.ts computes all neurons of batches. Results have the bits of the
// matmuls that read everything.

import type { Rows } from "../../../graph/graph.ts";
import { LIST_PART } from "../../../kernels/ops/neurons/neuron-list.ts";
import { ENTRIES_BEHIND } from "../../../kernels/ops/neurons/neuron-row-list.ts";
import { ROW_ENTRY_BYTES, ROWS_TOGETHER } from "../../../kernels/ops/neurons/neuron-rows.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import { matmulKernels } from "./matmul.ts";
import { addBias } from "./matmul-run.ts";
import { type ListAddresses, type ListPlace, setPart } from "./neuron-activations.ts";
import { areAlone, batchExecutor, type NeuronBatch } from "./neuron-batch.ts";
import { type Area, area, type InstructionDef } from "./op.ts";

export interface NeuronRows {
  readonly op: "neuron_rows";
  readonly rows: Rows;
  readonly n: number;
  readonly out: number;
  /** Also added to rows that are left out: for any bias, they are multiplied by zero. */
  readonly bias: number;
  readonly kernel: string;
  /** The kernel that lists rows. */
  readonly lister: string;
  /** f32 [rows][n]: neurons with a gate of zero or less are left out. */
  readonly gate: number;
  /** Slabs of activations, and the bytes of a token's. */
  readonly x: number;
  readonly tokenBytes: number;
  readonly slabs: number;
  readonly w: number;
  readonly rowBytes: number;
  /**
   * For each thread: the length of the list of a chunk's rows (ROW_LIST_AT bytes), the list, and scratch memory of the kernel.
   */
  readonly list: number;
  readonly listBytes: number;
  readonly scratch: number;
  readonly scratchBytes: number;
  /** The plan for batches; undefined: token by token. */
  readonly batch: NeuronBatch | undefined;
}

export interface NeuronColumns {
  readonly op: "neuron_columns";
  readonly rows: Rows;
  readonly n: number;
  readonly out: number;
  readonly bias: number;
  readonly kernel: string;
  /** The kernel that makes results zero before columns are added to them. */
  readonly zeros: string;
  readonly width: number;
  /** Lists of activations, one for each token. */
  readonly x: number;
  readonly place: ListPlace;
  /** The kernel that puts parts one behind the other, and its memory for each thread: the number of headers, and a list. */
  readonly gatherer: string;
  readonly gathered: number;
  readonly gatheredBytes: number;
  readonly w: number;
  readonly tileRows: number;
  /** Bytes of a tile's quants in a column. */
  readonly tileBytes: number;
  /** Tiles that the kernel computes at once. */
  readonly tilesTogether: number;
  /** The plan for batches; undefined: token by token. */
  readonly batch: NeuronBatch | undefined;
}

/** Neurons whose rows should stay in the cache while all tokens of a batch read them. */
const RANGE_ROWS = 256;

/** Chunks of rows for each thread: the first group of each is not prefetched. */
const CHUNKS_OF_ROWS = 2;

/** The offset of a list, behind its length. */
const ROW_LIST_AT = 16;

/** The most bytes of the length of a list, and of a list of n rows. */
export function rowListBytes(n: number): number {
  return ROW_LIST_AT + (n + ENTRIES_BEHIND) * ROW_ENTRY_BYTES;
}

export const neuronRows: InstructionDef<NeuronRows> = {
  access: {
    stage: "as one",
    of: ({ rows, x, gate, out, batch }) => ({
      rows,
      reads: [area(x, 0), area(gate, 0), ...xOf(batch)],
      writes: [area(out, 0)],
    }),
  },
  kernels: ({ kernel, lister, batch }) => [kernel, lister, ...kernelsOf(batch)],
  code: "target",
  columns: ({ rows, n, x, out }) => ({ rows, cols: n, whole: [x], writes: [out], isSparse: true }),

  execute(i, c): Executor {
    const alone = rowsExecutor(i, c);
    if (!i.batch) return alone;
    const make = c.kernels[i.batch.kernel]!;
    const w = c.memories.pointer(i.w);
    const batch = batchExecutor(i.batch, c, (panel, to) =>
      make(w + panel * PANEL_ROWS * i.rowBytes, to, i.rowBytes, i.slabs),
    );
    return either(alone, batch, () => areAlone(rowCount(c, i.rows), i.batch));
  },
};

/** The activations that a batch reads. */
function xOf(batch: NeuronBatch | undefined): Area[] {
  return batch ? [area(batch.matmul.x, 0)] : [];
}

function kernelsOf(batch: NeuronBatch | undefined): string[] {
  return batch ? [batch.kernel, ...matmulKernels(batch.matmul)] : [];
}

/** The first executor where `isFirst`, the second elsewhere. */
export function either(first: Executor, second: Executor, isFirst: () => boolean): Executor {
  const current = () => (isFirst() ? first : second);
  return {
    chunks: () => current().chunks(),
    weight: (chunk) => current().weight!(chunk),
    run: (chunk) => current().run(chunk),
    ...(first.columns && { columns: first.columns }), // for few tokens only
  };
}

/** The rows of each token that its gates need. */
function rowsExecutor(i: NeuronRows, c: ExecutorContext): Executor {
  const kernel = c.kernels[i.kernel]!;
  const lister = c.kernels[i.lister]!;
  const { i32 } = c.views;
  const w = c.memories.pointer(i.w);
  const written = i.list + c.thread * i.listBytes;
  const list = written + ROW_LIST_AT;
  const scratch = i.scratch + c.thread * i.scratchBytes;
  const bounds = evenBounds(i.n, CHUNKS_OF_ROWS * c.program.threads);
  const runToken = (token: number, from: number, to: number) => {
    const out = i.out + token * i.n * 4;
    const gates = i.gate + (token * i.n + from) * 4;
    const first = from * i.rowBytes;
    lister(gates, out + from * 4, list, to - from, first, i.rowBytes, from * 4, written);
    const groups = Math.ceil(i32[written / 4]! / ROWS_TOGETHER);
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
      addBias(i, c, bounds[chunk]!, end);
    },
    columns: {
      count: () => rowCount(c, i.rows),
      run: (from, to) => {
        const tokens = rowCount(c, i.rows);
        for (let token = 0; token < tokens; token++) runToken(token, from, to);
        addBias(i, c, from, to);
      },
    },
  };
}

/** The offset of a gathered list, behind the number of its headers. */
const GATHERED_AT = 16;

export function gatheredBytes({ bytes }: ListPlace): number {
  return GATHERED_AT + bytes;
}

export const neuronColumns: InstructionDef<NeuronColumns> = {
  access: {
    stage: "as one",
    of: ({ rows, x, out, batch }) => ({
      rows,
      reads: [area(x, 0), ...xOf(batch)],
      writes: [area(out, 0)],
    }),
  },
  kernels: ({ kernel, zeros, gatherer, batch }) => [
    ...[kernel, zeros, gatherer],
    ...kernelsOf(batch),
  ],
  code: "target",

  execute(i, c): Executor {
    const alone = columnsExecutor(i, c);
    if (!i.batch) return alone;
    const { panels, panelBytes, kernel } = i.batch;
    const { parts, blockBytes, firstColumn, columnBytes } = i.place;
    const blocks = parts.at(-1)!;
    const make = c.kernels[kernel]!;
    const w = c.memories.pointer(i.w);
    const batch = batchExecutor(i.batch, c, (panel, to) => {
      const tile = panel / panels;
      const scales = w + tile * i.tileRows * 2;
      const quants = w + firstColumn + tile * i.tileBytes;
      make(scales, quants, to, blocks, blockBytes, columnBytes, panelBytes);
    });
    return either(alone, batch, () => areAlone(rowCount(c, i.rows), i.batch));
  },
};

/** The columns of each token whose activations are not zero. */
function columnsExecutor(i: NeuronColumns, c: ExecutorContext): Executor {
  const kernel = c.kernels[i.kernel]!;
  const zeros = c.kernels[i.zeros]!;
  const { i32 } = c.views;
  const w = c.memories.pointer(i.w);
  const { place } = i;
  const parts = place.parts.length - 1;
  const bounds = tileBounds(i, c.program.threads);
  const part: ListAddresses = { headers: 0, columns: 0, xs: 0 };
  const gather = c.kernels[i.gatherer]!;
  const gathered = i.gathered + c.thread * i.gatheredBytes;
  const whole: ListAddresses = { headers: 0, columns: 0, xs: 0 };
  setPart(whole, gathered + GATHERED_AT, place, 0);
  const ofPart = (list: number, p: number) =>
    i32[(list + p * LIST_PART.bytes + LIST_PART.headers) / 4]!;
  /** Adds the columns of `blocks` blocks to a token's results. */
  const add = (token: number, first: number, end: number, blocks: number, at: ListAddresses) => {
    if (blocks === 0) return;
    const out = i.out + (token * i.n + first * i.tileRows) * 4;
    const [scales, quants] = [w + first * i.tileRows * 2, w + first * i.tileBytes];
    const tiles = (end - first) / i.tilesTogether;
    kernel(scales, quants, at.headers, at.columns, at.xs, out, blocks, tiles);
  };
  return {
    chunks: () => (rowCount(c, i.rows) === 0 ? 0 : bounds.length - 1),
    weight: (chunk) => bounds[chunk + 1]! - bounds[chunk]!,
    run: (chunk) => {
      const tokens = rowCount(c, i.rows);
      const [first, end] = [bounds[chunk]!, bounds[chunk + 1]!];
      const bytes = (end - first) * i.tileRows * 4;
      for (let token = 0; token < tokens; token++) {
        zeros(i.out + (token * i.n + first * i.tileRows) * 4, bytes / i.width);
      }
      const isGathered = tokens === 1 && parts > 1;
      if (isGathered) {
        gather(i.x, whole.headers, whole.columns, whole.xs, parts, gathered);
        add(0, first, end, i32[gathered / 4]!, whole);
      }
      for (let p = 0; !isGathered && p < parts; p++) {
        for (let token = 0; token < tokens; token++) {
          const list = i.x + token * place.bytes;
          setPart(part, list, place, p);
          add(token, first, end, ofPart(list, p), part);
        }
      }
      addBias(i, c, first * i.tileRows, end * i.tileRows);
    },
  };
}

/** Chunks of tiles: one for each thread, since a chunk reads its part of every column. Two took 1.15 times as long (Neoverse-N1). */
function tileBounds(i: NeuronColumns, threads: number): readonly number[] {
  const together = i.n / i.tileRows / i.tilesTogether;
  return evenBounds(together, threads).map((bound) => bound * i.tilesTogether);
}

/** The bounds of `chunks` chunks, or of `total` where those are fewer. */
export function evenBounds(total: number, chunks: number): readonly number[] {
  const count = Math.min(total, chunks);
  return Array.from({ length: count + 1 }, (_, chunk) => Math.round((chunk * total) / count));
}
