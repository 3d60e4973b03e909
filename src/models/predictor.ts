// Reads predictors of neurons (graph/predict.ts, docs/use/sparse.md): for each layer blk.N.fc1.weight [rank, inputs], blk.N.fc2.weight
// [neurons, rank], and perhaps blk.N.fc2.bias [neurons]. They are a file of their own (general.type "predictor", as "lantern sparsify"
// writes it), or among the tensors of a model (PowerInfer). All is checked against the model before a weight is read; one error lists
// all mismatches.

import { ModelError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import { dtypeByName } from "../dtypes/table.ts";
import type { Graph, Weight } from "../graph/graph.ts";
import {
  type Predictable,
  type Predictor,
  type Predictors,
  predictables,
} from "../graph/predict.ts";
import type { ModelHeader } from "./arch.ts";
import { problemList } from "./build.ts";
import { isPredictorTensor } from "./predictor-names.ts";

export interface PredictorHeader extends ModelHeader {
  /** For messages. */
  readonly name: string;
}

/** The type that a predictor file states. */
export const PREDICTOR_TYPE = "predictor";

/** Neurons are computed where scores are above it; 0 where a file does not say. */
const THRESHOLDS: readonly string[] = ["predictor.threshold", "powerinfer.sparse_threshold"];

/** `model` and `graph` are the ones it predicts for, `weightName` maps a tensor's name in its file to the name in the graph. */
export function readPredictors(
  file: PredictorHeader,
  model: ModelHeader,
  graph: Graph,
  weightName: (tensor: string) => string,
): Predictors {
  const isOwnFile = file.metadata !== model.metadata;
  if (isOwnFile) checkMetadata(file, model);
  const threshold = thresholdOf(file);
  const places = placesByLayer(graph);
  if (places.size === 0) {
    throw new ModelError(
      "predictors: no feed-forward network of this model has a ReLU, so that no neuron is zero. Leave out `predictors`",
    );
  }
  const problems = [...file.tensors.keys()].flatMap((name) => {
    if (!isPredictorTensor(name)) return isOwnFile ? [`unexpected: ${name}`] : [];
    return places.has(layerOf(name)!) ? [] : [`layer: ${name} is of no layer with a ReLU`];
  });
  const found = new Map<string, Predictor>();
  for (const [layer, place] of places) {
    const part = (name: string) => file.tensors.get(`blk.${layer}.${name}`);
    const [fc1, fc2, bias] = [part("fc1.weight"), part("fc2.weight"), part("fc2.bias")];
    if (!fc1 && !fc2 && !bias) continue; // all of its neurons are computed
    const problem = problemOf(layer, place, fc1, fc2, bias, threshold);
    if (problem !== undefined) {
      problems.push(problem);
      continue;
    }
    const named = (weight: Weight): Weight => ({
      name: weightName(weight.name),
      shape: weight.shape,
      dtype: weight.dtype,
    });
    found.set(place.tensor, {
      fc1: named(fc1!),
      fc2: named(fc2!),
      bias: bias ? named(bias) : thresholdBias(layer, place.neurons, threshold),
      reads: isOwnFile ? "norm" : "residual",
    });
  }
  if (found.size === 0 && problems.length === 0) {
    problems.push("none: expected blk.N.fc1.weight and blk.N.fc2.weight of some layers");
  }
  if (problems.length === 0) return found;
  throw new ModelError(
    `predictors ${file.name}: ${problems.length} of the tensors ${problems.length > 1 ? "do" : "does"} not fit the model. They are for another model, or the file is damaged: make predictors for this one ("lantern sparsify"). In detail:\n  ${problemList(problems)}`,
  );
}

function checkMetadata({ name, metadata }: PredictorHeader, model: ModelHeader): void {
  const fail = (key: string, got: unknown, expected: string): never => {
    throw new ModelError(`predictors ${name}: ${key}: got ${show(got)}, expected ${expected}`);
  };
  const type = metadata.string("general.type");
  if (type !== PREDICTOR_TYPE) {
    fail(
      "general.type",
      type,
      `"${PREDICTOR_TYPE}". Give a file that "lantern sparsify" made for this model`,
    );
  }
  const [own, base] = [metadata, model.metadata].map((each) => each.string("general.architecture"));
  if (own !== base) {
    fail("general.architecture", own, `"${base}", as the model has it: it is for another model`);
  }
}

function thresholdOf({ name, metadata }: PredictorHeader): number {
  for (const key of THRESHOLDS) {
    const value = metadata.number(key);
    if (value === undefined) continue;
    if (Number.isFinite(Math.fround(value))) return Math.fround(value);
    throw new ModelError(`predictors ${name}: ${key}: got ${value}, expected a finite number`);
  }
  return 0;
}

/** The networks that can have predictors, by the number of the layer. */
function placesByLayer(graph: Graph): Map<number, Predictable> {
  const places = predictables(graph).flatMap((place) => {
    const layer = layerOf(place.tensor);
    return layer === undefined ? [] : [[layer, place] as const];
  });
  return new Map(places);
}

function layerOf(tensor: string): number | undefined {
  const found = /^blk\.(\d+)\./.exec(tensor);
  return found ? Number(found[1]) : undefined;
}

function problemOf(
  layer: number,
  { node, neurons, residual }: Predictable,
  fc1: Weight | undefined,
  fc2: Weight | undefined,
  bias: Weight | undefined,
  threshold: number,
): string | undefined {
  const name = `blk.${layer}`;
  if (!fc1 || !fc2) return `missing: ${name}.${fc1 ? "fc2" : "fc1"}.weight`;
  const inputs = (residual ?? node.x).cols;
  const rank = fc1.shape[0];
  const isMatrix = fc1.shape.length === 2 && fc2.shape.length === 2;
  if (!isMatrix || fc1.shape[1] !== inputs || fc2.shape[0] !== neurons || fc2.shape[1] !== rank) {
    return `shape: ${name}.fc1.weight and fc2.weight are [${fc1.shape.join(", ")}] and [${fc2.shape.join(", ")}], expected [rank, ${inputs}] and [${neurons}, rank]`;
  }
  if (!bias) return undefined;
  if (bias.shape.length !== 1 || bias.shape[0] !== neurons || bias.dtype !== dtypeByName("f32")) {
    return `bias: ${name}.fc2.bias is ${bias.dtype.name} [${bias.shape.join(", ")}], expected f32 [${neurons}]`;
  }
  return threshold === 0
    ? undefined
    : `bias: ${name}.fc2.bias, and a threshold of ${threshold}: expected one of them`;
}

/** The bias on scores that moves those above the threshold above zero. */
function thresholdBias(layer: number, neurons: number, threshold: number): Weight | undefined {
  if (threshold === 0) return undefined;
  return {
    name: `predictor.${layer}.threshold`,
    shape: [neurons],
    dtype: dtypeByName("f32")!,
    source: { values: new Float32Array(neurons).fill(-threshold) },
  };
}
