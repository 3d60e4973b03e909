// Graphs on a backend without an engine around it: from a file, or made for a measurement.

import { type Backend, evenCapacity } from "../src/backends/backend.ts";
import { CpuBackend } from "../src/backends/cpu/cpu.ts";
import { nativeKernels } from "../src/backends/cpu/native/native.ts";
import type { DType } from "../src/dtypes/dtype.ts";
import { sampleBlocks } from "../src/dtypes/sample-blocks.ts";
import { dtypeByName } from "../src/dtypes/table.ts";
import { openModelFile } from "../src/formats/open-model-file.ts";

import type { Batch, BatchSequence } from "../src/graph/batch.ts";
import type { Graph } from "../src/graph/graph.ts";
import { makePlan, type PlanLimits } from "../src/graph/plan.ts";
import { weightReader } from "../src/graph/weight-source.ts";
import { buildModel } from "../src/models/build.ts";
import { nodePlatform } from "../src/platform/node.ts";
import { nodeNative } from "../src/platform/node-native.ts";

/** The graph of a file; `uploadTo` gives its weights to a backend that is prepared, and closes it. */
export async function openGraph(
  path: string,
): Promise<{ graph: Graph; uploadTo(backend: Backend): Promise<void> }> {
  const file = await openModelFile(await nodePlatform.openModelSource({ kind: "path", path }));
  const { graph } = buildModel(file);
  const readTensor = async (name: string, target: Uint8Array, at: number): Promise<void> => {
    await file.readTensor(file.tensors.get(name)!, target, at);
  };
  const uploadTo = async (backend: Backend): Promise<void> => {
    for (const weight of graph.weights) {
      await backend.upload(weight, weightReader(weight, readTensor));
    }
    await file.close();
  };
  return { graph, uploadTo };
}

/** A made graph on the processor, with samples of each type as weights: which values they are makes no difference to the time. */
export async function cpuBackendOf(
  graph: Graph,
  limits: PlanLimits,
  threads: number,
): Promise<CpuBackend> {
  const native = nativeKernels(nodeNative());
  const startThread = () => nodePlatform.startThread("compute");
  const backend = new CpuBackend({ level: 3, threads, startThread, native });
  await backend.prepare(makePlan(graph, limits), evenCapacity(1, dtypeByName("f32")!));
  const samples = new Map<DType, Uint8Array>();
  for (const weight of graph.weights) {
    const sample = samples.get(weight.dtype) ?? sampleBlocks(weight.dtype, 1 << 18);
    samples.set(weight.dtype, sample);
    await backend.upload(weight, async (target) => {
      for (let at = 0; at < target.length; at += sample.length) {
        target.set(sample.subarray(0, Math.min(sample.length, target.length - at)), at);
      }
    });
  }
  return backend;
}

/** Fills a batch with tokens from a position on; the last one has logits. */
export function fillBatch(
  batch: Batch,
  { tokens, position, first }: { tokens: number; position: number; first: number },
  sequence: BatchSequence,
  vocab: number,
): void {
  batch.clear();
  for (let i = 0; i < tokens; i++) {
    batch.add((first + i * 37) % vocab, position + i, sequence, i === tokens - 1);
  }
}

export function likeliest(logits: Float32Array): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i]! > logits[best]!) best = i;
  return best;
}
