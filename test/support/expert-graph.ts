// A mixture of experts whose routes are looked up by token: no matmul comes before them, so that a token has the same routes in every batch.

import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { Graph, Weight } from "../../src/graph/graph.ts";

export const expertVocab = 32;

export interface ExpertGraphOptions {
  /** Of the experts' matrices. */
  readonly type: string;
  /** Of `down`; default: the same. */
  readonly downType?: string;
  readonly experts?: number;
  readonly used?: number;
  /** Experts that have the same matrices. */
  readonly sharing?: number;
  readonly embed?: number;
  readonly inner?: number;
}

/** gate, up and down; and `odd`, with a bias and rows that fill no workgroup. */
export function expertGraph({
  type,
  downType = type,
  experts = 8,
  used = 4,
  sharing = 1,
  embed = 256,
  inner = 256,
}: ExpertGraphOptions): Graph {
  const f32 = dtypeByName("f32")!;
  const dtype = dtypeByName(type)!;
  const weight = (name: string, shape: number[], of = f32): Weight => ({ name, shape, dtype: of });
  const matrices = experts / sharing;
  const g = new GraphBuilder();
  const x = g.embed(weight("table", [expertVocab, embed]), "embed"); // [tokens, embed]
  const logits = g.embed(weight("choices", [expertVocab, experts]), "logits of experts"); // [tokens, experts]
  const routing = { used, gating: "softmax", normalise: true, scale: 2, sharing } as const;
  const routes = g.route(logits, routing, "routes"); // [tokens, 2 * used]
  const gate = g.matmulId(x, routes, weight("gate", [matrices, inner, embed], dtype), "gate"); // [tokens, used * inner]
  const up = g.matmulId(x, routes, weight("up", [matrices, inner, embed], dtype), "up"); // [tokens, used * inner]
  const act = g.gate(gate, up, "silu", "inner"); // [tokens, used * inner]
  const of = dtypeByName(downType)!;
  const down = g.matmulId(act, routes, weight("down", [matrices, embed, inner], of), "down"); // [tokens, used * embed]
  const bias = weight("odd.bias", [matrices, 37]);
  const odd = g.matmulId(x, routes, weight("odd", [matrices, 37, embed], dtype), "odd", bias); // [tokens, used * 37]
  g.combine(odd, routes, "combined odd"); // [tokens, 37]
  const combined = g.combine(down, routes, "combined"); // [tokens, embed]
  return g.finish({ hidden: g.select(combined, "hidden") });
}
