// matmul over weights as the file has them, in register tiles of B0 rows x B1 tokens (kernels/ops/matmul/row-tiles.ts): opt
// level 2 where the type's blocks are multiplied as integers, and any type where a register tile is asked for. Experts'
// matrices are multiplied row by row instead (matmul.ts).

import { dtypeByName } from "../../../dtypes/table.ts";
import {
  blockRowTile,
  floatRowTile,
  MOST_ROW_TILE,
  type RowTile,
  rowScales,
  scaleStride,
} from "../../../kernels/ops/matmul/row-tiles.ts";
import type { KernelTarget } from "../../../kernels/target.ts";
import { chunkBounds, rowCount } from "../executor.ts";
import type { Matmul } from "./matmul-data.ts";
import { addBias } from "./matmul-run.ts";
import { area, type InstructionDef, type NodeCompiler } from "./op.ts";

export interface MatmulRowTiles extends Matmul {
  readonly op: "matmul_row_tiles";
  readonly tile: RowTile;
  readonly kernels: TileNames;
  readonly dtype: string;
  readonly x: number;
  /** Bytes of a token's activations. */
  readonly tokenBytes: number;
  readonly w: number;
  readonly rowBytes: number;
  /** For each thread: B0 rows as floats, or their scales. */
  readonly scratch: number;
  readonly scratchBytes: number;
}

interface TileNames {
  /** For token tiles of 1, 2, ..., B1 tokens: of B0 rows, and of the rows that are left at the end. */
  readonly whole: readonly string[];
  readonly last: readonly string[];
  /** Widens the scales of a row; undefined: floats are multiplied. */
  readonly scales: string | undefined;
}

/** Registers the kernels for a matrix of n rows. */
export function rowTileKernels(
  c: Pick<NodeCompiler, "kernel">,
  { rows, tokens }: RowTile,
  n: number,
  integers: { readonly dtype: string; readonly target: KernelTarget } | undefined,
): TileNames {
  const named = (count: number) =>
    Array.from({ length: count === 0 ? 0 : tokens }, (_, index) => {
      const tile = { rows: count, tokens: index + 1 };
      return c.kernel(integers ? blockRowTile(integers.dtype, tile) : floatRowTile(tile));
    });
  return {
    whole: named(rows),
    last: named(n % rows),
    scales: integers && c.kernel(rowScales(integers.dtype, integers.target)),
  };
}

/** Scratch memory of a thread, as much as the largest register tile needs with rows of `columns` columns. */
export function rowTileScratch(columns: number): number {
  return Math.max(MOST_ROW_TILE * columns * 4, (columns / 32) * scaleStride(MOST_ROW_TILE));
}

export const matmulRowTiles: InstructionDef<MatmulRowTiles> = {
  access: {
    stage: "as one",
    of: ({ rows, x, out }) => ({ rows, reads: [area(x, 0)], writes: [area(out, 0)] }),
  },
  kernels: ({ kernels: { whole, last, scales } }) => [
    ...whole,
    ...last,
    ...(scales === undefined ? [] : [scales]),
  ],
  code: "wasm",

  execute(i, c) {
    const { tile, kernels, k, n, rowBytes } = i;
    const whole = kernels.whole.map((name) => c.kernels[name]!);
    const last = kernels.last.map((name) => c.kernels[name]!);
    const widen = kernels.scales === undefined ? undefined : c.kernels[kernels.scales]!;
    const dtype = dtypeByName(i.dtype)!;
    const isFloat = dtype.asFloat32 !== undefined;
    const scratch = i.scratch + c.thread * i.scratchBytes;
    const floats = c.views.f32.subarray(scratch / 4, scratch / 4 + tile.rows * k);
    const bounds = chunkBounds(Math.ceil(n / tile.rows), c.program.threads);
    const blocks = k / dtype.blockElems;

    /** Widens the scales of rows, or unpacks them to floats; returns the address that the float kernels read. */
    const prepare = (w: number, count: number, bytes: Uint8Array, byteAt: number): number => {
      if (isFloat) return w;
      for (let row = 0; row < count; row++) {
        if (widen) {
          widen(w + row * rowBytes, scratch + row * 8, blocks, scaleStride(count));
        } else dtype.dequantize(bytes, byteAt + row * rowBytes, floats, row * k, blocks);
      }
      return scratch;
    };
    return {
      chunks: () => (rowCount(c, i.rows) === 0 ? 0 : bounds.length - 1),
      weight: (chunk) => (bounds[chunk + 1]! - bounds[chunk]!) * tile.rows * rowBytes,
      run: (chunk) => {
        const tokens = rowCount(c, i.rows);
        const full = Math.floor(tokens / tile.tokens);
        const rest = tokens - full * tile.tokens;
        const first = bounds[chunk]! * tile.rows;
        const end = Math.min(n, bounds[chunk + 1]! * tile.rows);
        const bytes = c.views.u8.subarray(i.w + first * rowBytes, i.w + end * rowBytes);
        for (let row = first; row < end; row += tile.rows) {
          const count = Math.min(tile.rows, end - row);
          const runs = count === tile.rows ? whole : last;
          const w = i.w + row * rowBytes;
          const ready = prepare(w, count, bytes, (row - first) * rowBytes);
          const apart = isFloat ? rowBytes : k * 4;
          const compute = (width: number, tiles: number, token: number) => {
            if (tiles === 0) return;
            const run = runs[width - 1]!;
            const x = i.x + token * i.tokenBytes;
            const out = i.out + (token * n + row) * 4;
            if (widen) run(w, scratch, x, out, blocks, tiles, rowBytes, n * 4);
            else run(ready, x, out, k, tiles, apart, i.tokenBytes, n * 4);
          };
          compute(tile.tokens, full, 0);
          if (rest > 0) compute(rest, 1, full * tile.tokens);
        }
        addBias(i, c, first, end);
      },
    };
  },
};
