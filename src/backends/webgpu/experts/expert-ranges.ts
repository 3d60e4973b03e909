// The nodes between a layer's router and its experts' last matmul, where the experts have fewer slots in GPU memory than there are
// experts: before them the host reads the routes and fills the slots, and a batch of more experts than slots runs them in several
// passes. Nothing is allocated here.

import { ModelError } from "../../../base/errors.ts";
import {
  type Graph,
  type NodeOf,
  sectionsOf,
  type Value,
  type Weight,
} from "../../../graph/graph.ts";

export interface ExpertRange {
  readonly routes: Value;
  /** Matrices of experts, of which a token uses `used`. */
  readonly experts: number;
  readonly used: number;
  /** Experts that lie in GPU memory at a time. */
  readonly slots: number;
  readonly weights: readonly Weight[];
  /** Indices of the first matmul, and of the node behind the last. */
  readonly from: number;
  readonly to: number;
}

/** In the order of the graph. */
export function expertRanges(graph: Graph, slots: number | undefined): ExpertRange[] {
  if (slots === undefined) return [];
  const matmuls = new Map<Value, { node: NodeOf<"matmul_id">; index: number }[]>();
  const routed = new Map<Value, NodeOf<"route">>();
  graph.nodes.forEach((node, index) => {
    if (node.op === "route" && node.routing.gating !== "all") routed.set(node.out, node);
    if (node.op !== "matmul_id" || !routed.has(node.routes)) return;
    matmuls.set(node.routes, [...(matmuls.get(node.routes) ?? []), { node, index }]);
  });
  const ranges: ExpertRange[] = [];
  if (slots < 1 && matmuls.size === 0) {
    throw new ModelError(
      `expertSlots: got ${slots}, a share of the experts, but this model has none on the GPU. The neurons of dense networks are not divided between GPU and processor by their use: give fewer gpuLayers, or overrideTensors, instead`,
    );
  }
  for (const [routes, own] of matmuls) {
    const experts = own[0]!.node.weight.shape[0]!;
    const held = slots < 1 ? Math.ceil(slots * experts) : slots;
    if (experts <= held) continue;
    ranges.push({
      routes,
      experts,
      used: routes.cols / 2,
      slots: held,
      weights: own.map(({ node }) => node.weight),
      from: own[0]!.index,
      to: own.at(-1)!.index + 1,
    });
  }
  ranges.forEach((range, i) => {
    checkRange(range, ranges[i - 1], graph);
  });
  return ranges;
}

function checkRange(range: ExpertRange, before: ExpertRange | undefined, graph: Graph): void {
  const { from, to, weights } = range;
  const results = new Set(graph.nodes.flatMap((node) => (node.op === "matmul_id" ? node.out : [])));
  // Passes compute a range several times, and would add to the same values each time.
  if (graph.nodes.some((node) => node.op === "adapt" && results.has(node.base))) {
    throw new ModelError(
      "expertSlots: an adapter changes the experts, and they then cannot be computed in several passes. Leave out expertSlots or the adapter",
    );
  }
  const isWhole = sectionsOf(graph).some((section) => section.from <= from && to <= section.to);
  if (isWhole && (!before || before.to <= from)) return;
  throw new ModelError(
    `expertSlots: ${weights[0]!.name} and the other experts of its layer are not computed one after the other${isWhole ? "" : ", since some are on the processor"}. Leave out expertSlots`,
  );
}
