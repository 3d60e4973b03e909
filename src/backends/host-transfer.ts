// State of sequences in and out of memory that the host sees: StateTransfer for the reference and the CPU backend, whose caches
// differ in their strides only.

import { bytesFor } from "../dtypes/dtype.ts";
import type { KvPair } from "../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../graph/batch.ts";
import { type Graph, recurrentStates } from "../graph/graph.ts";
import type { ReferenceMemory, StoredKv } from "../graph/reference-memory.ts";
import type { StateTransfer } from "./backend.ts";

export function hostTransfer(
  graph: Graph,
  { kv, recurrent }: Pick<ReferenceMemory, "kv" | "recurrent">,
): StateTransfer {
  const { dtypes } = kv;
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
        for (const { from, bytes } of rowsOf(state, block, dtypes)) {
          target.set(from.subarray(0, bytes), at);
          at += bytes;
        }
      }
    },
    blockPieces: (group, block) =>
      joined(
        statesOf(group).flatMap((state) =>
          rowsOf(state, block, dtypes).map(({ from, bytes }) => from.subarray(0, bytes)),
        ),
      ),
    writeBlock(group, block, source) {
      let at = 0;
      for (const state of statesOf(group)) {
        for (const { from: to, bytes } of rowsOf(state, block, dtypes)) {
          to.set(source.subarray(at, at + bytes));
          at += bytes;
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

/** Pieces that follow each other in memory become one. */
function joined(pieces: readonly Uint8Array[]): Uint8Array[] {
  const all: Uint8Array[] = [];
  for (const piece of pieces) {
    const last = all.at(-1);
    const isNext =
      last?.buffer === piece.buffer && last.byteOffset + last.length === piece.byteOffset;
    if (last && isNext) {
      const { buffer, byteOffset, length } = last;
      all[all.length - 1] = new Uint8Array(buffer, byteOffset, length + piece.length);
    } else all.push(piece);
  }
  return all;
}

/** Keys, then values, of a layer in a block: where they begin, and their bytes. */
function rowsOf(state: StoredKv, block: number, { k, v }: KvPair) {
  const { keys, values, keyStride, valueStride, kCols, vCols } = state;
  return [
    { from: keys.subarray(block * keyStride), bytes: KV_BLOCK_TOKENS * bytesFor(k, kCols) },
    { from: values.subarray(block * valueStride), bytes: KV_BLOCK_TOKENS * bytesFor(v, vCols) },
  ];
}
