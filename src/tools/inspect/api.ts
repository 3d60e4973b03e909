// inspect() and openTokenizer(): they read a model's header on the caller's thread, and need the code of all formats, models and
// tokenizers for it, which open() leaves to the engine's thread.

import type {
  InspectOptions,
  ModelInspection,
  ModelLocation,
  TextTokenizer,
} from "../../api/api.ts";
import { LanternError, ModelError } from "../../base/errors.ts";
import type { OptionNames } from "../../base/options.ts";
import { defaultKvType, kvDTypeOf } from "../../dtypes/kv-types.ts";
import { checkMemoryOptions, checkOptions } from "../../engine/arguments.ts";
import {
  activeParameters,
  checkKvType,
  chooseContext,
  estimateMemory,
} from "../../engine/memory.ts";
import { halfCandidates, tensorsAsHalves } from "../../formats/half-weights.ts";
import type { ModelFile } from "../../formats/model-file.ts";
import { tokenizerOf } from "../../load/compose.ts";
import { withModelFile } from "../../load/model-file.ts";
import { describeAdapter } from "../../models/adapter.ts";
import { buildModel } from "../../models/build.ts";
import { filePooling } from "../../models/pooling.ts";

const inspectOptions: OptionNames<InspectOptions> = {
  contextSize: true,
  kvType: true,
  weights: true,
};

/** Reports the contents of a model file, and the memory that it needs; reads only the header. */
export async function inspect(
  location: ModelLocation,
  options: InspectOptions = {},
): Promise<ModelInspection> {
  checkOptions("inspect()", options, inspectOptions);
  checkMemoryOptions(options);
  return await withModelFile(location, (file) => {
    const tensors = [...file.tensors.values()];
    const bytesByType = Map.groupBy(tensors, (tensor) => tensor.dtype.name);
    const parameters = tensors.reduce(
      (sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1),
      0,
    );
    return {
      name: file.name,
      format: file.format,
      totalBytes: file.totalBytes,
      architecture: file.metadata.string("general.architecture"),
      parameters,
      metadata: [...file.metadata.keys()].map((key) => ({
        key,
        preview: file.metadata.preview(key)!,
      })),
      tensors: tensors.map(({ name, dtype, shape, byteLength }) => ({
        name,
        dtype: dtype.name,
        shape,
        bytes: byteLength,
      })),
      types: [...bytesByType].map(([dtype, group]) => ({
        dtype,
        tensors: group.length,
        bytes: group.reduce((sum, tensor) => sum + tensor.byteLength, 0),
      })),
      ...poolingOf(file),
      ...adapterFacts(file),
      ...modelNeeds(file, parameters, options),
    };
  });
}

/** The tokenizer of a model, without the model: also works on vocabulary-only files. */
export async function openTokenizer(location: ModelLocation): Promise<TextTokenizer> {
  return await withModelFile(location, (file) => tokenizerOf(file));
}

/** Also empty if the key has a meaningless number: only open() refuses that. */
function poolingOf({ metadata }: ModelFile): Pick<ModelInspection, "pooling"> {
  try {
    const pooling = filePooling(metadata);
    return pooling === undefined ? {} : { pooling };
  } catch (error) {
    if (error instanceof ModelError) return {};
    throw error;
  }
}

/** Empty if it is no adapter, or if a key of it is of another type: only opening it refuses that. */
function adapterFacts(file: ModelFile): Pick<ModelInspection, "adapter"> {
  try {
    const adapter = describeAdapter(file);
    return adapter ? { adapter } : {};
  } catch (error) {
    if (error instanceof LanternError) return {};
    throw error;
  }
}

/** Nothing for a file without a model that this build can run (a vocabulary, an unknown architecture). */
function modelNeeds(
  file: ModelFile,
  parameters: number,
  options: InspectOptions,
): Pick<ModelInspection, "activeParameters" | "memory"> {
  const { contextSize, kvType = defaultKvType, weights } = options;
  try {
    const { config, graph } = buildModel({
      metadata: file.metadata,
      tensors: weights ? tensorsAsHalves(file, halfCandidates(file)) : file.tensors,
    });
    const dtype = kvDTypeOf(kvType);
    checkKvType(dtype, graph);
    const active = activeParameters(graph, parameters);
    return {
      ...(active < parameters && { activeParameters: active }),
      memory: estimateMemory(graph, chooseContext(config, contextSize), dtype),
    };
  } catch (error) {
    if (error instanceof ModelError) return { memory: undefined };
    throw error;
  }
}
