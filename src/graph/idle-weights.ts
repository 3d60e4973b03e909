// Weights that a token does not read: the matrices of experts that its routes do not name.

import { weightElements } from "./cost.ts";
import type { Graph, Weight } from "./graph.ts";

/** The number of weight values that a token does not read. */
export function idleElements({ nodes }: Graph): number {
  const idle = new Map<Weight, number>();
  for (const node of nodes) {
    if (node.op !== "matmul_id") continue;
    const used = node.routes.cols / 2; // a route has an id and a weight for each expert
    const experts = node.weight.shape[0]!;
    idle.set(node.weight, weightElements(node.weight) * (1 - used / experts));
  }
  return [...idle.values()].reduce((sum, elements) => sum + elements, 0);
}
