// The columns of `down` whose activations are not zero, of float weights (docs/inside/sparse.md, kernels/ops/neurons/float-neurons.ts), for
// one token. The weight lies in row panels as any other: batches of more tokens are matmuls like all others.

import {
  FLOAT_ENTRIES_AHEAD,
  FLOAT_ENTRY_BYTES,
} from "../../../kernels/ops/neurons/float-neurons.ts";
import { PANEL_ROWS } from "../../../kernels/ops/packed/packed.ts";
import { type Executor, type ExecutorContext, rowCount } from "../executor.ts";
import { type MatmulFloats, matmulFloats } from "./matmul.ts";
import { addBias } from "./matmul-run.ts";
import { either, evenBounds } from "./neurons.ts";
import { area, type InstructionDef } from "./op.ts";

export interface FloatColumns {
  readonly op: "float_columns";
  readonly matmul: MatmulFloats;
  /** The kernel that lists columns, and those that compute several panels at once, and one. */
  readonly lister: string;
  readonly kernel: string;
  readonly single: string;
  readonly together: number;
  /** Bytes of a column in a panel. */
  readonly columnBytes: number;
  /** For each thread: the length of the list (LIST_AT bytes), and the list. */
  readonly list: number;
  readonly listBytes: number;
}

const LIST_AT = 16;

/** Bytes of a list of `cols` columns, and of the words before it. */
export function floatListBytes(cols: number): number {
  return LIST_AT + (cols + FLOAT_ENTRIES_AHEAD) * FLOAT_ENTRY_BYTES;
}

export const floatColumns: InstructionDef<FloatColumns> = {
  access: {
    stage: "as one",
    of: ({ matmul: { rows, x, out } }) => ({
      rows,
      reads: [area(x, 0)],
      writes: [area(out, 0)],
    }),
  },
  kernels: ({ lister, kernel, single, matmul }) => [
    ...[lister, kernel, single],
    ...matmulFloats.kernels(matmul),
  ],
  code: "target",

  execute(i, c): Executor {
    const { rows } = i.matmul;
    return either(ofOne(i, c), matmulFloats.execute(i.matmul, c), () => rowCount(c, rows) === 1);
  },
};

/** For one token: every thread makes the list, which takes less time than waiting for another that does. */
function ofOne(i: FloatColumns, c: ExecutorContext): Executor {
  const { matmul, together } = i;
  const [lister, kernel, single] = [i.lister, i.kernel, i.single].map((name) => c.kernels[name]!);
  const { i32 } = c.views;
  const w = c.memories.pointer(matmul.w);
  const written = i.list + c.thread * i.listBytes;
  const list = written + LIST_AT;
  const bounds = evenBounds(matmul.n / PANEL_ROWS, c.program.threads);
  const { rowPanelBytes: apart } = matmul;
  return {
    chunks: () => bounds.length - 1,
    weight: (chunk) => bounds[chunk + 1]! - bounds[chunk]!,
    run: (chunk) => {
      const [first, end] = [bounds[chunk]!, bounds[chunk + 1]!];
      lister!(matmul.x, list, matmul.k, i.columnBytes, written);
      const entries = i32[written / 4]!;
      const rounds = Math.floor((end - first) / together);
      const rest = first + rounds * together;
      const out = (panel: number) => matmul.out + panel * PANEL_ROWS * 4;
      kernel!(w + first * apart, list, out(first), entries, rounds, apart);
      single!(w + rest * apart, list, out(rest), entries, end - rest, apart);
      addBias(matmul, c, first * PANEL_ROWS, end * PANEL_ROWS);
    },
  };
}
