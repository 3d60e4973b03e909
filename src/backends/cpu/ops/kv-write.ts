// kv_write: stores keys and values of each token in the paged cache.

import { KV_BLOCK_TOKENS } from "../../../graph/batch.ts";
import { perRow } from "../executor.ts";
import { area, type InstructionDef, type LowerNode } from "./op.ts";

export interface KvWrite {
  readonly op: "kv_write";
  readonly kernel: string;
  readonly k: number;
  readonly v: number;
  readonly keys: number;
  readonly values: number;
  readonly kCols: number;
  readonly vCols: number;
  readonly rowBytes: number;
  /** Address of a ScaledTable. */
  readonly tables: number;
}

/** By the cache's type. */
const writers: Readonly<Record<string, string>> = {
  f32: "copy",
  f16: "store_f16",
  q8_0: "quantize_kv_q8_0",
};

export const lowerKvWrite: LowerNode<"kv_write"> = (c, n): KvWrite | string => {
  const type = c.kvDType.name;
  const kernel = writers[type];
  if (!kernel || !c.hasKernel(kernel) || n.k.cols % 4 !== 0 || n.v.cols % 4 !== 0)
    return `no kernel for a ${type} cache`;
  const { keys, values, rowBytes, tables } = c.cache(n.state);
  return {
    op: "kv_write",
    kernel,
    k: c.address(n.k),
    v: c.address(n.v),
    keys,
    values,
    kCols: n.k.cols,
    vCols: n.v.cols,
    rowBytes,
    tables,
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
  kernels: ({ kernel }) => [kernel],
  code: ({ kCols, vCols }) => [kCols, vCols],

  execute(i, c) {
    const kernel = c.kernels[i.kernel]!;
    const { batch } = c.program;
    return perRow(c, "tokens", (row) => {
      const position = c.views.i32[batch.positions / 4 + row]!;
      const entry = i.tables / 4 + row * batch.tableLength + Math.floor(position / KV_BLOCK_TOKENS);
      const cacheRow = c.views.i32[entry]! * KV_BLOCK_TOKENS + (position % KV_BLOCK_TOKENS);
      kernel(i.k + row * i.kCols * 4, i.keys + cacheRow * i.rowBytes, i.kCols);
      kernel(i.v + row * i.vCols * 4, i.values + cacheRow * i.rowBytes, i.vCols);
    });
  },
};
