// State of sequences in and out of memory that the host sees: StateTransfer for the reference and the CPU backend, whose caches
// differ in their strides only.

import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { KV_BLOCK_TOKENS } from "../graph/batch.ts";
import { type Graph, recurrentStates } from "../graph/graph.ts";
import type { ReferenceMemory, StoredKv } from "../graph/reference-memory.ts";
import type { StateTransfer } from "./backend.ts";

export function hostTransfer(
  graph: Graph,
  { kv, recurrent }: Pick<ReferenceMemory, "kv" | "recurrent">,
): StateTransfer {
  const { dtype } = kv;
  const slots = recurrentStates(graph).map(({ floats: size }, i) => {
    const { floats, stride } = recurrent.filter((state) => state !== undefined)[i]!;
    return { floats, stride, size };
  });
  const statesOf = (group: number) =>
    kv.states.filter((state) => state !== undefined && state.group === group) as StoredKv[];
  return {
    readBlock(group, block, target) {
      let at = 0;
      for (const state of statesOf(group)) {
        for (const { from, row, stride } of rowsOf(state, block, dtype)) {
          for (let i = 0; i < KV_BLOCK_TOKENS; i++, at += row) {
            target.set(from.subarray(i * stride, i * stride + row), at);
          }
        }
      }
    },
    writeBlock(group, block, source) {
      let at = 0;
      for (const state of statesOf(group)) {
        for (const { from: to, row, stride } of rowsOf(state, block, dtype)) {
          for (let i = 0; i < KV_BLOCK_TOKENS; i++, at += row) {
            to.set(source.subarray(at, at + row), i * stride);
          }
        }
      }
    },
    readSlot(slot, target) {
      let at = 0;
      for (const { floats, stride, size } of slots) {
        target.set(floats.subarray(slot * stride, slot * stride + size), at);
        at += size;
      }
    },
    writeSlot(slot, source) {
      let at = 0;
      for (const { floats, stride, size } of slots) {
        floats.set(source.subarray(at, at + size), slot * stride);
        at += size;
      }
    },
  };
}

/** Keys, then values, of a layer in a block: where they begin, bytes of a row, bytes to the next one. */
function rowsOf(state: StoredKv, block: number, dtype: DType) {
  const { keys, values, keyStride, valueStride, kCols, vCols, rowBytes } = state;
  const part = (bytes: Uint8Array, blockStride: number, cols: number) => {
    const row = bytesFor(dtype, cols);
    return { from: bytes.subarray(block * blockStride), row, stride: rowBytes ?? row };
  };
  return [part(keys, keyStride, kCols), part(values, valueStride, vCols)];
}
