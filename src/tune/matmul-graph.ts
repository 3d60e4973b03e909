// A single matmul, [m, k] x [n, k]^T, as a graph that a backend runs like a model's: the embedding that feeds it, the
// matmul, and weights made of sample blocks. Benchmarks and tuning measure it.

import type { Backend } from "../backends/backend.ts";
import { bytesFor, type DType } from "../dtypes/dtype.ts";
import { sampleBlocks } from "../dtypes/sample-blocks.ts";
import { dtypeByName } from "../dtypes/table.ts";
import { Batch } from "../graph/batch.ts";
import { GraphBuilder } from "../graph/builder.ts";
import { weightBytes } from "../graph/cost.ts";
import type { Graph, Weight } from "../graph/graph.ts";

/** Name of the matmul's node. */
export const matmulName = "matmul";
/** Rows of the embedding table, which provides the activations. */
const tableRows = 16;
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

/** A batch of `tokens` tokens, each in its own sequence, with outputs for all. */
export function matmulBatch(
  tokens: number,
  limits: { maxTokens: number; maxOutputs: number },
): Batch {
  const batch = new Batch(limits);
  for (let i = 0; i < tokens; i++) {
    batch.add(i % tableRows, 0, { blocks: new Int32Array(1) }, true);
  }
  return batch;
}
