// Rows of a GPU's KV cache in the form that its kernels take and in the cache type's own, in which they are stored and go to other
// backends. Here a scale is a float, there a half float before the quants of its block.

import { f16ToF32, f32ToF16 } from "../../../base/half.ts";
import type { KvRows } from "./kv-format.ts";

/** Blocks of a scale and `bytes` bytes behind it. */
export function scaledRows(bytes: number): KvRows {
  const [hereBytes, ownBytes] = [4 + bytes, 2 + bytes];
  return {
    toOwn(here, own) {
      const [from, to] = [viewOf(here), viewOf(own)];
      for (let at = 0, out = 0; at < here.length; at += hereBytes, out += ownBytes) {
        to.setUint16(out, f32ToF16(from.getFloat32(at, true)), true);
        own.set(here.subarray(at + 4, at + hereBytes), out + 2);
      }
    },
    fromOwn(own, here) {
      const [from, to] = [viewOf(own), viewOf(here)];
      for (let at = 0, out = 0; at < own.length; at += ownBytes, out += hereBytes) {
        to.setFloat32(out, f16ToF32(from.getUint16(at, true)), true);
        here.set(own.subarray(at + 2, at + ownBytes), out + 4);
      }
    },
  };
}

/** Rows with the quants of all blocks first, of `block` values and `bytes` bytes each, and then all scales. */
export function planeRows(block: number, bytes: number): KvRows {
  const ownBytes = 2 + bytes;
  /** Calls `each` with where a block is in its own form, and where its quants and its scale are here. */
  const forBlocks = (
    size: number,
    cols: number,
    each: (own: number, quants: number, scale: number) => void,
  ): void => {
    const blocks = cols / block;
    const rowBytes = blocks * (4 + bytes);
    for (let row = 0, own = 0; row < size; row += rowBytes) {
      for (let i = 0; i < blocks; i++, own += ownBytes) {
        each(own, row + i * bytes, row + blocks * bytes + i * 4);
      }
    }
  };
  return {
    toOwn(here, own, cols) {
      const [from, to] = [viewOf(here), viewOf(own)];
      forBlocks(here.length, cols, (at, quants, scale) => {
        to.setUint16(at, f32ToF16(from.getFloat32(scale, true)), true);
        own.set(here.subarray(quants, quants + bytes), at + 2);
      });
    },
    fromOwn(own, here, cols) {
      const [from, to] = [viewOf(own), viewOf(here)];
      forBlocks(here.length, cols, (at, quants, scale) => {
        to.setFloat32(scale, f16ToF32(from.getUint16(at, true)), true);
        here.set(own.subarray(at + 2, at + ownBytes), quants);
      });
    },
  };
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}
