// disk_guess and disk_ahead: no ops of the graph. Where experts are read on demand, disk_guess applies the router of the next layer
// with experts to the input of this layer's router, which the next one's resembles; disk_ahead asks for the experts that it
// would choose. They are read while this layer is computed (disk/ahead.ts). No result depends on them.

import type { NodeOf, Routing, Rows, Value } from "../../../graph/graph.ts";
import { routeRow, routeScratchSize } from "../../../graph/route.ts";
import { DemandSlots } from "../disk/demand-slots.ts";
import { rowCount } from "../executor.ts";
import { type MatmulBlocks, type MatmulFloats, matmulBlocks, matmulFloats } from "./matmul.ts";
import type { MatmulCompiler } from "./matmul-node.ts";
import type { InstructionDef, InstructionLike } from "./op.ts";

export interface DiskGuess {
  readonly op: "disk_guess";
  readonly matmul: MatmulFloats | MatmulBlocks;
}

export interface DiskAhead {
  readonly op: "disk_ahead";
  readonly rows: Rows;
  readonly routing: Routing;
  readonly experts: number;
  /** f32 [experts]. */
  readonly logits: number;
  /** f32 [experts], or -1. */
  readonly bias: number;
  /** f32 [2 * used]. */
  readonly out: number;
  /** The matrices of the next layer's experts: numbers in DemandProgram.weights. */
  readonly weights: readonly number[];
}

export const diskGuess: InstructionDef<DiskGuess> = {
  access: "barrier",
  kernels: ({ matmul }) =>
    matmul.op === "matmul_floats" ? matmulFloats.kernels(matmul) : matmulBlocks.kernels(matmul),
  code: "target",

  execute({ matmul }, c) {
    const slots = new DemandSlots(c.program.demand!, c.views);
    const inner =
      matmul.op === "matmul_floats"
        ? matmulFloats.execute(matmul, c)
        : matmulBlocks.execute(matmul, c);
    return { ...inner, chunks: () => (slots.ahead.isOn ? inner.chunks() : 0) };
  },
};

export const diskAhead: InstructionDef<DiskAhead> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",

  execute({ rows, routing, experts, logits, bias, out, weights }, c) {
    const slots = new DemandSlots(c.program.demand!, c.views);
    const { f32 } = c.views;
    const scratch = new Float32Array(routeScratchSize(experts));
    const added = bias < 0 ? undefined : f32.subarray(bias / 4, bias / 4 + experts);
    const chosen = f32.subarray(out / 4, out / 4 + routing.used);
    return {
      chunks: () => (slots.ahead.isOn && rowCount(c, rows) === 1 ? 1 : 0),
      run: () => {
        routeRow(routing, experts, f32, logits / 4, added, f32, out / 4, scratch);
        for (const weight of weights) slots.expect(weight, chosen);
      },
    };
  },
};

/** Instructions that guess the experts of the layer behind these routes; none: they cannot be guessed. */
export function guessNext(c: MatmulCompiler, routes: Value): InstructionLike[] {
  const { plan, weights: store, arena } = c.options;
  const { nodes } = plan.graph;
  const isRoute = (node: (typeof nodes)[number]): node is NodeOf<"route"> => node.op === "route";
  const demandOf = (value: Value) =>
    nodes.flatMap((node) => {
      const isRouted = node.op === "matmul_id" && node.routes === value;
      return isRouted ? (store.get(node.weight).onDemand ?? []) : [];
    });
  const routers = nodes.filter(isRoute).filter((node) => demandOf(node.out).length > 0);
  const at = routers.findIndex((node) => node.out === routes);
  const [here, next] = [routers[at], routers[at + 1]];
  if (!here || !next) return [];
  const matmulOf = ({ logits }: NodeOf<"route">) =>
    nodes.find((node): node is NodeOf<"matmul"> => node.op === "matmul" && node.out === logits);
  const [own, later] = [matmulOf(here), matmulOf(next)];
  if (!own || !later || own.x.cols !== later.x.cols) return [];
  // Until the experts have read it, the router's input is still there.
  const isRead = nodes.some(
    (node) => node.op === "matmul_id" && node.routes === routes && node.x === own.x,
  );
  const placed = store.get(later.weight);
  const isInPanels = placed.floats ?? placed.blocks;
  if (!isRead || !isInPanels || placed.onDisk !== undefined) return [];
  const made = c.matmul({ ...later, x: own.x }) as DiskGuess["matmul"];
  const experts = next.logits.cols;
  const logits = arena.allocate(experts * 4, "work", "guessed routes");
  const out = arena.allocate(2 * next.routing.used * 4, "work", "guessed experts");
  const bias = next.bias ? c.vector(next.bias) : -1;
  const guess: DiskGuess = { op: "disk_guess", matmul: { ...made, out: logits } };
  const { routing } = next;
  const ahead: DiskAhead = {
    op: "disk_ahead",
    ...{ rows: next.out.rows, routing, experts, logits, bias, out, weights: demandOf(next.out) },
  };
  return [guess, ahead];
}
