// A batch of several tokens over neuron rows or columns (neurons.ts): nearly all neurons are needed then, so that row panels are
// made of them (kernels/ops/neurons/neuron-panels.ts), a few at a time in memory of the thread, and computed by the register tiles
// of all other matmuls. Results have the same bits.

import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { chunkBounds, type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import type { MatmulBlocks } from "./matmul.ts";
import { addBias, chosen } from "./matmul-run.ts";

export interface NeuronBatch {
  /** The matmul, whose weight is in no row panels: `w` is not read. */
  readonly matmul: MatmulBlocks;
  /** The kernel that makes panels. */
  readonly kernel: string;
  /** Panels that it makes at once, and the bytes from one to the next. */
  readonly panels: number;
  readonly panelBytes: number;
  /** Memory for them, for each thread. */
  readonly scratch: number;
  readonly scratchBytes: number;
}

/** The most tokens that are computed one by one, each with its own neurons. */
export const MOST_ALONE = 2;

/** Whether the tokens of this batch are computed one by one. */
export function areAlone(tokens: number, batch: NeuronBatch | undefined): boolean {
  return batch === undefined || tokens <= MOST_ALONE;
}

/** `make` writes the panels from number `first` on to this address. */
export function batchExecutor(
  batch: NeuronBatch,
  c: ExecutorContext,
  make: (first: number, to: number) => void,
): Executor {
  const i = batch.matmul;
  const made = batch.scratch + c.thread * batch.scratchBytes;
  const units = i.n / PANEL_ROWS / batch.panels;
  const bounds = chunkBounds(units, c.program.threads);
  const variants = i.variants.map((variant) => panelRunner(i, c, variant));
  return {
    chunks: () => (rowCount(c, i.rows) === 0 ? 0 : bounds.length - 1),
    weight: (chunk) => (bounds[chunk + 1]! - bounds[chunk]!) * batch.panels * batch.panelBytes,
    run: (chunk) => {
      const tokens = rowCount(c, i.rows);
      const runPanel = variants[chosen(c, i.choice, tokens)]!;
      const [from, to] = [bounds[chunk]! * batch.panels, bounds[chunk + 1]! * batch.panels];
      for (let first = from; first < to; first += batch.panels) {
        make(first, made);
        for (let index = 0; index < batch.panels; index++) {
          const out = i.out + (first + index) * PANEL_ROWS * 4;
          runPanel(made + index * batch.panelBytes, tokens, out);
        }
      }
      addBias(i, c, from * PANEL_ROWS, to * PANEL_ROWS);
    },
  };
}

/** Runs a row panel for `tokens` tokens: full token tiles, a narrower one, and a single token by the kernel for one. */
function panelRunner(
  i: MatmulBlocks,
  c: ExecutorContext,
  variant: MatmulBlocks["variants"][number],
): (w: number, tokens: number, out: number) => void {
  const { tile, tokenBytes } = variant;
  const { spans, codebook } = i;
  const stride = i.n * 4;
  const scratch = i.tileScratch + c.thread * i.tileScratchBytes; // read only by kernels that have it
  const unpacked = i.unpacked + c.thread * i.unpackedBytes; // the same
  const unpack = variant.unpack === undefined ? undefined : c.kernels[variant.unpack]!;
  const vector = c.kernels[variant.vector]!;
  const matrix = variant.matrix.map(({ kernel, groups }) => ({ run: c.kernels[kernel]!, groups }));
  const inTiles = (base: number, x: number, width: number, count: number, out: number) => {
    const { run, groups } = matrix[width - 2]!;
    for (let g = 0; g * i.width < PANEL_ROWS * 4; g += groups) {
      run(base, x, out + g * i.width, spans, count, codebook, stride, g, scratch);
    }
  };
  return (w, tokens, out) => {
    const full = tile === 1 ? 0 : Math.floor(tokens / tile);
    const done = full * tile;
    const rest = tile === 1 ? 0 : tokens - done;
    const xRest = i.x + done * tokenBytes;
    if (full > 0 || rest > 1) {
      if (unpack) unpack(w, unpacked, spans, codebook);
      const base = unpack ? unpacked : w;
      if (full > 0) inTiles(base, i.x, tile, full, out);
      if (rest > 1) inTiles(base, xRest, rest, 1, out + done * stride);
    }
    for (let token = rest > 1 ? tokens : done; token < tokens; token++) {
      vector(w, i.x + token * tokenBytes, out + token * stride, spans, 1, codebook);
    }
  };
}
