// Experts in host memory, of which some lie in slots of the GPU: the bytes of all of them as the GPU stores them, and the upload of
// one into a slot. expert-slots.ts decides which.

import { MemoryError } from "../../../base/errors.ts";
import type { Weight } from "../../../graph/graph.ts";
import type { WeightReader } from "../../backend.ts";
import { cut } from "../upload.ts";
import { planesOf, storedShape, type WeightLayout, type WeightPart } from "../weight-layout.ts";
import type { ExpertRange } from "./expert-ranges.ts";
import { ExpertSlots } from "./expert-slots.ts";

/** Bytes of each expert of a weight, in each plane. */
interface HeldWeight {
  readonly part: WeightPart;
  readonly wide: Uint8Array<ArrayBuffer>;
  readonly narrow: Uint8Array<ArrayBuffer> | undefined;
  readonly wideBytes: number;
  readonly narrowBytes: number;
}

/** Experts of a file that are cut into planes at once. */
const BYTES_AT_ONCE = 16 * 2 ** 20;

/** Bytes of all experts of these ranges in host memory. */
export function hostExpertBytes(ranges: readonly ExpertRange[]): number {
  const weights = new Set(ranges.flatMap((range) => range.weights));
  return [...weights].reduce((sum, weight) => {
    const { rows, wide, narrow } = storedShape(weight);
    return sum + rows * (wide + narrow);
  }, 0);
}

export class HostExperts {
  readonly #device: GPUDevice;
  readonly #layout: WeightLayout;
  readonly #buffers: readonly GPUBuffer[];
  readonly #held = new Map<string, HeldWeight>();
  readonly #names: ReadonlySet<string>;
  readonly #slots: ReadonlyMap<ExpertRange, ExpertSlots>;
  readonly #tables: ReadonlyMap<ExpertRange, GPUBuffer>;
  #uploadedBytes = 0;

  /** `tables`: by range. */
  constructor(
    device: GPUDevice,
    layout: WeightLayout,
    buffers: readonly GPUBuffer[],
    ranges: readonly ExpertRange[],
    tables: readonly GPUBuffer[],
  ) {
    this.#device = device;
    this.#layout = layout;
    this.#buffers = buffers;
    this.#names = new Set(ranges.flatMap(({ weights }) => weights.map(({ name }) => name)));
    this.#slots = new Map(
      ranges.map((range) => [range, new ExpertSlots(range.experts, range.slots)]),
    );
    this.#tables = new Map(ranges.map((range, i) => [range, tables[i]!]));
  }

  has({ name }: Weight): boolean {
    return this.#names.has(name);
  }

  /** Reads all experts of a weight into host memory. */
  async upload(weight: Weight, read: WeightReader): Promise<void> {
    const [experts] = weight.shape as [number, number, number];
    const parts = this.#layout.parts.get(weight.name)!;
    const { rows, wide, narrow } = storedShape(weight);
    const [wideBytes, narrowBytes] = [(rows / experts) * wide, (rows / experts) * narrow];
    if (parts.length > 1 || wideBytes % 4 !== 0 || narrowBytes % 4 !== 0) {
      throw new MemoryError(
        `webgpu: the slots of ${weight.name} do not fit one buffer, or an expert is no multiple of 4 bytes (${wideBytes} and ${narrowBytes}). Use fewer expertSlots, or none`,
      );
    }
    const held: HeldWeight = {
      part: parts[0]!,
      wide: new Uint8Array(experts * wideBytes),
      narrow: narrow > 0 ? new Uint8Array(experts * narrowBytes) : undefined,
      wideBytes,
      narrowBytes,
    };
    await fill(weight, held, read);
    this.#held.set(weight.name, held);
  }

  /** Fills the slots for a batch, pass by pass; `run` submits the range's kernels. */
  compute(range: ExpertRange, routes: Float32Array, tokens: number, run: () => void): void {
    const slots = this.#slots.get(range)!;
    const { queue } = this.#device;
    slots.begin(routes, tokens, range.used, range.routes.cols);
    while (slots.next((expert, slot) => this.#send(range, expert, slot))) {
      queue.writeBuffer(this.#tables.get(range)!, 0, slots.table);
      run();
    }
  }

  /** For people, after a run: the cache hits of experts, and the most used ones. */
  notes(): string[] {
    const all = [...this.#slots.values()];
    const [hits, misses] = [sum(all, "hits"), sum(all, "misses")];
    if (hits + misses === 0) return [];
    const percent = ((100 * hits) / (hits + misses)).toFixed(1);
    const hottest = [...this.#slots].slice(0, 2).map(([{ weights }, { uses }]) => {
      const order = Array.from(uses.keys()).sort((a, b) => uses[b]! - uses[a]!);
      const layer = /^blk\.\d+/.exec(weights[0]!.name)?.[0] ?? weights[0]!.name;
      return `${layer} ${order.slice(0, 4).join(", ")}`;
    });
    return [
      `experts in slots: ${percent} % of ${hits + misses} uses, ${all[0]!.slots} slots a layer; ${(this.#uploadedBytes / 2 ** 20).toFixed(0)} MiB were uploaded`,
      `experts that were used most: ${hottest.join("; ")}`,
    ];
  }

  #send({ weights }: ExpertRange, expert: number, slot: number): void {
    const { queue } = this.#device;
    for (const { name } of weights) {
      const { part, wide, narrow, wideBytes, narrowBytes } = this.#held.get(name)!;
      const buffer = this.#buffers[part.buffer]!;
      const at = part.wide.offset + slot * wideBytes;
      queue.writeBuffer(buffer, at, wide, expert * wideBytes, wideBytes);
      if (narrow) {
        const beside = part.narrow!.offset + slot * narrowBytes;
        queue.writeBuffer(buffer, beside, narrow, expert * narrowBytes, narrowBytes);
      }
      this.#uploadedBytes += wideBytes + narrowBytes;
    }
  }
}

async function fill(weight: Weight, held: HeldWeight, read: WeightReader): Promise<void> {
  const { wide, narrow } = held;
  const planes = planesOf(weight);
  if (!planes) {
    for (let at = 0; at < wide.length; at += BYTES_AT_ONCE) {
      await read(wide.subarray(at, at + BYTES_AT_ONCE), at);
    }
    return;
  }
  const { blockBytes } = weight.dtype;
  const total = wide.length / planes.wide;
  const most = Math.floor(BYTES_AT_ONCE / blockBytes);
  const file = new Uint8Array(Math.min(most, total) * blockBytes);
  for (let at = 0; at < total; at += most) {
    const blocks = Math.min(most, total - at);
    const bytes = file.subarray(0, blocks * blockBytes);
    await read(bytes, at * blockBytes);
    const wideTo = wide.subarray(at * planes.wide);
    cut(bytes, blocks, blockBytes, planes, wideTo, narrow!.subarray(at * planes.narrow));
  }
}

function sum(all: readonly ExpertSlots[], which: "hits" | "misses"): number {
  return all.reduce((total, slots) => total + slots[which], 0);
}
