// Parameters of a model that is no plain transformer, counted from its graph: recurrent layers, with experts or without.

import { weightElements } from "../graph/cost.ts";
import { type Graph, type GraphNode, layerCount, type Weight, weightsOf } from "../graph/graph.ts";
import { tensorOf } from "../graph/weight-source.ts";
import type { ParameterCounts } from "./shape.ts";

/** Vectors count as norms; of experts, only those that a token uses are active. */
export function graphParameters(graph: Graph): ParameterCounts {
  const { nodes, layerStarts } = graph;
  const [first, end] = [layerStarts[0] ?? 0, layerStarts.at(-1) ?? nodes.length];
  const ofLayers = matricesOf(nodes.slice(first, end));
  const ofHead = matricesOf(nodes.slice(end));
  const ofTable = matricesOf(nodes.slice(0, first));
  const isFeedForward = ({ name }: Weight) => /\.(ffn|channel_mix)_/.test(name);
  const layers = elements(ofLayers.keys());
  const feedForward = elements([...ofLayers.keys()].filter(isFeedForward));
  const head = elements(ofHead.keys());
  const vectors = graph.weights.filter(
    (weight) => weight.shape.length === 1 && tensorOf(weight) !== undefined,
  );
  // A tied embedding table is the head, and counts once.
  const table = [...ofTable.keys()].filter((weight) => !ofHead.has(weight));
  return {
    attention: (layers - feedForward) / layerCount(graph),
    feedForward: feedForward / layerCount(graph),
    layers,
    head,
    embedding: elements(ofTable.keys()),
    active: [...ofLayers].reduce(
      (sum, [weight, share]) => sum + weightElements(weight) * share,
      head,
    ),
    total: layers + head + elements(table),
    norms: elements(vectors),
  };
}

/** The matrices of the file that nodes read, each with the share of it that a token reads. */
function matricesOf(nodes: readonly GraphNode[]): Map<Weight, number> {
  const found = new Map<Weight, number>();
  for (const node of nodes) {
    const share = node.op === "matmul_id" ? node.routes.cols / 2 / node.weight.shape[0]! : 1;
    for (const weight of weightsOf(node)) {
      if (weight.shape.length > 1 && tensorOf(weight) !== undefined) found.set(weight, share);
    }
  }
  return found;
}

function elements(weights: Iterable<Weight>): number {
  return [...weights].reduce((sum, weight) => sum + weightElements(weight), 0);
}
