// The instruction of an attention node: attention.ts makes it, attention-passes.ts runs it.

export interface Attention {
  readonly op: "attention";
  readonly kvType: string;
  readonly q: number;
  readonly out: number;
  readonly keys: number;
  readonly values: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vHeadDim: number;
  /** Bytes of a head of keys, and of values. */
  readonly headBytes: number;
  readonly vHeadBytes: number;
  readonly rowBytes: number;
  /** Address of a ScaledTable. */
  readonly tables: number;
  readonly scale: number;
  readonly window: number | undefined;
  readonly causal: boolean;
  /** The address of the sequences' lengths, where attention is not causal. */
  readonly lengths: number | undefined;
  readonly softcap: number | undefined;
  /** f32 [heads]. */
  readonly sinks: number | undefined;
  /** f32 [heads]: slopes. */
  readonly alibi: number | undefined;
}
