// The options of attention in WGSL: the positions that a token attends to, capped scores, sinks, slopes. Attention kernels include
// these texts; without options they are those of plain attention.

import { halfWindow } from "../../../graph/attended.ts";
import type { NodeOf, Weight } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { type Binding, float } from "./kernel.ts";

type Attention = NodeOf<"attention">;

/** The end of the positions of `token`. */
export function endText({ causal, window }: Attention, batch: BatchLayout): string {
  const own = `batch[${batch.positions}u + token]`;
  if (causal) return `${own} + 1u`;
  const length = `batch[${batch.lengths}u + token]`;
  return window === undefined ? length : `min(${length}, ${own} + ${halfWindow(window) + 1}u)`;
}

/** Their beginning; undefined: 0. `length` is their end. */
export function beginText(
  { causal, window, chunked }: Attention,
  batch: BatchLayout,
): string | undefined {
  if (window === undefined) return undefined;
  if (chunked) return `(length - 1u - (length - 1u) % ${window}u)`;
  if (causal) return `(max(length, ${window}u) - ${window}u)`;
  const half = halfWindow(window);
  return `(max(batch[${batch.positions}u + token], ${half}u) - ${half}u)`;
}

/** A score from the dot product of a query and a key. `position`: WGSL of the key's, if it is not the query's own. */
export function scoreText(
  node: Attention,
  dot: string,
  head: string,
  batch?: BatchLayout,
  position?: string,
): string {
  const { scale, softcap, alibi } = node;
  const scaled = `${dot} * ${float(scale)}`;
  const isApart = batch !== undefined && position !== undefined;
  const slope = alibi && isApart ? ` - slopes[${head}] * ${distanceText(position, batch)}` : "";
  const fallen = slope + (isApart ? biasText(node, head, batch, position) : "");
  if (softcap === undefined) return `${scaled}${fallen}`;
  // tanh of large numbers may be NaN on a device, so the argument is clamped where tanh is 1.
  const cap = float(softcap);
  return `${cap} * tanh(clamp(${scaled} / ${cap}, -15.0, 15.0))${fallen}`;
}

/** The bias of a score by the distance of the positions. */
function biasText(
  { bias, buckets, heads }: Attention,
  head: string,
  batch: BatchLayout,
  position: string,
): string {
  if (!bias || !buckets) return "";
  const most = (buckets.shape[0]! - 1) / 2;
  const apart = `i32(${position}) - i32(batch[${batch.positions}u + token])`;
  const at = `u32(clamp(${apart}, -${most}, ${most}) + ${most})`;
  return ` + bias[u32(buckets[${at}]) * ${heads}u + ${head}]`;
}

/** The distance of `position` from the token. */
function distanceText(position: string, batch: BatchLayout): string {
  return `abs(f32(${position}) - f32(batch[${batch.positions}u + token]))`;
}

/** The largest score and the sum that a softmax begins with. A sink is one more score, without a value. */
export function startOf({ sinks }: Attention, head: string): { top: string; total: string } {
  if (!sinks) return { top: "-3.0e38", total: "0.0" };
  return { top: `sinks[${head}]`, total: "1.0" };
}

/** The vectors with values for each head, and the buckets of distances. */
export function headBindings({ sinks, alibi, bias, buckets }: Attention): Binding[] {
  const vector = (name: string, weight: Weight): Binding => ({
    name,
    type: "f32",
    source: { kind: "weight", weight, part: 0 },
  });
  const named = { sinks, slopes: alibi, bias, buckets };
  return Object.entries(named).flatMap(([name, weight]) => (weight ? [vector(name, weight)] : []));
}
