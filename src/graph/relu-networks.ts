// Finds feed-forward networks in which a ReLU makes zeros, by their computation in a graph: down(relu(gate) * up),
// down(relu(up)^2). Backends leave out the work that these zeros make unnecessary, and predict.ts predicts the zeros. No
// architecture is named.

import { type GraphNode, inputsOf, type NodeOf, type Value } from "./graph.ts";

/** Activations that make zeros of values that are not above zero. */
const makesZeros: ReadonlySet<string> = new Set(["relu", "relu_squared"]);

export interface ReluNetwork {
  /** Reads the neurons. */
  readonly down: NodeOf<"matmul">;
  /** The node that makes the zeros. */
  readonly relu: NodeOf<"gate"> | NodeOf<"activate">;
}

/** The networks of a graph, in its order; predictors are none, though they have a ReLU. */
export function reluNetworks(nodes: readonly GraphNode[]): ReluNetwork[] {
  const makers = makersOf(nodes);
  const scores = new Set(nodes.flatMap((node) => (isOpening(node) ? node.gate : [])));
  return nodes.flatMap((down) => {
    if (down.op !== "matmul" || scores.has(down.out)) return [];
    const relu = zeroMaker(makers.get(down.x));
    return relu ? [{ down, relu }] : [];
  });
}

/** Whether scores open the output of a node. */
export function isOpening(node: GraphNode): node is NodeOf<"gate"> {
  return node.op === "gate" && node.activation === "step";
}

/** The input of a network's ReLU: where it is not above zero, the neuron is zero. */
export function openedBy({ relu }: ReluNetwork): Value {
  return relu.op === "gate" ? relu.gate : relu.x;
}

/** The matmul that makes a factor, perhaps with a ReLU in between; undefined if something else reads it, too. */
export function matmulBehind(
  makers: ReadonlyMap<Value, GraphNode>,
  readers: ReadonlyMap<Value, number>,
  factor: Value,
): NodeOf<"matmul"> | undefined {
  const node = makers.get(factor);
  if (!node || readers.get(factor) !== 1) return undefined;
  if (node.op === "matmul") return node;
  if (node.op !== "activate" || !makesZeros.has(node.activation)) return undefined;
  return matmulBehind(makers, readers, node.x);
}

/** The node that makes each value. */
export function makersOf(nodes: readonly GraphNode[]): Map<Value, GraphNode> {
  return new Map(nodes.flatMap((node) => (node.out ? [[node.out, node] as const] : [])));
}

/** The number of node operands that each value is. */
export function readersOf(nodes: readonly GraphNode[]): Map<Value, number> {
  const counts = new Map<Value, number>();
  for (const node of nodes) {
    for (const value of inputsOf(node)) counts.set(value, (counts.get(value) ?? 0) + 1);
  }
  return counts;
}

function zeroMaker(node: GraphNode | undefined): ReluNetwork["relu"] | undefined {
  if (node?.op === "activate") return makesZeros.has(node.activation) ? node : undefined;
  if (node?.op !== "gate" || !makesZeros.has(node.activation)) return undefined;
  return node.gate.cols === node.out.cols ? node : undefined;
}
