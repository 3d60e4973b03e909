// Reads the weights of a model that is being loaded into its backend.

import { weightBytes } from "../graph/cost.ts";
import type { Graph, Weight } from "../graph/graph.ts";
import { type ReadTensor, weightReader } from "../graph/weight-source.ts";
import type { Laps } from "../profile/laps.ts";
import type { EngineParts } from "./engine-parts.ts";

export interface LoadWatch {
  progress(loadedBytes: number, totalBytes: number): void;
  /** Throws if the load was aborted. */
  check(): void | Promise<void>;
}

export function readerOf(parts: EngineParts): ReadTensor {
  return (name, target, at) => parts.readTensor(name, target, at);
}

export async function uploadWeights(
  parts: EngineParts,
  graph: Graph,
  watch: LoadWatch,
  laps: Laps | undefined,
): Promise<void> {
  const bytesOf = (weights: readonly Weight[]) =>
    weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const { backend } = parts;
  const readTensor = readerOf(parts);
  const total = bytesOf(graph.weights);
  let loaded = 0;
  watch.progress(0, total);
  const inFiles = await backend.uploadFiles?.({
    check: () => watch.check(),
    progress: (bytes, readMs) => {
      laps?.calls.add("read file", readMs, bytes);
      loaded += bytes;
      watch.progress(loaded, total);
    },
  });
  const rest = graph.weights.filter(({ name }) => !inFiles?.has(name));
  loaded = total - bytesOf(rest);
  for (const weight of rest) {
    await watch.check();
    await backend.upload(weight, weightReader(weight, readTensor));
    loaded += weightBytes(weight);
    watch.progress(loaded, total);
  }
}
