// The options of attention in WGSL: the positions that a token attends to, capped scores, sinks. Attention kernels include
// these texts; without options they are those of plain attention.

import { halfWindow } from "../../../graph/attended.ts";
import type { NodeOf } from "../../../graph/graph.ts";
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
export function beginText({ causal, window }: Attention, batch: BatchLayout): string | undefined {
  if (window === undefined) return undefined;
  if (causal) return `(max(length, ${window}u) - ${window}u)`;
  const half = halfWindow(window);
  return `(max(batch[${batch.positions}u + token], ${half}u) - ${half}u)`;
}

/** A score from the dot product of a query and a key. */
export function scoreText({ scale, softcap }: Attention, dot: string): string {
  const scaled = `${dot} * ${float(scale)}`;
  if (softcap === undefined) return scaled;
  // tanh of large numbers may be NaN on a device, so the argument is clamped where tanh is 1.
  const cap = float(softcap);
  return `${cap} * tanh(clamp(${scaled} / ${cap}, -15.0, 15.0))`;
}

/** The largest score and the sum that a softmax begins with. A sink is one more score, without a value. */
export function startOf({ sinks }: Attention, head: string): { top: string; total: string } {
  if (!sinks) return { top: "-3.0e38", total: "0.0" };
  return { top: `sinks[${head}]`, total: "1.0" };
}

export function sinkBindings({ sinks }: Attention): Binding[] {
  if (!sinks) return [];
  return [{ name: "sinks", type: "f32", source: { kind: "weight", weight: sinks, part: 0 } }];
}
