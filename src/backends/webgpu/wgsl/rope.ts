// rope: a thread rotates one pair of values (or copies a pair beyond the rotated dims). Sines and cosines come with the batch:
// there are few of them, and a device's own are only precise for small angles.

import type { NodeOf } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { type Kernel, makeKernel, perItem } from "./kernel.ts";

export function ropeKernel(node: NodeOf<"rope">, batch: BatchLayout): Kernel {
  const { x, out, rope } = node;
  return makeKernel({
    name: `rope ${rope.layout} [${x.cols}]`,
    bindings: [
      { name: "x", type: "f32", source: { kind: "value", value: x } },
      { name: "batch", type: "u32", source: { kind: "batch" } },
      { name: "result", type: "f32", source: { kind: "value", value: out }, writes: true },
    ],
    rows: out.rows,
    grid: perItem(x.cols / 2),
    body: ropeBody(node, batch, (product) => product),
  });
}

/** The rotation of `x` into `result`, over `batch`. `round`: WGSL of a product before it is added to another. */
export function ropeBody(
  { x, headDim, rope, factors }: NodeOf<"rope">,
  batch: BatchLayout,
  round: (product: string) => string,
): string {
  const { cols } = x;
  const pairs = rope.dims / 2;
  const halves = headDim / 2;
  const [stride, distance] = rope.layout === "interleaved" ? [2, 1] : [1, pairs];
  const angles = batch.angles.find((area) => area.rope === rope && area.factors === factors)!;
  return `
  let item = group.x * 64u + lane;
  if (item >= ${cols / 2}u) { return; }
  let head = group.y * ${cols}u + (item / ${halves}u) * ${headDim}u;
  let pair = item % ${halves}u;
  if (pair >= ${pairs}u) {
    let at = head + pair * 2u;
    result[at] = x[at];
    result[at + 1u] = x[at + 1u];
    return;
  }
  let angle = ${angles.at}u + (group.y * ${pairs}u + pair) * 2u;
  let cosine = bitcast<f32>(batch[angle]);
  let sine = bitcast<f32>(batch[angle + 1u]);
  let at = head + pair * ${stride}u;
  let a = x[at];
  let b = x[at + ${distance}u];
  result[at] = ${round("a * cosine")} - ${round("b * sine")};
  result[at + ${distance}u] = ${round("a * sine")} + ${round("b * cosine")};`;
}
