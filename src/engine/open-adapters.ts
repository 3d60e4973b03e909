// Opens the adapters of a model that is being loaded: checks their files against it, and numbers their factors.

import type { AdapterInfo } from "../api/api.ts";
import { UsageError } from "../base/errors.ts";
import type { AdapterPairs } from "../graph/adapt.ts";
import type { Graph } from "../graph/graph.ts";
import { readAdapter } from "../models/adapter.ts";
import { type LoadedAdapter, MOST_ADAPTERS } from "./adapters.ts";
import { adapterTensor, type EngineParts } from "./engine-parts.ts";

export interface OpenedAdapters {
  readonly pairs: readonly AdapterPairs[];
  readonly adapters: readonly LoadedAdapter[];
  readonly adapterWarnings: readonly string[];
}

export function openAdapters(parts: EngineParts, graph: Graph): OpenedAdapters {
  const { adapters = [], format, name } = parts;
  if (adapters.length > MOST_ADAPTERS) {
    throw new UsageError(`adapters: got ${adapters.length}, expected at most ${MOST_ADAPTERS}`);
  }
  if (adapters.length > 0 && format !== "gguf") {
    // Rows of q and k are in another order there.
    throw new UsageError(
      `adapters: ${name} is not a GGUF file (${format}), and adapters fit the tensors of one. Convert the model ("lantern convert"), or leave out \`adapters\``,
    );
  }
  const read = adapters.map((part, i) =>
    readAdapter(part, { header: parts, graph }, (tensor) => adapterTensor(i, tensor)),
  );
  return {
    pairs: read.map(({ pairs }) => pairs),
    adapterWarnings: read.flatMap(({ warnings }) => warnings),
    adapters: adapters.map(({ name: own, path, scale, metadata, fingerprint }, id) => ({
      id,
      name: own,
      path,
      scale,
      rank: read[id]!.rank,
      alpha: read[id]!.alpha,
      taskName: metadata.string("adapter.lora.task_name") ?? "",
      promptPrefix: metadata.string("adapter.lora.prompt_prefix") ?? "",
      ...(read[id]!.invocation.length > 0 && { invocationTokens: [...read[id]!.invocation] }),
      fingerprint: `${fingerprint} ${read[id]!.alpha}`,
    })),
  };
}

export function adapterInfo({ fingerprint: _, ...info }: LoadedAdapter): AdapterInfo {
  return info;
}
