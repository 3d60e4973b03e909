// kv_write: stores keys and values of each token in the paged cache. Types without a kernel are quantized in TypeScript, with
// the same bytes on every target: a row is written once and read by every later token.

import { kvQuantizer } from "../../../dtypes/kv-types.ts";
import { dtypeByName } from "../../../dtypes/table.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { type ExecutorContext, perRow } from "../executor.ts";
import { area, type CacheRows, type InstructionDef, type LowerNode } from "./op.ts";

export interface KvWrite {
  readonly op: "kv_write";
  readonly k: number;
  readonly v: number;
  readonly keys: CacheRows;
  readonly values: CacheRows;
  readonly kCols: number;
  readonly vCols: number;
}

/** By the cache's type. */
const writers: Readonly<Record<string, string>> = {
  f32: "copy",
  f16: "store_f16",
  q8_0: "quantize_kv_q8_0",
};

export const lowerKvWrite: LowerNode<"kv_write"> = (c, n): KvWrite | string => {
  const { keys, values } = c.cache(n.state);
  for (const { type } of [keys, values]) {
    const kernel = writers[type];
    if ((kernel && !c.hasKernel(kernel)) || n.k.cols % 4 !== 0 || n.v.cols % 4 !== 0)
      return `no kernel for a ${type} cache`;
  }
  return {
    op: "kv_write",
    k: c.address(n.k),
    v: c.address(n.v),
    keys,
    values,
    kCols: n.k.cols,
    vCols: n.v.cols,
  };
};

export const kvWrite: InstructionDef<KvWrite> = {
  access: {
    stage: "row by row",
    of: ({ k, v, kCols, vCols }) => ({
      rows: "tokens",
      reads: [area(k, kCols * 4), area(v, vCols * 4)],
      writes: [],
    }),
  },
  kernels: ({ keys, values }) =>
    [...new Set([keys.type, values.type])].flatMap((type) => writers[type] ?? []),
  code: ({ kCols, vCols }) => [kCols, vCols],

  execute(i, c) {
    const writeKeys = rowWriter(i.keys, i.k, i.kCols, c);
    const writeValues = rowWriter(i.values, i.v, i.vCols, c);
    return perRow(c, "tokens", (row) => {
      writeKeys(row);
      writeValues(row);
    });
  },
};

/** Writes the row of a token, from `x` [tokens, cols] to its position in the cache. */
function rowWriter(
  { type, at, rowBytes, tables }: CacheRows,
  x: number,
  cols: number,
  { kernels, program: { batch }, views }: ExecutorContext,
): (row: number) => void {
  const write = writers[type] ? kernels[writers[type]]! : quantizer(type, views);
  return (row) => {
    const position = views.i32[batch.positions / 4 + row]!;
    const entry = tables / 4 + row * batch.tableLength + Math.floor(position / KV_BLOCK_TOKENS);
    const cacheRow = views.i32[entry]! * KV_BLOCK_TOKENS + (position % KV_BLOCK_TOKENS);
    write(x + row * cols * 4, at + cacheRow * rowBytes, cols);
  };
}

/** As a kernel: of `cols` floats at `x` to a row at `to`. */
function quantizer(
  type: string,
  { f32, u8 }: ExecutorContext["views"],
): (x: number, to: number, cols: number) => void {
  const dtype = dtypeByName(type)!;
  const quantize = kvQuantizer(dtype);
  return (x, to, cols) => quantize(f32, x / 4, u8, to, cols / dtype.blockElems);
}
