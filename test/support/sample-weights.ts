// Weights for graphs that no file has: sample blocks of types with blocks, normal numbers of others. They depend on names, shapes and
// types alone, so that backends can be compared.

import { type Backend, evenCapacity } from "../../src/backends/backend.ts";
import { bytesFor } from "../../src/dtypes/dtype.ts";
import { sampleBlocks } from "../../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../../src/dtypes/table.ts";
import type { Graph, Weight } from "../../src/graph/graph.ts";
import { makePlan, type PlanLimits } from "../../src/graph/plan.ts";
import { Random } from "./random.ts";

const samples = new Map<string, Uint8Array>();

/** Prepares a backend for a graph, with one block of a cache of floats, and uploads all weights. */
export async function loadSamples(
  backend: Backend,
  graph: Graph,
  limits: PlanLimits,
): Promise<void> {
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, dtypeByName("f32")!));
  for (const each of graph.weights) {
    const bytes = bytesOf(each);
    await backend.upload(each, async (target, at) => {
      target.set(bytes.subarray(at, at + target.length));
    });
  }
}

function bytesOf({ name, shape, dtype }: Weight): Uint8Array {
  const count = shape.reduce((a, b) => a * b);
  if (dtype.blockElems > 1) {
    const key = `${dtype.name} ${count}`;
    const blocks = samples.get(key) ?? sampleBlocks(dtype, count);
    samples.set(key, blocks);
    return blocks;
  }
  const random = new Random(name.length * 100 + count);
  const values = Float32Array.from({ length: count }, () => random.normal());
  const bytes = new Uint8Array(bytesFor(dtype, count));
  dtype.quantize!(values, 0, bytes, 0, count);
  return bytes;
}
