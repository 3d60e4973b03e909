// The rows of `up` that a token's gates need, for types whose rows become row panels as they are read (docs/inside/sparse.md,
// kernels/ops/neurons/word-rows.ts and float-neurons.ts). A few tokens compute the rows that any of them needs, larger batches all.

import type { Rows } from "../../../graph/graph.ts";
import { ROW_ENTRY_BYTES } from "../../../kernels/ops/neurons/neuron-rows.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { chunkBounds, type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import { type MatmulBlocks, type MatmulFloats, matmulKernels, tilesOf } from "./matmul.ts";
import { chosen, runVariant } from "./matmul-run.ts";
import { area, type InstructionDef } from "./op.ts";

export interface GatheredRows {
  readonly op: "gathered_rows";
  readonly rows: Rows;
  readonly n: number;
  readonly out: number;
  /** f32 [rows][n]: neurons with a gate of zero or less are left out. */
  readonly gate: number;
  readonly w: number;
  readonly rowBytes: number;
  /** Rounds of the kernel that makes panels. */
  readonly rounds: number;
  /** The matmul of a panel; its weight is in no panels: `w` is not read there. */
  readonly matmul: MatmulBlocks | MatmulFloats;
  /** The kernels that list rows, and that make a panel of 16 of them. */
  readonly lister: string;
  readonly gatherer: string;
  /** For each thread: f32 [n], the gates of several tokens. */
  readonly gates: number;
  /** For each thread: the length of a list, and results (LIST_AT bytes), then the list; and panels. */
  readonly list: number;
  readonly listBytes: number;
  readonly panels: number;
  readonly panelsBytes: number;
}

/** Panels that are computed at once, in streams, and their rows. */
export const PANELS_TOGETHER = 4;
const ROWS_TOGETHER: number = PANELS_TOGETHER * PANEL_ROWS;

/** The most tokens that compute only the rows that any of them needs. */
const MOST_TOKENS = 4;

/** Offsets of the results of panels, for each token, and of the list. */
const RESULTS_AT = 16;
const LIST_AT: number = RESULTS_AT + MOST_TOKENS * 4 * ROWS_TOGETHER;

/** Entries behind the last row: to the end of its panel, and another panel to prefetch. */
export const PANELS_BEHIND: number = 2 * PANEL_ROWS;

/** Bytes of a list of n rows, and of the words before it. */
export function gatheredListBytes(n: number): number {
  return LIST_AT + (n + PANELS_BEHIND + ROWS_TOGETHER) * ROW_ENTRY_BYTES;
}

export const gatheredRows: InstructionDef<GatheredRows> = {
  access: {
    stage: "as one",
    of: ({ rows, gate, out, matmul }) => ({
      rows,
      reads: [area(gate, 0), area(matmul.x, 0)],
      writes: [area(out, 0)],
    }),
  },
  kernels: ({ lister, gatherer, matmul }) => [lister, gatherer, ...matmulKernels(matmul)],
  code: "target",
  columns: ({ rows, n, matmul, out }) => ({
    ...{ rows, cols: n, whole: [matmul.x], writes: [out] },
    isSparse: true,
  }),

  execute(i, c): Executor {
    const bounds = chunkBounds(i.n / PANEL_ROWS, c.program.threads);
    const count = () => rowCount(c, i.rows);
    const needed = neededRows(i, c);
    const all = allRows(i, c);
    const run = (from: number, to: number) => {
      if (count() <= MOST_TOKENS) needed(from, to);
      else all(from, to);
    };
    return {
      chunks: () => (count() === 0 ? 0 : bounds.length - 1),
      weight: (chunk) => (bounds[chunk + 1]! - bounds[chunk]!) * PANEL_ROWS * i.rowBytes,
      run: (chunk) => run(bounds[chunk]! * PANEL_ROWS, bounds[chunk + 1]! * PANEL_ROWS),
      columns: { count, run },
    };
  },
};

/** Makes panels of the rows that a list names, and computes them for all tokens. */
function panelRunner(i: GatheredRows, c: ExecutorContext) {
  const gather = c.kernels[i.gatherer]!;
  const w = c.memories.pointer(i.w);
  const { rowPanelBytes } = i.matmul;
  const made = i.panels + c.thread * i.panelsBytes;
  const tiles = tilesOf(i.matmul, c);
  const variants = i.matmul.variants.map((variant) => runVariant(i.matmul, c, tiles, variant));
  return (list: number, panels: number, out: number, stride: number) => {
    const tokens = rowCount(c, i.rows);
    for (let panel = 0; panel < panels; panel++) {
      const entries = list + panel * PANEL_ROWS * ROW_ENTRY_BYTES;
      gather(w, entries, made + panel * rowPanelBytes, i.rounds);
    }
    const runPanels = variants[chosen(c, i.matmul.choice, tokens)]!;
    runPanels(made, i.matmul.x, tokens, 0, panels, out, stride);
  };
}

/** Computes the rows from..to whose gates are open for any token. */
function neededRows(i: GatheredRows, c: ExecutorContext): (from: number, to: number) => void {
  const lister = c.kernels[i.lister]!;
  const runPanels = panelRunner(i, c);
  const gatesOf = openGates(i, c);
  const { i32, f32 } = c.views;
  const written = i.list + c.thread * i.listBytes;
  const [results, list] = [written + RESULTS_AT, written + LIST_AT];
  return (from, to) => {
    const tokens = rowCount(c, i.rows);
    const gates = gatesOf(tokens, from, to);
    for (let token = 1; token < tokens; token++) {
      f32.fill(0, i.out / 4 + token * i.n + from, i.out / 4 + token * i.n + to);
    }
    const out = i.out + from * 4; // the lister makes the first token's results zero
    lister(gates, out, list, to - from, from * i.rowBytes, i.rowBytes, from * 4, written);
    const needed = i32[written / 4]!;
    for (let done = 0; done < needed; done += ROWS_TOGETHER) {
      const entries = list + done * ROW_ENTRY_BYTES;
      const panels = Math.ceil(Math.min(ROWS_TOGETHER, needed - done) / PANEL_ROWS);
      runPanels(entries, panels, results, 4 * ROWS_TOGETHER);
      for (let row = 0; row < panels * PANEL_ROWS; row++) {
        const place = (i.out + i32[(entries + row * ROW_ENTRY_BYTES) / 4 + 1]!) / 4;
        for (let token = 0; token < tokens; token++) {
          f32[place + token * i.n] = f32[results / 4 + token * ROWS_TOGETHER + row]!;
        }
      }
    }
  };
}

/** The address of gates from..to: a token's own, or 1 where any token's is open and 0 elsewhere. */
function openGates(i: GatheredRows, { thread, views }: ExecutorContext) {
  const { f32 } = views;
  const made = i.gates + thread * i.n * 4;
  return (tokens: number, from: number, to: number): number => {
    if (tokens === 1) return i.gate + from * 4;
    for (let row = from; row < to; row++) {
      let open = 0;
      // A gate that is not a number is open.
      for (let at = i.gate / 4 + row, token = 0; token < tokens; token++, at += i.n) {
        if (!(f32[at]! <= 0)) open = 1;
      }
      f32[made / 4 + row] = open;
    }
    return made + from * 4;
  };
}

/** Rows from..to, for all tokens. */
function allRows(i: GatheredRows, c: ExecutorContext): (from: number, to: number) => void {
  const runPanels = panelRunner(i, c);
  const { i32 } = c.views;
  const list = i.list + c.thread * i.listBytes + LIST_AT;
  return (from, to) => {
    for (let first = from; first < to; first += ROWS_TOGETHER) {
      const panels = Math.min(ROWS_TOGETHER, to - first) / PANEL_ROWS;
      for (let row = 0; row < (panels + 1) * PANEL_ROWS; row++) {
        const place = Math.min(first + row, i.n - 1) * i.rowBytes;
        i32[(list + row * ROW_ENTRY_BYTES) / 4] = place;
      }
      runPanels(list, panels, i.out + first * 4, i.n * 4);
    }
  };
}
