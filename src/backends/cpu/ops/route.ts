// route: the experts of each token, in plain TypeScript (graph/route.ts), a row at a time; and combine, the weighted sum of
// their results.

import type { Routing, Rows } from "../../../graph/graph.ts";
import { routeRow, routeScratchSize } from "../../../graph/route.ts";
import { perRow } from "../executor.ts";
import { area, type InstructionDef, ifWhole, type LowerNode } from "./op.ts";

export interface Route {
  readonly op: "route";
  readonly rows: Rows;
  readonly routing: Routing;
  readonly experts: number;
  readonly logits: number;
  /** f32 [experts], or -1. */
  readonly bias: number;
  /** f32 [experts], or -1. */
  readonly scales: number;
  readonly out: number;
}

export const lowerRoute: LowerNode<"route"> = (c, n): Route => ({
  op: "route",
  rows: n.out.rows,
  routing: n.routing,
  experts: n.logits.cols,
  logits: c.address(n.logits),
  bias: n.bias ? c.vector(n.bias) : -1,
  scales: n.scales ? c.vector(n.scales) : -1,
  out: c.address(n.out),
});

export const route: InstructionDef<Route> = {
  access: {
    stage: "row by row",
    of: ({ rows, logits, experts, out, routing }) => ({
      rows,
      reads: [area(logits, experts * 4)],
      writes: [area(out, routing.used * 8)],
    }),
  },
  kernels: () => [],
  code: "wasm",

  execute(i, c) {
    const { f32 } = c.views;
    const scratch = new Float32Array(routeScratchSize(i.experts));
    const vector = (at: number) => (at < 0 ? undefined : f32.subarray(at / 4, at / 4 + i.experts));
    const [bias, scales] = [vector(i.bias), vector(i.scales)];
    const [logits, out] = [i.logits / 4, i.out / 4];
    return perRow(c, i.rows, (row) => {
      const at = logits + row * i.experts;
      const to = out + row * 2 * i.routing.used;
      routeRow(i.routing, i.experts, f32, at, bias, f32, to, scratch, scales);
    });
  },
};

export interface Combine {
  readonly op: "combine";
  readonly rows: Rows;
  readonly x: number;
  readonly routes: number;
  readonly out: number;
  readonly slots: number;
  readonly cols: number;
}

export const lowerCombine: LowerNode<"combine"> = (c, { x, routes, out }) =>
  ifWhole(
    out.cols,
    (): Combine => ({
      op: "combine",
      rows: out.rows,
      x: c.address(x),
      routes: c.address(routes),
      out: c.address(out),
      slots: routes.cols / 2,
      cols: out.cols,
    }),
  );

export const combine: InstructionDef<Combine> = {
  access: {
    stage: "row by row",
    of: ({ rows, x, routes, out, slots, cols }) => ({
      rows,
      reads: [area(x, slots * cols * 4), area(routes, slots * 8)],
      writes: [area(out, cols * 4)],
    }),
  },
  kernels: () => ["scale", "scale_add"],
  code: ({ cols }) => [cols],

  execute(i, c) {
    const { scale, scale_add } = c.kernels;
    const { f32 } = c.views;
    const rowBytes = i.cols * 4;
    return perRow(c, i.rows, (row) => {
      const weights = i.routes / 4 + (2 * row + 1) * i.slots;
      const x = i.x + row * i.slots * rowBytes;
      const out = i.out + row * rowBytes;
      scale!(x, out, i.cols, f32[weights]!);
      for (let slot = 1; slot < i.slots; slot++) {
        scale_add!(x + slot * rowBytes, out, i.cols, f32[weights + slot]!);
      }
    });
  },
};
