// Activations halfway between two quants of the type they are rounded to. A backend that computes one bit differently,
// or breaks ties the other way (C's roundf rounds away from zero, most processors to even), gets the other quant. That
// is not an error, so an op that is verified by itself gets inputs that are clearly on one side.

import type { DType } from "../../dtypes/dtype.ts";
import { type KvDType, kvPair } from "../../dtypes/kv-types.ts";
import { dtypeByName } from "../../dtypes/table.ts";
import type { Graph, Value } from "../../graph/graph.ts";

/** Relative to a value: some bits more than backends may differ by. */
const NEAR = 2 ** -20;

/** The types that each value is rounded to before it is multiplied or stored, by value id; others are left out. */
export function roundedTypes(
  { nodes }: Graph,
  cacheType: KvDType,
): ReadonlyMap<number, ReadonlySet<DType>> {
  const found = new Map<number, Set<DType>>();
  const add = (value: Value, type: DType | undefined) => {
    if (!type || type.asFloat32) return; // floats are not rounded
    found.set(value.id, (found.get(value.id) ?? new Set()).add(type));
  };
  const { k, v } = kvPair(cacheType);
  for (const node of nodes) {
    if (node.op === "matmul" || node.op === "matmul_id") {
      add(node.x, dtypeByName(node.weight.dtype.activation));
    }
    if (node.op === "kv_write") {
      add(node.k, k);
      add(node.v, v);
    }
  }
  return found;
}

/** The values, with the ones nearly halfway between two quants moved onto one. */
export function withoutTies(values: Float32Array, type: DType): Float32Array {
  const { blockElems } = type;
  const here = rounded(values, type);
  const [less, more] = [-NEAR, NEAR].map((by) => rounded(moved(values, blockElems, by), type));
  return values.map((value, i) => (less![i] === more![i] ? value : here[i]!));
}

/** Moves all values but the largest of each block, from which its scale is derived. */
function moved(values: Float32Array, blockElems: number, by: number): Float32Array {
  const result = values.map((value) => value * (1 + by));
  if (blockElems === 1) return result;
  for (let at = 0; at < values.length; at += blockElems) {
    let largest = at;
    for (let i = at; i < at + blockElems; i++) {
      if (Math.abs(values[i]!) > Math.abs(values[largest]!)) largest = i;
    }
    result[largest] = values[largest]!;
  }
  return result;
}

function rounded(values: Float32Array, type: DType): Float32Array {
  const blocks = values.length / type.blockElems;
  const bytes = new Uint8Array(blocks * type.blockBytes);
  const result = new Float32Array(values.length);
  type.quantize!(values, 0, bytes, 0, blocks);
  type.dequantize(bytes, 0, result, 0, blocks);
  return result;
}
