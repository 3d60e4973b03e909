// A single matmul, [m, k] x [n, k]^T, as a graph that a backend runs like a model's: the embedding that feeds it, the
// matmul, and weights made of sample blocks; or a matmul over experts, with a router before it. Benchmarks and tuning
// measure it.

import type { Backend } from "../backends/backend.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { sampleBlocks } from "../dtypes/sample-blocks.ts";
import { dtypeByName } from "../dtypes/table.ts";
import { Batch } from "../graph/batch.ts";
import { GraphBuilder } from "../graph/builder.ts";
import { weightBytes } from "../graph/cost.ts";
import type { Graph, Weight } from "../graph/graph.ts";
import type { Experts } from "./tune-file.ts";

/** Name of the matmul's node. */
export const matmulName = "matmul";
/** Rows of the embedding table, which provides the activations. */
const tableRows = 16;
/** The same for experts: this many different tokens, each with its own choice of experts. */
const routedRows = 128;
/** Distinct values of each weight; they repeat, because quantizing all of them would take longer than the measurement. */
const distinctElements = 1 << 18;
export const floats: DType = dtypeByName("f32")!;

/** The matmul, or several with their own weights, one after the other. */
export function matmulGraph(dtype: DType, n: number, k: number, copies = 1): Graph {
  const table = { name: "token_embd.weight", shape: [tableRows, k], dtype: floats };
  const g = new GraphBuilder();
  const x = g.embed(table, "embed"); // [tokens, k]
  for (let copy = 1; copy < copies; copy++) {
    const name = `${matmulName}.${copy}`;
    g.matmul(x, { name: `bench.${copy}.weight`, shape: [n, k], dtype }, name); // [tokens, n]
  }
  const weight = { name: "bench.weight", shape: [n, k], dtype };
  return g.finish({ logits: g.matmul(x, weight, matmulName) }); // [tokens, n]
}

/** A matmul over experts, or several with their own weights, one after the other. */
export function expertsGraph(
  dtype: DType,
  n: number,
  k: number,
  { count, used }: Experts,
  copies = 1,
): Graph {
  const g = new GraphBuilder();
  const table = { name: "token_embd.weight", shape: [routedRows, k], dtype: floats };
  const x = g.embed(table, "embed"); // [tokens, k]
  const router = { name: "router.weight", shape: [count, k], dtype: floats };
  const scores = g.matmul(x, router, "router"); // [tokens, count]
  const routing = { used, gating: "softmax", normalise: true, scale: 1 } as const;
  const routes = g.route(scores, routing, "routes"); // [tokens, 2 * used]
  for (let copy = 1; copy < copies; copy++) {
    const weight = { name: `bench.${copy}.weight`, shape: [count, n, k], dtype };
    g.matmulId(x, routes, weight, `${matmulName}.${copy}`); // [tokens, used * n]
  }
  const weight = { name: "bench.weight", shape: [count, n, k], dtype };
  return g.finish({ logits: g.matmulId(x, routes, weight, matmulName) }); // [tokens, used * n]
}

/** Fills a weight with repeated sample blocks. */
export async function uploadSample(backend: Backend, weight: Weight): Promise<void> {
  const total = weightBytes(weight);
  const { dtype } = weight;
  const sample = sampleOf(dtype).subarray(0, total);
  await backend.upload(weight, async (target, byteOffset) => {
    for (let done = 0; done < target.length; ) {
      const from = (byteOffset + done) % bytesFor(dtype, distinctElements);
      const piece = sample.subarray(from, from + target.length - done);
      target.set(piece, done);
      done += piece.length;
    }
  });
}

/** Made once per type: small matmuls have hundreds of weights, and making values took most of the time of a tune. */
const samples = new Map<DType, Uint8Array>();

function sampleOf(dtype: DType): Uint8Array {
  const sample = samples.get(dtype) ?? sampleBlocks(dtype, distinctElements);
  samples.set(dtype, sample);
  return sample;
}

/** A batch of `tokens` tokens, each in its own sequence, with outputs for all; `isRouted`: for expertsGraph(). */
export function matmulBatch(
  tokens: number,
  limits: { maxTokens: number; maxOutputs: number },
  isRouted = false,
): Batch {
  const batch = new Batch(limits);
  for (let i = 0; i < tokens; i++) {
    batch.add(i % (isRouted ? routedRows : tableRows), 0, { blocks: new Int32Array(1) }, true);
  }
  return batch;
}
