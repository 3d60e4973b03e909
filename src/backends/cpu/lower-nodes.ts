// What each op of the graph becomes on the CPU backend: an instruction with addresses, or the reason why there is no kernel
// for it here and the reference must compute it.

import { bytesFor } from "../../dtypes/dtype.ts";
import type { GraphNode, NodeOf, OpKind, Rope, Value, Weight } from "../../graph/graph.ts";
import { ropeTableSize } from "../../kernels/ops/rope.ts";
import type { KvCacheOptions } from "../backend.ts";
import type { Instruction, TableRows } from "./program.ts";

/** What lowering a node asks of the compiler. */
export interface NodeCompiler {
  address(value: Value): number;
  vector(weight: Weight): number;
  rowsOf(weight: Weight): TableRows;
  /** Where a KvState lies, and the address of its block tables. */
  cache(state: number): { keys: number; values: number; rowBytes: number; tables: number };
  readonly kvType: string;
  readonly kvDType: KvCacheOptions["dtype"];
  hasKernel(name: string): boolean;
  ropeTable(rope: Rope, factors: Weight | undefined): number;
  matmul(node: NodeOf<"matmul">): Instruction;
}

/** An instruction, or the reason why the reference must do it. */
export function lowerNode(c: NodeCompiler, node: GraphNode): Instruction | string {
  const lower = lowerings[node.op] as (c: NodeCompiler, node: GraphNode) => Instruction | string;
  return lower(c, node);
}

type LowerNode<K extends OpKind> = (c: NodeCompiler, node: NodeOf<K>) => Instruction | string;

/** The instruction, unless the columns are not a multiple of a vector's lanes. */
const ifWhole = (cols: number, make: () => Instruction): Instruction | string =>
  cols % 4 === 0 ? make() : `${cols} columns, kernels take multiples of 4`;

const binary = (
  kernel: string,
  a: Value,
  b: Value,
  out: Value,
  c: NodeCompiler,
): Instruction | string =>
  ifWhole(out.cols, () => ({
    op: "binary",
    rows: out.rows,
    kernel,
    a: c.address(a),
    b: c.address(b),
    out: c.address(out),
    cols: out.cols,
  }));

const unary = (
  kernel: string,
  { x, out }: { x: Value; out: Value },
  c: NodeCompiler,
  argument = 0,
): Instruction | string =>
  ifWhole(out.cols, () => ({
    op: "unary",
    rows: out.rows,
    kernel,
    x: c.address(x),
    out: c.address(out),
    cols: out.cols,
    argument,
  }));

const lowerings: { readonly [K in OpKind]: LowerNode<K> } = {
  embed: (c, n) => {
    const table = c.rowsOf(n.table);
    const reader = table.layout === "raw" ? rowKernels[table.dtype] : undefined;
    const kernel = reader && table.cols % reader.unit === 0 ? reader.kernel : undefined;
    return { op: "embed", table, out: c.address(n.out), kernel };
  },
  select: (c, { x, out }) =>
    ifWhole(x.cols, () => ({
      op: "select",
      x: c.address(x),
      out: c.address(out),
      cols: x.cols,
    })),
  rms_norm: (c, n) => {
    const size = n.weight.shape[0]!;
    if (size % 4 !== 0) return `groups of ${size}, kernels take multiples of 4`;
    return {
      op: "rms_norm",
      rows: n.x.rows,
      x: c.address(n.x),
      out: c.address(n.out),
      weight: c.vector(n.weight),
      cols: n.x.cols,
      size,
      eps: n.eps,
    };
  },
  layer_norm: (c, n) =>
    ifWhole(n.x.cols, () => ({
      op: "layer_norm",
      rows: n.x.rows,
      kernel: n.bias ? "layer_norm_bias" : "layer_norm",
      x: c.address(n.x),
      out: c.address(n.out),
      weight: c.vector(n.weight),
      bias: n.bias ? c.vector(n.bias) : 0,
      cols: n.x.cols,
      eps: n.eps,
    })),
  // A row that ends in the middle of a vector would be padded where the next one begins.
  softmax: (c, { x, out }) =>
    ifWhole(x.cols, () => ({
      op: "softmax",
      rows: x.rows,
      x: c.address(x),
      out: c.address(out),
      cols: x.cols,
    })),
  activate: (c, n) => unary(n.activation, n, c),
  scale: (c, n) => unary("scale", n, c, n.factor),
  softcap: (c, n) => unary("softcap", n, c, n.cap),
  add: (c, n) => binary("add", n.a, n.b, n.out, c),
  mul: (c, n) => binary("mul", n.a, n.b, n.out, c),
  gate: (c, n) => binary(`${n.activation}_gate`, n.gate, n.up, n.out, c),
  matmul: (c, n) =>
    n.x.cols % 4 === 0 ? c.matmul(n) : `${n.x.cols} columns, kernels take multiples of 4`,
  rope: (c, n) => {
    const { layout, dims } = n.rope;
    const unit = layout === "half" ? 8 : 4;
    if (dims % unit !== 0 || n.headDim % 4 !== 0)
      return `${dims} rotated values, kernels take multiples of ${unit}`;
    return {
      op: "rope",
      kernel: `rope_${layout}`,
      x: c.address(n.x),
      out: c.address(n.out),
      table: c.ropeTable(n.rope, n.factors),
      tableSize: ropeTableSize(dims),
      cols: n.x.cols,
      headDim: n.headDim,
      dims,
    };
  },
  kv_write: (c, n) => {
    const kernel = kvWriteKernels[c.kvType];
    if (!kernel || !c.hasKernel(kernel) || n.k.cols % 4 !== 0)
      return `no kernel for a ${c.kvType} cache`;
    const { keys, values, rowBytes, tables } = c.cache(n.state);
    return {
      op: "kv_write",
      kernel,
      k: c.address(n.k),
      v: c.address(n.v),
      keys,
      values,
      cols: n.k.cols,
      rowBytes,
      tables,
    };
  },
  attention: (c, n) => {
    const dtype = c.kvDType;
    if (!c.hasKernel(`attn_scores_${c.kvType}`)) return `no kernel for a ${c.kvType} cache`;
    const unit = Math.max(4, dtype.blockElems);
    if (n.headDim % unit !== 0) return `heads of ${n.headDim}, kernels take multiples of ${unit}`;
    const { keys, values, rowBytes, tables } = c.cache(n.state);
    return {
      op: "attention",
      kvType: c.kvType,
      q: c.address(n.q),
      out: c.address(n.out),
      keys,
      values,
      heads: n.heads,
      kvHeads: n.kvHeads,
      headDim: n.headDim,
      headBytes: bytesFor(dtype, n.headDim),
      rowBytes,
      tables,
      scale: n.scale,
    };
  },
};

const kvWriteKernels: Readonly<Record<string, string>> = {
  f32: "copy",
  f16: "store_f16",
  q8_0: "quantize_kv_q8_0",
};

/**
 * Kernels that turn a raw row of a table into floats, and how many columns they take at a time. Rows of other types are
 * unpacked by TypeScript: measured, 3 us for 2048 columns, beside 10 ms and more for what a token then costs.
 */
const rowKernels: Readonly<Record<string, { kernel: string; unit: number }>> = {
  f32: { kernel: "copy", unit: 4 },
  f16: { kernel: "widen_f16", unit: 16 },
  bf16: { kernel: "widen_bf16", unit: 16 },
};
