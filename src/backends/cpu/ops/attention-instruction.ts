// The instruction of an attention node: attention.ts makes it, attention-passes.ts runs it.

import type { CacheRows } from "./op.ts";

export interface Scratch {
  readonly scratch: number;
  readonly scratchBytes: number;
}

export interface Attention {
  readonly op: "attention";
  readonly q: number;
  readonly out: number;
  readonly keys: CacheRows;
  readonly values: CacheRows;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vHeadDim: number;
  /** Bytes of a head of keys, and of values. */
  readonly headBytes: number;
  readonly vHeadBytes: number;
  readonly scale: number;
  readonly window: number | undefined;
  readonly chunked: boolean;
  readonly causal: boolean;
  /** The address of the sequences' lengths, where attention is not causal. */
  readonly lengths: number | undefined;
  readonly softcap: number | undefined;
  /** f32 [heads]. */
  readonly sinks: number | undefined;
  /** f32 [heads]: slopes. */
  readonly alibi: number | undefined;
  /** f32 [buckets][heads]. */
  readonly bias: number | undefined;
  /** f32 [distances]. */
  readonly buckets: number | undefined;
  readonly distances: number;
  /** For widened rows; undefined: attention of many tokens goes four queries at a time, as that of few does. */
  readonly many: Scratch | undefined;
}
