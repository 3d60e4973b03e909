// The options of attention in WGSL: the positions that a token attends to, capped scores, sinks, slopes. Attention kernels include
// these texts; without options they are those of plain attention.

import { halfWindow } from "../../../graph/attended.ts";
import type { NodeOf, Weight } from "../../../graph/graph.ts";
import type { BatchLayout } from "../batch-area.ts";
import { type Binding, float } from "./kernel.ts";

type Attention = NodeOf<"attention">;

/** Where the positions of `token` end. */
export function endText({ causal, window }: Attention, batch: BatchLayout): string {
  const own = `batch[${batch.positions}u + token]`;
  if (causal) return `${own} + 1u`;
  const length = `batch[${batch.lengths}u + token]`;
  return window === undefined ? length : `min(${length}, ${own} + ${halfWindow(window) + 1}u)`;
}

/** Where they begin; undefined: at 0. `length` is where they end. */
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

/** A score from the dot product of a query and a key. `distance`: WGSL of how far apart their positions are, if not 0. */
export function scoreText(
  { scale, softcap, alibi }: Attention,
  dot: string,
  head: string,
  distance?: string,
): string {
  const scaled = `${dot} * ${float(scale)}`;
  const fallen = alibi && distance ? ` - slopes[${head}] * ${distance}` : "";
  if (softcap === undefined) return `${scaled}${fallen}`;
  // tanh of large numbers may be NaN on a device, so the argument is clamped where tanh is 1.
  const cap = float(softcap);
  return `${cap} * tanh(clamp(${scaled} / ${cap}, -15.0, 15.0))${fallen}`;
}

/** How far `position` is from the token. */
export function distanceText(position: string, batch: BatchLayout): string {
  return `abs(f32(${position}) - f32(batch[${batch.positions}u + token]))`;
}

/** The largest score and the sum that a softmax begins with. A sink is one more score, without a value. */
export function startOf({ sinks }: Attention, head: string): { top: string; total: string } {
  if (!sinks) return { top: "-3.0e38", total: "0.0" };
  return { top: `sinks[${head}]`, total: "1.0" };
}

/** The vectors with a value for each head. */
export function headBindings({ sinks, alibi }: Attention): Binding[] {
  const vector = (name: string, weight: Weight): Binding => ({
    name,
    type: "f32",
    source: { kind: "weight", weight, part: 0 },
  });
  return [...(sinks ? [vector("sinks", sinks)] : []), ...(alibi ? [vector("slopes", alibi)] : [])];
}
