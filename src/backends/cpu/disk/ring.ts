// The ring in which weights on disk take turns: which weights, and where each is. plan.ts decides.

import type { Weight } from "../../../graph/graph.ts";
import type { FilePart } from "../../../platform/platform.ts";

/** A weight on disk, and the first byte of its row panels in the ring. */
export interface RingPlace {
  readonly weight: Weight;
  readonly part: FilePart;
  readonly panelBytes: number;
  readonly at: number;
  /** As DiskWeight.needs. */
  readonly needs: number;
}

export interface DiskPlan {
  /** In the order in which a batch uses them. */
  readonly places: readonly RingPlace[];
  readonly ringBytes: number;
  /** The most bytes of the ring that are waited for at once. */
  readonly setBytes: number;
}
