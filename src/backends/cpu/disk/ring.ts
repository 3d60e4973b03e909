// The plan of weights on disk: the ring that they share one after the other, their list, and the address of each; and matrices of
// experts, of which as many are in memory as there are slots. plan.ts decides.

import type { Weight } from "../../../graph/graph.ts";
import type { FilePart } from "../../../platform/platform.ts";
import type { AheadMode } from "./demand.ts";

/** A weight on disk, and the first byte of its row panels in the ring. */
export interface RingPlace {
  readonly weight: Weight;
  readonly part: FilePart;
  readonly panelBytes: number;
  readonly at: number;
  /** As DiskWeight.needs. */
  readonly needs: number;
}

/** A matrix of experts that are read on demand: the parts of it that lie in files, and the slots that it has in memory. */
export interface DemandPlace {
  readonly weight: Weight;
  readonly parts: readonly FilePart[];
  /** Experts that a token uses. */
  readonly used: number;
  readonly slots: number;
}

export interface DiskPlan {
  /** In the order in which a batch uses them. */
  readonly places: readonly RingPlace[];
  readonly demand: readonly DemandPlace[];
  readonly ringBytes: number;
  /** The most bytes of the ring that are waited for at once. */
  readonly setBytes: number;
  /** Whether experts are read ahead. */
  readonly ahead: AheadMode;
}
