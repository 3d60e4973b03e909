// Public types: what a model says of a text that it reads and does not continue. Embeddings, logits, probabilities, and what
// came into its matrices. Part of api.ts.

export interface EmbedOptions {
  /** Which hidden states count: the average over all tokens (default), or the last token's. */
  pooling?: "mean" | "last";
  /** Bring the vector to length 1 (default true). */
  normalize?: boolean;
  addBos?: boolean;
  signal?: AbortSignal;
}

export interface Embedding {
  /** As many values as the model's hidden states have. */
  vector: Float32Array;
  /** Tokens of the text. */
  tokens: number;
}

export interface LogitsOptions {
  /** Best logits reported per position (default 10). */
  top?: number;
  /** Greedy tokens to continue with (default 0). */
  greedy?: number;
  addBos?: boolean;
  signal?: AbortSignal;
}

export interface LogitsResult {
  tokens: number[];
  /** For every prompt position: Euclidean norm of the logits and the best ones. */
  positions: { norm: number; top: [id: number, logit: number][] }[];
  greedy: number[];
  text: string;
}

export interface ScoreOptions {
  /** The first position whose next token is scored (default 0). */
  from?: number;
  /** Read BOS in place of the first token, where the model begins its texts with one (default false). */
  firstIsBos?: boolean;
  /** Return the distributions too, in 16 bits a token: vocabulary x positions x 2 bytes (default false). */
  rows?: boolean;
  /** `rows` of another model with the same vocabulary, for the same tokens: compare with them. */
  base?: Uint16Array;
  signal?: AbortSignal;
}

/** One value for each position from `from` on, except the last token's, which nothing follows. */
export interface ScoreResult {
  /** Natural logarithm of the probability that the model gave to the token that came. */
  logprobs: Float64Array;
  /** The token that the model thought likeliest. */
  top: Int32Array;
  rows?: Uint16Array;
  /** With a base: its values, and the Kullback-Leibler divergence from it, in nats. */
  base?: { logprobs: Float64Array; top: Int32Array; divergences: Float64Array };
}

/** What came into one of a model's matrices while it read a text. */
export interface InputSums {
  /** The matrix: "blk.3.attn_q.weight". */
  name: string;
  /** The sum of the squares of what came into each column; where experts have a matrix each, [experts, columns]. */
  squares: Float32Array;
  tokens: number;
  /** Where experts have a matrix each: tokens that came to each. */
  expertTokens?: Float32Array;
}
