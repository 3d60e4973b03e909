// A node without a kernel: the reference computes it, on the leader's thread alone.

import type { InstructionDef } from "./op.ts";

export interface Leader {
  readonly op: "leader";
  readonly index: number;
}

export const leader: InstructionDef<Leader> = {
  access: "barrier",
  kernels: () => [],
  code: "wasm",
  execute: ({ index }, c) => ({
    leaderOnly: true,
    chunks: () => 1,
    run: () => c.leader![index]!(),
  }),
};
