// Splits a graph in two between two layers. The second part begins with the residual that the first ends with. Both are
// ordinary graphs, so two backends can run one each (backends/split/). Nothing runs here.
//
// Values are the same objects with the same ids in both parts, so traces of a batch show what the whole graph would show.
// States are numbered from 0 in each part, because each keeps only those of its own layers.

import { ModelError } from "../base/errors.ts";
import {
  type Graph,
  type GraphNode,
  inputsOf,
  layerCount,
  type Value,
  type Weight,
  weightsOf,
} from "./graph.ts";

export interface SplitGraph {
  readonly front: Graph;
  readonly back: Graph;
  /** The value that passes from one part to the other: front.outputs.residual and back.input. */
  readonly between: Value;
}

/** front: the layers before `firstLayer`. back: that layer, those after it, and the output. */
export function splitGraph(graph: Graph, firstLayer: number): SplitGraph {
  const { layerStarts, states } = graph;
  const at = layerStarts[firstLayer];
  if (at === undefined || at === 0) {
    throw new ModelError(
      `a model of ${layerCount(graph)} layers cannot be split before layer ${firstLayer}: expected a layer from 0 to ${layerStarts.length - 1}`,
    );
  }
  const [first, second] = [graph.nodes.slice(0, at), graph.nodes.slice(at)];
  const between = crossing(first, second, firstLayer);
  const ownStates = states.filter(({ layer }) => layer < firstLayer);
  const shared = second.find((node) => "state" in node && node.state < ownStates.length);
  if (shared) {
    throw new ModelError(
      `this model cannot be split before layer ${firstLayer}: ${shared.name} reads the KV cache of a layer before it. Put all layers on one device`,
    );
  }
  const front: Graph = {
    nodes: first,
    weights: weightsIn(graph, first),
    states: ownStates,
    layerStarts: layerStarts.slice(0, firstLayer + 1),
    outputs: { residual: between },
  };
  const back: Graph = {
    nodes: second.map((node) => renumbered(node, ownStates.length)),
    weights: weightsIn(graph, second),
    states: states
      .slice(ownStates.length)
      .map((state) => ({ ...state, layer: state.layer - firstLayer })),
    layerStarts: layerStarts.slice(firstLayer).map((start) => start - at),
    input: between,
    outputs: graph.outputs,
  };
  return { front, back, between };
}

/** The one value of the first part that the second reads. */
function crossing(
  first: readonly GraphNode[],
  second: readonly GraphNode[],
  firstLayer: number,
): Value {
  const made = new Set(first.flatMap((node) => (node.out ? [node.out] : [])));
  const read = new Set(second.flatMap(inputsOf).filter((value) => made.has(value)));
  const [value, ...others] = read;
  if (value && others.length === 0) return value;
  const names = [...read].map(({ name }) => name).join(", ") || "none";
  throw new ModelError(
    `this model cannot be split before layer ${firstLayer}: expected one value to pass from layer to layer, got ${read.size} (${names}). Put all layers on one device`,
  );
}

function weightsIn({ weights }: Graph, nodes: readonly GraphNode[]): Weight[] {
  const used = new Set(nodes.flatMap(weightsOf).map(({ name }) => name));
  return weights.filter(({ name }) => used.has(name));
}

function renumbered(node: GraphNode, by: number): GraphNode {
  return "state" in node ? { ...node, state: node.state - by } : node;
}
