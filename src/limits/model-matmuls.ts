// The matmuls of a model in the order in which a token goes through them, from the model's header alone. Matmuls that read
// the same activations (q, k and v; gate and up) are one group: their activations are prepared, or moved, once.

import type { Graph, GraphNode, NodeOf, Rows } from "../graph/graph.ts";
import type { ModelHeader } from "../models/arch.ts";
import { buildModel } from "../models/build.ts";

/** A matrix, or experts of that shape of which each token uses some. */
export interface ModelMatmul {
  readonly dtype: string;
  readonly n: number;
  readonly k: number;
  readonly experts?: { readonly count: number; readonly used: number };
}

export interface MatmulGroup {
  /** The name of its first matmul: "blk.0.attn_q". */
  readonly name: string;
  /** The kind of its rows: the output matrix is computed for fewer tokens than the layers. */
  readonly rows: Rows;
  /** Columns of the activations that it reads, and of all its results. */
  readonly inCols: number;
  readonly outCols: number;
  readonly matmuls: readonly ModelMatmul[];
}

/** Throws the errors of opening the model. */
export function modelMatmuls(header: ModelHeader): MatmulGroup[] {
  return graphMatmuls(buildModel(header).graph);
}

export function graphMatmuls({ nodes }: Graph): MatmulGroup[] {
  const byInput = new Map<number, MatmulNode[]>();
  for (const node of nodes) {
    if (!isMatmul(node)) continue;
    const known = byInput.get(node.x.id);
    if (known) known.push(node);
    else byInput.set(node.x.id, [node]);
  }
  return [...byInput.values()].map((same) => ({
    name: same[0]!.name,
    rows: same[0]!.out.rows,
    inCols: same[0]!.x.cols,
    outCols: same.reduce((sum, { out }) => sum + out.cols, 0),
    matmuls: same.map(matmulOf),
  }));
}

type MatmulNode = NodeOf<"matmul"> | NodeOf<"matmul_id">;

function isMatmul(node: GraphNode): node is MatmulNode {
  return node.op === "matmul" || node.op === "matmul_id";
}

function matmulOf(node: MatmulNode): ModelMatmul {
  const { shape, dtype } = node.weight;
  const of = { dtype: dtype.name, n: shape.at(-2)!, k: shape.at(-1)! };
  if (node.op === "matmul") return of;
  return { ...of, experts: { count: shape[0]!, used: node.routes.cols / 2 } };
}
