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
  readonly headBytes: number;
  readonly rowBytes: number;
  /** Address of a ScaledTable. */
  readonly tables: number;
  readonly scale: number;
  readonly window: number | undefined;
}
