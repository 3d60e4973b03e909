// Adds predictors to a graph (docs/use/sparse.md): of the neurons of a ReLU network, those with a predicted score above zero are
// computed, and all others count as zero, regardless of their real value. The gate(x) that opens a neuron becomes step(scores) *
// gate(x), with scores = fc2(relu(fc1(x))) + bias. The reference computes just that; a backend may leave out rows of the gate whose
// scores are not above zero, and the rows and columns of `up` and `down` that the zeros then make unnecessary.
//
// Scores of a token depend on this token only, so that the results of a batch are those of its tokens alone.

import {
  type Graph,
  type GraphNode,
  type NodeOf,
  type Rows,
  type Value,
  type Weight,
  weightsOf,
  withInputs,
} from "./graph.ts";
import { makersOf, openedBy, readersOf, reluNetworks } from "./relu-networks.ts";
import { tensorOf } from "./weight-source.ts";

export interface Predictor {
  /** [rank, inputs] */
  readonly fc1: Weight;
  /** [neurons, rank] */
  readonly fc2: Weight;
  /** [neurons] */
  readonly bias: Weight | undefined;
  /** Its input: the network's own input, or that before the network's norm. */
  readonly reads: "norm" | "residual";
}

/** By the tensor whose rows are predicted. */
export type Predictors = ReadonlyMap<string, Predictor>;

/** A matmul whose results open the neurons of a network. */
export interface Predictable {
  readonly node: NodeOf<"matmul">;
  readonly tensor: string;
  readonly neurons: number;
  /** The value before the norm; undefined: there is no norm. */
  readonly residual: Value | undefined;
}

/** The matmuls that can have a predictor. */
export function predictables({ nodes }: Graph): Predictable[] {
  const [makers, readers] = [makersOf(nodes), readersOf(nodes)];
  return reluNetworks(nodes).flatMap((network) => {
    const opened = openedBy(network);
    const node = makers.get(opened);
    if (node?.op !== "matmul" || readers.get(opened) !== 1) return [];
    const tensor = tensorOf(node.weight);
    if (tensor === undefined || node.weight.source) return [];
    const norm = makers.get(node.x);
    const residual = norm?.op === "rms_norm" || norm?.op === "layer_norm" ? norm.x : undefined;
    return [{ node, tensor, neurons: node.out.cols, residual }];
  });
}

export function predictGraph(graph: Graph, predictors: Predictors): Graph {
  if (predictors.size === 0) return graph;
  const found = new Map<GraphNode, Predictable>(
    predictables(graph).map((each) => [each.node, each]),
  );
  const nodes: GraphNode[] = [];
  /** Replacements of values for later nodes. */
  const replaced = new Map<Value, Value>();
  const places: number[] = [];
  const ids = graph.nodes.flatMap(({ out }) => out?.id ?? []);
  let next = Math.max(graph.input?.id ?? -1, ...ids) + 1;
  const push = (node: object, name: string, rows: Rows, cols: number): Value => {
    const out: Value = { id: next++, name, rows, cols };
    nodes.push({ ...node, name, out } as unknown as GraphNode);
    return out;
  };
  for (const node of graph.nodes) {
    places.push(nodes.length);
    const predictable = found.get(node);
    const predictor = predictable && predictors.get(predictable.tensor);
    const scores = predictable && predictor && scoresOf(predictable, predictor, push);
    nodes.push(withInputs(node, (value) => replaced.get(value) ?? value));
    if (!scores || !node.out) continue;
    const { rows, cols } = node.out;
    const masked = { op: "gate", gate: scores, up: node.out, activation: "step" } as const;
    replaced.set(node.out, push(masked, `${node.name}_opened`, rows, cols));
  }
  places.push(nodes.length);
  const weights = new Map(nodes.flatMap(weightsOf).map((weight) => [weight.name, weight]));
  return {
    ...graph,
    nodes,
    weights: [...weights.values()],
    layerStarts: graph.layerStarts.map((start) => places[start]!),
  };
}

/** fc2(relu(fc1(x))) + bias: [tokens, neurons] */
function scoresOf(
  { node, residual }: Predictable,
  { fc1, fc2, bias, reads }: Predictor,
  push: (node: object, name: string, rows: Rows, cols: number) => Value,
): Value {
  const { rows } = node.out;
  const x = reads === "residual" && residual ? residual : node.x;
  const rank = fc1.shape[0]!;
  const first = { op: "matmul", x, weight: fc1, bias: undefined } as const;
  const low = push(first, `${node.name}_fc1`, rows, rank); // [tokens, rank]
  const relu = { op: "activate", x: low, activation: "relu" } as const;
  const opened = push(relu, `${node.name}_fc1_relu`, rows, rank); // [tokens, rank]
  const second = { op: "matmul", x: opened, weight: fc2, bias } as const;
  return push(second, `${node.name}_scores`, rows, node.out.cols); // [tokens, neurons]
}
