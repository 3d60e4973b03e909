// State of sequences in and out of a GPU: StateTransfer for the WebGPU backend. A block or a slot is copied into one buffer that
// the host can map, layer behind layer, and comes over at once.

import { bytesFor, type DType } from "../../dtypes/dtype.ts";
import { kvPair } from "../../dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import { kvStates, recurrentStates } from "../../graph/graph.ts";
import type { StateTransfer } from "../backend.ts";
import type { Buffers, Layout } from "./buffers.ts";
import type { GpuDevice } from "./device.ts";
import type { SlotPlaces } from "./slot-places.ts";
import { MAP_READ, usage } from "./usage.ts";
import type { KvRows } from "./wgsl/kv-format.ts";

/** Keys or values of one layer. */
interface Piece {
  readonly buffer: GPUBuffer;
  /** Bytes of a block, here and in the cache type's own form. */
  readonly bytes: number;
  readonly ownBytes: number;
  readonly rows: KvRows | undefined;
  /** Values of a row. */
  readonly cols: number;
}

/** For as long as `buffers` are those of the backend: growKv() makes others. */
export function gpuTransfer(
  gpu: GpuDevice,
  layout: Layout,
  buffers: Buffers,
  places: SlotPlaces,
): StateTransfer {
  const { graph } = layout.plan;
  const { queue } = gpu.device;
  const { k, v } = kvPair(layout.kv.dtype);
  const { kvFormats } = layout;
  const piecesOf = (group: number): Piece[] =>
    kvStates(graph).flatMap((state, i) => {
      if (state.group !== group) return [];
      const { keys, values } = layout.kvBlocks[i]!;
      const own = (dtype: DType, cols: number) => KV_BLOCK_TOKENS * bytesFor(dtype, cols);
      return [
        {
          buffer: buffers.keys[i]!,
          bytes: keys,
          ownBytes: own(k, state.kCols),
          rows: kvFormats.k.rows,
          cols: state.kCols,
        },
        {
          buffer: buffers.values[i]!,
          bytes: values,
          ownBytes: own(v, state.vCols),
          rows: kvFormats.v.rows,
          cols: state.vCols,
        },
      ];
    });
  return {
    async readBlock(group, block, target) {
      const pieces = piecesOf(group);
      const sources = pieces.map(({ buffer, bytes }) => ({ buffer, at: block * bytes, bytes }));
      await bring(gpu, sources, (mapped) => {
        let [from, to] = [0, 0];
        for (const { bytes, ownBytes, rows, cols } of pieces) {
          const here = mapped.subarray(from, from + bytes);
          const own = target.subarray(to, to + ownBytes);
          if (rows) rows.toOwn(here, own, cols);
          else own.set(here);
          from += bytes;
          to += ownBytes;
        }
      });
    },
    writeBlock(group, block, source) {
      let at = 0;
      for (const { buffer, bytes, ownBytes, rows, cols } of piecesOf(group)) {
        const own = source.subarray(at, at + ownBytes);
        const here = rows ? new Uint8Array(bytes) : (own as Uint8Array<ArrayBuffer>);
        rows?.fromOwn(own, here, cols);
        queue.writeBuffer(buffer, block * bytes, here);
        at += ownBytes;
      }
    },
    async readSlot(slot, target) {
      const place = places.placeOf(slot);
      const sources = recurrentStates(graph).map(({ floats }, i) => {
        return { buffer: buffers.recurrent[i]!, at: place * floats * 4, bytes: floats * 4 };
      });
      await bring(gpu, sources, ({ buffer, byteOffset, byteLength }) => {
        target.set(new Float32Array(buffer, byteOffset, byteLength / 4));
      });
    },
    writeSlot(slot, source) {
      const place = places.placeOf(slot);
      let at = 0;
      for (const [i, { floats }] of recurrentStates(graph).entries()) {
        const part = source.slice(at, at + floats);
        queue.writeBuffer(buffers.recurrent[i]!, place * floats * 4, part);
        at += floats;
      }
    },
  };
}

/** Copies pieces of buffers to the host, behind each other, and shows them. */
async function bring(
  gpu: GpuDevice,
  sources: readonly { buffer: GPUBuffer; at: number; bytes: number }[],
  show: (mapped: Uint8Array) => void,
): Promise<void> {
  const { device } = gpu;
  const size = sources.reduce((sum, { bytes }) => sum + bytes, 0);
  if (size === 0) return;
  const stage = device.createBuffer({ size, usage: usage.mapRead | usage.copyTarget });
  try {
    const commands = device.createCommandEncoder();
    let to = 0;
    for (const { buffer, at, bytes } of sources) {
      commands.copyBufferToBuffer(buffer, at, stage, to, bytes);
      to += bytes;
    }
    device.queue.submit([commands.finish()]);
    await gpu.wait(stage.mapAsync(MAP_READ));
    show(new Uint8Array(stage.getMappedRange()));
    stage.unmap();
  } catch (error) {
    throw await gpu.explain(error);
  } finally {
    stage.destroy();
  }
  gpu.check();
}
