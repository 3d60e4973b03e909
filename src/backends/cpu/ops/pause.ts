// The end of a section of a split graph (graph/split.ts), where another backend computes: the team waits until the leader
// continues with the next section.

import type { InstructionDef } from "./op.ts";

export interface Pause {
  readonly op: "pause";
}

export const pause: InstructionDef<Pause> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",
  execute: () => ({ leaderOnly: true, pauses: true, chunks: () => 1, run: () => {} }),
};
