// Public types for reading a text without continuing it: embeddings, logits, probabilities, and the inputs of
// matrices. Part of api.ts.

import type { Priority } from "./generate.ts";

/**
 * How hidden states become the vector of a text: "mean" is their average over all tokens, "cls" and "last" are the first and the
 * last token's; "none" gives those of all tokens, one after the other; "rank" gives the scores of the model's classifier.
 */
export type Pooling = "none" | "mean" | "cls" | "last" | "rank";

export interface EmbedOptions {
  /** Default: as the model's file asks for, else "mean". */
  pooling?: Pooling;
  /**
   * Scale the vector to length 1 (default true), or by one of llama.cpp's norms: -1 none, 0 the largest value becomes 32760,
   * 1 taxicab, 2 Euclidean, p the p-norm. Scores are never scaled.
   */
  normalize?: boolean | number;
  /**
   * Put before each text what the model's card asks for before a search query, or before a passage that is searched. A model
   * whose card is not known is refused. Default: nothing is put before it.
   */
  as?: "query" | "passage";
  /** Keep only the first values of each vector, before it is scaled: for models that were trained for it (Matryoshka). */
  dimensions?: number;
  addBos?: boolean;
  /** As for generate(). */
  priority?: Priority;
  signal?: AbortSignal | undefined;
  /** Called after each text. */
  onProgress?: (progress: EmbedProgress) => void;
}

export interface EmbedProgress {
  doneTexts: number;
  totalTexts: number;
}

export interface Embedding {
  /** Has as many values as the model's hidden states; with "none", that for each token; with "rank", one for each label. */
  vector: Float32Array;
  /** Tokens of the text, with what was put before it. */
  tokens: number;
  /** What was put before the text, where `as` was given: "" if the model's card asks for nothing. */
  prefix?: string;
}

export interface RerankOptions {
  /** Return only the best (default: all). */
  topN?: number;
  signal?: AbortSignal | undefined;
  /** Called after each document. */
  onProgress?: (progress: EmbedProgress) => void;
}

export interface RerankResult {
  /** The best first. */
  results: RankedDocument[];
  /** Tokens of all documents, each with the query. */
  tokens: number;
}

export interface RankedDocument {
  /** Its place in the given list. */
  index: number;
  /** The output of the model's classifier: larger is better. Most models need a sigmoid to make it a probability. */
  score: number;
  document: string;
}

export interface LogitsOptions {
  /** How many of the best logits to report per position (default 10). */
  top?: number;
  /** How many tokens to continue with, greedily (default 0). */
  greedy?: number;
  addBos?: boolean;
  /** As for generate(). */
  parseSpecial?: boolean;
  signal?: AbortSignal | undefined;
}

export interface LogitsResult {
  tokens: number[];
  /** For every prompt position: the Euclidean norm of the logits, and the best ones. */
  positions: { norm: number; top: [id: number, logit: number][] }[];
  greedy: number[];
  text: string;
}

export interface ScoreOptions {
  /** The first position whose next token is scored (default 0). */
  from?: number;
  /** Read BOS instead of the first token, if the model starts its texts with one (default false). */
  firstIsBos?: boolean;
  /** Also return the distributions, at 16 bits a token: vocabulary x positions x 2 bytes (default false). */
  rows?: boolean;
  /** `rows` of another model with the same vocabulary for the same tokens, to compare with. */
  base?: Uint16Array;
  signal?: AbortSignal | undefined;
}

/** One value for each position from `from` on, except the last token's, which nothing follows. */
export interface ScoreResult {
  /** Natural logarithm of the probability that the model gave to the actual next token. */
  logprobs: Float64Array;
  /** The token that the model found most likely. */
  top: Int32Array;
  rows?: Uint16Array;
  /** With a base: its values, and the Kullback-Leibler divergence from it, in nats. */
  base?: { logprobs: Float64Array; top: Int32Array; divergences: Float64Array };
}

/** The inputs of one of a model's matrices while it read a text. */
export interface InputSums {
  /** The matrix: "blk.3.attn_q.weight". */
  name: string;
  /** Sum of squares of the inputs of each column; [experts, columns] where each expert has a matrix. */
  squares: Float32Array;
  tokens: number;
  /** Where each expert has a matrix: the number of tokens routed to each. */
  expertTokens?: Float32Array;
}
