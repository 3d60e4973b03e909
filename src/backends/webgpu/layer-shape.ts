// The properties that decide the choice of a dispatch for each layer (layers.ts): the bytes of a layer, and a name for the computation of
// its ops, under which `lantern tune` stores its measurements.

import { fnv } from "../../base/fnv.ts";
import { weightBytes } from "../../graph/cost.ts";
import { type Graph, type GraphNode, layerCount, weightsOf } from "../../graph/graph.ts";
import type { LayerDispatch } from "./tuning.ts";

/** Bytes of a layer's weights that a token reads, on average: of experts those that it uses. */
export function layerBytes(graph: Graph): number {
  const shares = new Map(
    graph.nodes.map((node) =>
      node.op === "matmul_id"
        ? [node.weight, node.routes.cols / 2 / node.weight.shape[0]!]
        : [undefined, 1],
    ),
  );
  const bytes = graph.weights.reduce((sum, weight) => {
    return sum + weightBytes(weight) * Math.min(1, shares.get(weight) ?? 1);
  }, 0);
  return bytes / Math.max(1, layerCount(graph));
}

/** The same for graphs whose layers compute the same, however many there are: 8 hexadecimal digits. */
export function layerShape({ nodes, layerStarts }: Graph): string {
  const layers = layerStarts.slice(0, -1).map((from, i) =>
    nodes
      .slice(from, layerStarts[i + 1])
      .map(nodeText)
      .join("\n"),
  );
  return fnv([...new Set(layers)].sort().join("\n\n"));
}

/** Properties of a node that kernels depend on: the op, its columns, its heads, and the types and sizes of its weights. */
function nodeText(node: GraphNode): string {
  const heads = node.op === "attention" ? [node.heads, node.kvHeads, node.headDim] : [];
  const weights = weightsOf(node).map(({ dtype, shape }) => `${dtype.name} ${shape.join("x")}`);
  return [node.op, node.out?.cols ?? "", ...heads, ...weights].join(" ");
}

/** The first of these dispatches that is meant for this graph; undefined: none is. */
export function dispatchFor(
  graph: Graph,
  dispatch: LayerDispatch | undefined,
): LayerDispatch | undefined {
  if (!dispatch) return undefined;
  const [bytes, shape] = [layerBytes(graph), layerShape(graph)];
  const isMeant = ({ mostBytes = Infinity, shape: wanted = shape }: LayerDispatch): boolean =>
    bytes <= mostBytes && shape === wanted;
  let found: LayerDispatch | undefined = dispatch;
  while (found && !isMeant(found)) found = found.otherwise;
  return found;
}
