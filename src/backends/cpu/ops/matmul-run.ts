// Runs a matmul over row panels: a chunk is a range of row panels, for all tokens; kernels compute tokens in token tiles.
// matmul.ts has the instructions.

import type { Rows } from "../../../graph/graph.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { chunkBounds, type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import type { ChoiceTable, TiledMatmul, TiledVariant } from "./matmul-data.ts";

type KernelCall = ExecutorContext["kernels"][string];

/** The calls of a layout's kernels. */
export interface TileKernels {
  /** The address at which the matrix kernels read the row panel at this address: widened or unpacked, where they need that. */
  tile(at: number, unpack: KernelCall | undefined): number;
  /** All rows of `tiles` row panels for one token; with streams, the next stream begins `apart` bytes further. */
  vector(
    kernel: KernelCall,
    w: number,
    x: number,
    out: number,
    tiles: number,
    apart: number,
    outApart: number,
  ): void;
  /** Some groups of one row panel, from number `group` on, for `tokenTiles` token tiles. */
  matrix(
    kernel: KernelCall,
    w: number,
    group: number,
    x: number,
    out: number,
    tokenTiles: number,
    outStride: number,
  ): void;
  /** Called after `vector` has computed `tiles` row panels for one token: computes unusable results again. */
  readonly check?: ((w: number, x: number, out: number, tiles: number) => void) | undefined;
  /** All rows of `tiles` row panels in each stream for one token tile; where the layout has such kernels. */
  streams?(
    kernel: KernelCall,
    w: number,
    x: number,
    out: number,
    tiles: number,
    outStride: number,
    apart: number,
    outApart: number,
  ): void;
}

/** The index of the variant for `rows` rows. */
export function chosen(c: ExecutorContext, choice: ChoiceTable, rows: number): number {
  return c.views.i32[choice / 4 + rows]!;
}

/** Runs row panels from..to of the matrix at `w`, for `tokens` tokens whose activations begin at `x`, into `out`. */
export type RunTiles = (
  w: number,
  x: number,
  tokens: number,
  from: number,
  to: number,
  out: number,
  outStride: number,
) => void;

/** The matrix kernels compute token tiles, of which the last may be narrower; a single token streams. */
export function runVariant(
  i: TiledMatmul,
  c: ExecutorContext,
  kernels: TileKernels,
  variant: TiledVariant,
): RunTiles {
  const { streams, tile, tokenBytes } = variant;
  // For one token: as many streams as the row panels fill, then fewer for the rest.
  const vectors = [
    { run: c.kernels[variant.vectorStreams]!, count: streams },
    ...(variant.vectorHalf ? [{ run: c.kernels[variant.vectorHalf]!, count: streams / 2 }] : []),
    { run: c.kernels[variant.vector]!, count: 1 },
  ];
  const matrix = variant.matrix.map(({ kernel, groups, inStreams }) => ({
    run: c.kernels[kernel]!,
    groups,
    inStreams: inStreams === undefined ? undefined : c.kernels[inStreams]!,
  }));
  const unpack = variant.unpack === undefined ? undefined : c.kernels[variant.unpack]!;
  const oneToken = (weights: number, x: number, from: number, tiles: number, out: number) => {
    let done = 0;
    for (const { run, count } of vectors) {
      const share = Math.floor((tiles - done) / count);
      if (share === 0) continue;
      const apart = share * i.rowPanelBytes;
      const outApart = share * PANEL_ROWS * 4;
      const w = weights + (from + done) * i.rowPanelBytes;
      kernels.vector(run, w, x, out + done * PANEL_ROWS * 4, share, apart, outApart);
      done += share * count;
    }
    kernels.check?.(weights + from * i.rowPanelBytes, x, out, tiles);
  };
  const tokenTile = (
    base: number,
    x: number,
    width: number,
    count: number,
    out: number,
    stride: number,
  ) => {
    const { run, groups } = matrix[width - 2]!;
    for (let g = 0; g * i.width < PANEL_ROWS * 4; g += groups) {
      kernels.matrix(run, base, g, x, out + g * i.width, count, stride);
    }
  };
  const fullInStreams = matrix.at(-1)?.inStreams;
  /** Runs as many row panels as fill the streams, for all full token tiles; returns their number. */
  const inStreams = (
    w: number,
    activations: number,
    tiles: number,
    full: number,
    out: number,
    stride: number,
  ) => {
    if (!fullInStreams) return 0;
    const share = Math.floor(tiles / streams);
    const apart = share * i.rowPanelBytes;
    const outApart = share * PANEL_ROWS * 4;
    for (let t = 0; share > 0 && t < full; t++) {
      const x = activations + t * tile * tokenBytes;
      const target = out + t * tile * stride;
      kernels.streams!(fullInStreams, w, x, target, share, stride, apart, outApart);
    }
    return share * streams;
  };
  return (w, x, tokens, from, to, out, outStride) => {
    const full = tile === 1 ? 0 : Math.floor(tokens / tile);
    const done = full * tile;
    const rest = tokens - done;
    const inPanels = tile > 1 && (full > 0 || rest > 1);
    const first = w + from * i.rowPanelBytes;
    const streamed = from + inStreams(first, x, to - from, full, out, outStride);
    const xRest = x + done * tokenBytes;
    for (let t = rest > 1 ? from : streamed; inPanels && t < to; t++) {
      const base = kernels.tile(w + t * i.rowPanelBytes, unpack);
      const target = out + (t - from) * PANEL_ROWS * 4;
      if (full > 0 && t >= streamed) tokenTile(base, x, tile, full, target, outStride);
      if (rest > 1) tokenTile(base, xRest, rest, 1, target + done * outStride, outStride);
    }
    const single = tile > 1 && rest > 1 ? tokens : done;
    for (let token = single; token < tokens; token++) {
      oneToken(w, x + token * tokenBytes, from, to - from, out + token * outStride);
    }
  };
}

/** Chunks are ranges of row panels. */
export function tiledMatmul(i: TiledMatmul, c: ExecutorContext, kernels: TileKernels): Executor {
  const tiles = Math.ceil(i.n / PANEL_ROWS);
  const wholePanels = Math.floor(i.n / PANEL_ROWS);
  const shared = chunkBounds(tiles, c.program.threads);
  const scratch = i.scratch + c.thread * i.scratchBytes;
  const variants = i.variants.map((variant) => ({
    runPanels: runVariant(i, c, kernels, variant),
    bounds: variant.shared ? shared : [0, tiles],
  }));
  const current = () => variants[chosen(c, i.choice, rowCount(c, i.rows))]!;
  return {
    chunks: () => (rowCount(c, i.rows) === 0 ? 0 : current().bounds.length - 1),
    weight: (chunk) => {
      const { bounds } = current();
      return (bounds[chunk + 1]! - bounds[chunk]!) * i.rowPanelBytes;
    },
    run: (chunk) => {
      const { runPanels, bounds } = current();
      const tokens = rowCount(c, i.rows);
      const from = bounds[chunk]!;
      const to = bounds[chunk + 1]!;
      const whole = Math.min(to, wholePanels);
      if (whole > from) {
        runPanels(i.w, i.x, tokens, from, whole, i.out + from * PANEL_ROWS * 4, i.n * 4);
      }
      if (to > wholePanels) {
        // The last row panel has padding rows: its results go through scratch memory.
        runPanels(i.w, i.x, tokens, wholePanels, tiles, scratch, PANEL_ROWS * 4);
        copyTail(i, c, scratch, wholePanels * PANEL_ROWS);
      }
      addBias(i, c, from * PANEL_ROWS, Math.min(i.n, to * PANEL_ROWS));
    },
    columns: {
      count: () => rowCount(c, i.rows),
      run: (from, to) => {
        const { runPanels } = current();
        const [first, end] = [from / PANEL_ROWS, to / PANEL_ROWS];
        runPanels(i.w, i.x, rowCount(c, i.rows), first, end, i.out + from * 4, i.n * 4);
        addBias(i, c, from, to);
      },
    },
  };
}

function copyTail(i: TiledMatmul, c: ExecutorContext, scratch: number, firstRow: number): void {
  const { f32 } = c.views;
  const rows = rowCount(c, i.rows);
  const count = i.n - firstRow;
  for (let token = 0; token < rows; token++) {
    const from = scratch / 4 + token * PANEL_ROWS;
    f32.copyWithin(i.out / 4 + token * i.n + firstRow, from, from + count);
  }
}

export function addBias(
  i: { bias: number; n: number; out: number; rows: Rows },
  c: ExecutorContext,
  from: number,
  to: number,
): void {
  if (i.bias < 0) return;
  const { f32 } = c.views;
  const rows = rowCount(c, i.rows);
  for (let token = 0; token < rows; token++) {
    const at = i.out / 4 + token * i.n;
    for (let row = from; row < to; row++) f32[at + row]! += f32[i.bias / 4 + row]!;
  }
}
