// A layer's mixture of experts as models have it: norm, router, experts, residual.

import { dtypeByName } from "../../src/dtypes/table.ts";
import { GraphBuilder } from "../../src/graph/builder.ts";
import type { GateActivation, Graph, Routing, Weight } from "../../src/graph/graph.ts";

export const routedVocab = 32;

export interface RoutedGraphOptions {
  /** Of the experts' matrices. */
  readonly type: string;
  /** Of `down`; default: the same. */
  readonly downType?: string;
  readonly experts?: number;
  readonly used?: number;
  readonly embed?: number;
  readonly inner?: number;
  /** Of the router and of all experts. */
  readonly bias?: boolean;
  readonly activation?: GateActivation;
  readonly routing?: Partial<Routing>;
  /** The norm is an output as well. */
  readonly keepsNorm?: boolean;
}

/** Two layers of it, and nothing that would round what the last one gives. */
export function routedGraph({
  type,
  downType = type,
  experts = 8,
  used = 4,
  embed = 256,
  inner = 256,
  bias = false,
  activation = "silu",
  routing = {},
  keepsNorm = false,
}: RoutedGraphOptions): Graph {
  const f32 = dtypeByName("f32")!;
  const weight = (name: string, shape: number[], of = f32): Weight => ({ name, shape, dtype: of });
  const vector = (name: string, ...shape: number[]): Weight | undefined =>
    bias ? weight(`${name}.bias`, shape) : undefined;
  const g = new GraphBuilder();
  let x = g.embed(weight("table", [routedVocab, embed]), "embed"); // [tokens, embed]
  let normed = x;
  for (const layer of ["one", "second"]) {
    const matrices = (name: string, rows: number, cols: number, of: string): Weight =>
      weight(`${layer}.${name}`, [experts, rows, cols], dtypeByName(of)!);
    normed = g.rmsNorm(x, weight(`${layer}.norm`, [embed]), 1e-5, `${layer}.norm`); // [tokens, embed]
    const router = weight(`${layer}.router`, [experts, embed]);
    const logits = g.matmul(normed, router, `${layer}.router`, vector(`${layer}.router`, experts)); // [tokens, experts]
    const whole = { used, gating: "softmax", normalise: true, scale: 1, ...routing } as const;
    const routes = g.route(logits, whole, `${layer}.routes`); // [tokens, 2 * used]
    const [gate, up] = ["gate", "up"].map((name) => {
      const own = vector(`${layer}.${name}`, experts, inner);
      return g.matmulId(
        normed,
        routes,
        matrices(name, inner, embed, type),
        `${layer}.${name}`,
        own,
      );
    }); // [tokens, used * inner]
    const act = g.gate(gate!, up!, activation, `${layer}.inner`); // [tokens, used * inner]
    const ofDown = vector(`${layer}.down`, experts, embed);
    const matrix = matrices("down", embed, inner, downType);
    const down = g.matmulId(act, routes, matrix, `${layer}.down`, ofDown); // [tokens, used * embed]
    x = g.add(x, g.combine(down, routes, `${layer}.combined`), `${layer}.residual`); // [tokens, embed]
  }
  return g.finish({ hidden: g.select(keepsNorm ? g.add(x, normed, "sum") : x, "hidden") });
}
