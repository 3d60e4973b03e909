// Splits a graph in two between two layers. The second part begins with the residual that the first ends with. Both are
// ordinary graphs, so two backends can run one each (backends/split/). Nothing runs here.
//
// Where more values pass from layer to layer (four residuals in Gemma 3n, the first layer's values in RWKV 7), the first part ends by
// joining them, and the second begins by taking them apart again.
//
// Values are the same objects with the same ids in both parts, so traces of a batch show what the whole graph would show.
// States are numbered from 0 in each part, because each keeps only those of its own layers.

import { ModelError } from "../base/errors.ts";
import {
  type Graph,
  type GraphNode,
  inputsOf,
  type LayerState,
  layerCount,
  type NodeOf,
  type Value,
  type Weight,
  weightsOf,
} from "./graph.ts";

export interface SplitGraph {
  readonly front: Graph;
  readonly back: Graph;
  /** The value that passes from one part to the other: front.outputs.residual and back.input. */
  readonly between: Value;
  /** Values of nodes that the whole graph does not have there: joined ones in front, and those taken apart again in back. */
  readonly added: { readonly front: ReadonlySet<Value>; readonly back: ReadonlySet<Value> };
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
  const values = crossing(first, second, firstLayer);
  const { between, joins, slices } = joined(values, graph);
  const shared = sharedBefore(graph, firstLayer);
  if (shared) {
    throw new ModelError(
      `this model cannot be split before layer ${firstLayer}: ${shared.name} reads the KV cache of a layer before it`,
    );
  }
  const ownStates = statesBefore(graph, firstLayer);
  const front: Graph = {
    nodes: [...first, ...joins],
    weights: weightsIn(graph, first),
    states: ownStates,
    layerStarts: layerStarts.slice(0, firstLayer + 1),
    outputs: { residual: between },
  };
  const back: Graph = {
    nodes: [...slices, ...second.map((node) => renumbered(node, ownStates.length))],
    weights: weightsIn(graph, second),
    states: states
      .slice(ownStates.length)
      .map((state) => ({ ...state, layer: state.layer - firstLayer })),
    layerStarts: layerStarts.slice(firstLayer).map((start) => start - at + slices.length),
    input: between,
    outputs: graph.outputs,
  };
  const outs = (nodes: readonly GraphNode[]) => new Set(nodes.map(({ out }) => out!));
  return { front, back, between, added: { front: outs(joins), back: outs(slices) } };
}

/** Whether no layer from this one on reads the KV cache of one before. */
export function canSplit(graph: Graph, firstLayer: number): boolean {
  return sharedBefore(graph, firstLayer) === undefined;
}

function sharedBefore(graph: Graph, firstLayer: number): GraphNode | undefined {
  const own = statesBefore(graph, firstLayer).length;
  const second = graph.nodes.slice(graph.layerStarts[firstLayer]);
  return second.find((node) => "state" in node && node.state < own);
}

function statesBefore({ states }: Graph, firstLayer: number): LayerState[] {
  return states.filter(({ layer }) => layer < firstLayer);
}

/** The values of the first part that the second reads; all have the same rows. */
function crossing(
  first: readonly GraphNode[],
  second: readonly GraphNode[],
  firstLayer: number,
): Value[] {
  const made = new Set(first.flatMap((node) => (node.out ? [node.out] : [])));
  const read = new Set(second.flatMap(inputsOf).filter((value) => made.has(value)));
  const rows = new Set([...read].map((value) => value.rows));
  if (rows.size === 1) return [...read];
  const names = [...read].map(({ name }) => name).join(", ") || "none";
  throw new ModelError(
    `this model cannot be split before layer ${firstLayer}: expected values of the same tokens to pass from layer to layer, got ${names}. Put all layers on one device`,
  );
}

/** One value of several, the nodes that join them, and those that take them apart again. */
function joined(
  values: readonly Value[],
  { nodes }: Graph,
): { between: Value; joins: NodeOf<"concat">[]; slices: NodeOf<"slice">[] } {
  let id = 1 + nodes.reduce((most, { out }) => Math.max(most, out?.id ?? 0), 0);
  let between = values[0]!; // [rows, cols of all values until now]
  const joins: NodeOf<"concat">[] = [];
  for (const b of values.slice(1)) {
    const cols = between.cols + b.cols;
    const out = { id: id++, name: `joined[${joins.length}]`, rows: b.rows, cols };
    joins.push({ op: "concat", name: out.name, a: between, b, groups: 1, out });
    between = out;
  }
  if (joins.length === 0) return { between, joins, slices: [] };
  let from = 0;
  const slices = values.map((out): NodeOf<"slice"> => {
    from += out.cols;
    return { op: "slice", name: out.name, x: between, groups: 1, from: from - out.cols, out };
  });
  return { between, joins, slices };
}

function weightsIn({ weights }: Graph, nodes: readonly GraphNode[]): Weight[] {
  const used = new Set(nodes.flatMap(weightsOf).map(({ name }) => name));
  return weights.filter(({ name }) => used.has(name));
}

function renumbered(node: GraphNode, by: number): GraphNode {
  return "state" in node ? { ...node, state: node.state - by } : node;
}
