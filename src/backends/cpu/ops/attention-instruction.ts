// The instruction that an attention node becomes: what attention.ts makes and attention-passes.ts reads.

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
  /** Of a head of keys, and of values. */
  readonly headBytes: number;
  readonly vHeadBytes: number;
  readonly rowBytes: number;
  /** Address of a ScaledTable. */
  readonly tables: number;
  readonly scale: number;
  readonly window: number | undefined;
  readonly causal: boolean;
  /** Where it is not causal, the address of the sequences' lengths. */
  readonly lengths: number | undefined;
  readonly softcap: number | undefined;
  /** Address of a score for each head. */
  readonly sinks: number | undefined;
}
