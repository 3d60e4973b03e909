// The predictors of a model that is being loaded (docs/use/sparse.md), checked against it.

import type { Graph } from "../graph/graph.ts";
import type { Predictors } from "../graph/predict.ts";
import { readPredictors } from "../models/predictor.ts";
import { isPredictorTensor } from "../models/predictor-names.ts";
import { type EngineParts, predictorTensor } from "./engine-parts.ts";

/** Whether a model has predictors among its tensors. */
export function hasPredictors({ tensors }: Pick<EngineParts, "tensors">): boolean {
  return [...tensors.keys()].some(isPredictorTensor);
}

/** None where none are asked for. */
export function predictorsOf(parts: EngineParts, graph: Graph): Predictors {
  const { predictors } = parts;
  if (predictors === undefined) return new Map();
  return predictors === "model"
    ? readPredictors(parts, parts, graph, (tensor) => tensor)
    : readPredictors(predictors, parts, graph, predictorTensor);
}
