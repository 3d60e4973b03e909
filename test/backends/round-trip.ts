// What is written into a backend's state is read again, byte for byte. For the backends of the host and, in another tier, the GPU's.

import { expect } from "vitest";
import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { kvPair } from "../../src/dtypes/kv-types.ts";
import { KV_BLOCK_TOKENS } from "../../src/graph/batch.ts";
import { kvBlockBytes, slotFloats } from "../../src/graph/cost.ts";
import { kvGroups } from "../../src/graph/graph.ts";
import { makePlan } from "../../src/graph/plan.ts";
import { buildModel } from "../../src/models/build.ts";
import { kvOf } from "../support/kv.ts";
import { mixedName } from "../support/mixed-arch.ts";
import { Random } from "../support/random.ts";
import { tinyModel } from "../support/tiny-engine.ts";

const { graph } = buildModel(tinyModel({ architecture: mixedName }));
const plan = makePlan(graph, { maxTokens: 8, maxOutputs: 8 });
const [blocks, slots] = [6, 4];

/** Values that every type of cache can hold: quantized here, whatever their bits. */
function someBlock(random: Random, group: number, type: string): Uint8Array {
  const { k, v } = kvPair(kvOf(type));
  const bytes = new Uint8Array(kvBlockBytes(graph, group, { k, v }));
  let at = 0;
  for (const { kCols, vCols } of kvGroups(graph)[group]!.states) {
    for (const [dtype, cols] of [[k, kCols] as const, [v, vCols] as const]) {
      const elements = KV_BLOCK_TOKENS * cols;
      const values = Float32Array.from({ length: elements }, () => random.normal());
      dtype.quantize!(values, 0, bytes, at, elements / dtype.blockElems);
      at += bytesFor(dtype, elements);
    }
  }
  return bytes;
}

export async function expectRoundTrip(backend: Backend, type: string): Promise<void> {
  const room = evenCapacity(blocks, kvOf(type), kvGroups(graph).length);
  await backend.prepare(plan, { ...room, slots });
  const transfer = backend.transfer!;
  const random = new Random(3);
  for (const group of kvGroups(graph).keys()) {
    const written = [5, 0, 2].map((block) => ({ block, bytes: someBlock(random, group, type) }));
    for (const { block, bytes } of written) transfer.writeBlock(group, block, bytes);
    for (const { block, bytes } of written) {
      const read = new Uint8Array(bytes.length);
      await transfer.readBlock(group, block, read);
      expect(read, `group ${group}, block ${block}`).toEqual(bytes);
    }
  }
  const state = Float32Array.from({ length: slotFloats(graph) }, () => random.normal());
  transfer.writeSlot(2, state);
  const read = new Float32Array(state.length);
  await transfer.readSlot(2, read);
  expect(read).toEqual(state);
  await transfer.readSlot(1, read);
  expect(read.every((value) => value === 0)).toBe(true);
  backend.dispose();
}
