// kv_write: stores keys and values of each token in the paged cache. Types without a kernel are quantized in TypeScript, with
// the same bytes on every target: a row is written once and read by every later token.

import { kvQuantizer } from "../../../dtypes/kv-types.ts";
import { dtypeByName } from "../../../dtypes/table.ts";
import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { smallestOverflow, staysFinite } from "../../../graph/reference-attention.ts";
import { largestOf } from "../../../graph/reference-memory.ts";
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
  /** Room for the largest magnitude of a row, for each thread. */
  readonly scratch: number;
  readonly scratchBytes: number;
  /** i32: the number of the first keys or values that the cache cannot hold; f32: their largest magnitude (kv-record.ts). */
  readonly record: number;
  readonly keysNumber: number;
  readonly valuesNumber: number;
}

interface Writer {
  /** kernel(x, out, n) */
  readonly kernel: string;
  /** It takes an address for the largest magnitude as well; where not, the type holds every float. */
  readonly reports: boolean;
}

/** By the cache's type. */
const writers: Readonly<Record<string, Writer>> = {
  f32: { kernel: "copy", reports: false },
  f16: { kernel: "store_f16", reports: true },
  q8_0: { kernel: "quantize_kv_q8_0", reports: true },
};

export const lowerKvWrite: LowerNode<"kv_write"> = (c, n): KvWrite | string => {
  const { keys, values } = c.cache(n.state);
  for (const { type } of [keys, values]) {
    const writer = writers[type];
    if ((writer && !c.hasKernel(writer.kernel)) || n.k.cols % 4 !== 0 || n.v.cols % 4 !== 0)
      return `no kernel for a ${type} cache`;
  }
  const keysNumber = c.kvRecord.number(n.k, keys.type);
  const valuesNumber = c.kvRecord.number(n.v, values.type);
  return {
    op: "kv_write",
    k: c.address(n.k),
    v: c.address(n.v),
    keys,
    values,
    kCols: n.k.cols,
    vCols: n.v.cols,
    ...c.scratch(CACHE_LINE),
    record: c.kvRecord.at,
    keysNumber,
    valuesNumber,
  };
};

/** Threads do not write to the same one. */
const CACHE_LINE = 64;

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
    [...new Set([keys.type, values.type])].flatMap((type) => writers[type]?.kernel ?? []),
  code: ({ kCols, vCols }) => [kCols, vCols],

  execute(i, c) {
    const writeKeys = rowWriter(i, { cache: i.keys, x: i.k, cols: i.kCols }, i.keysNumber, c);
    const writeValues = rowWriter(i, { cache: i.values, x: i.v, cols: i.vCols }, i.valuesNumber, c);
    return perRow(c, "tokens", (row) => {
      writeKeys(row);
      writeValues(row);
    });
  },
};

/** Rows of `x` [tokens, cols], and the cache that they go to. */
interface Written {
  readonly cache: CacheRows;
  readonly x: number;
  readonly cols: number;
}

/** Writes the row of a token, from `x` to its position in the cache, and records a row that the cache cannot hold. */
function rowWriter(
  i: KvWrite,
  { cache: { type, at, rowBytes, tables }, x, cols }: Written,
  number: number,
  c: ExecutorContext,
): (row: number) => void {
  const { batch } = c.program;
  const { i32 } = c.views;
  const write = writeRow(i, type, c);
  return (row) => {
    const position = i32[batch.positions / 4 + row]!;
    const entry = tables / 4 + row * batch.tableLength + Math.floor(position / KV_BLOCK_TOKENS);
    const cacheRow = i32[entry]! * KV_BLOCK_TOKENS + (position % KV_BLOCK_TOKENS);
    const from = x + row * cols * 4;
    const largest = write(from, at + cacheRow * rowBytes, cols);
    if (largest >= smallestOverflow) note(i, type, number, { from, cols }, c);
  };
}

/** Writes `cols` floats at `x` as a row at `to`, and returns their largest magnitude: 0 where the type holds every float. */
type WriteRow = (x: number, to: number, cols: number) => number;

function writeRow(i: KvWrite, type: string, { kernels, thread, views }: ExecutorContext): WriteRow {
  const { f32, u8 } = views;
  const writer = writers[type];
  if (!writer) {
    const dtype = dtypeByName(type)!;
    const quantize = kvQuantizer(dtype);
    return (x, to, cols) => {
      quantize(f32, x / 4, u8, to, cols / dtype.blockElems);
      return Math.abs(largestOf(f32, x / 4, cols));
    };
  }
  const kernel = kernels[writer.kernel]!;
  if (!writer.reports) {
    return (x, to, cols) => {
      kernel(x, to, cols);
      return 0;
    };
  }
  const largest = i.scratch + thread * i.scratchBytes;
  return (x, to, cols) => {
    kernel(x, to, cols, largest);
    return f32[largest / 4]!;
  };
}

/** Records a row that the type cannot hold, if it is the first. */
function note(
  { record }: KvWrite,
  type: string,
  number: number,
  { from, cols }: { from: number; cols: number },
  { views: { f32, i32 } }: ExecutorContext,
): void {
  if (i32[record / 4] !== 0) return;
  const largest = largestOf(f32, from / 4, cols);
  if (!Number.isFinite(largest)) return; // it was infinite before
  if (staysFinite(dtypeByName(type)!, Math.abs(largest))) return;
  if (Atomics.compareExchange(i32, record / 4, 0, number) === 0) f32[record / 4 + 1] = largest;
}
