// Public types for reading a text without continuing it: embeddings, logits, probabilities, and the inputs of
// matrices. Part of api.ts.

import type { Priority } from "./generate.ts";

/**
 * The way hidden states become the vector of a text: "mean" is their average over all tokens, "cls" and "last" are the first and
 * the last token's; "none" gives the states of all tokens, one after the other; "rank" gives the scores of the model's classifier.
 */
export type Pooling = "none" | "mean" | "cls" | "last" | "rank";

export interface EmbedOptions {
  /** Default: as the model's file asks for, else "mean". */
  pooling?: Pooling | undefined;
  /**
   * Scale the vector to length 1 (default true), or by one of llama.cpp's norms: -1 none, 0 the largest value becomes 32760,
   * 1 taxicab, 2 Euclidean, p the p-norm. Scores are never scaled.
   */
  normalize?: boolean | number | undefined;
  /**
   * Put the prefix before each text that the model's card asks for before a search query, or before a passage that is searched. A
   * model with an unknown card is refused. Default: no prefix.
   */
  as?: "query" | "passage" | undefined;
  /** Keep only the first values of each vector, before it is scaled: for models that were trained for it (Matryoshka). */
  dimensions?: number | undefined;
  addBos?: boolean | undefined;
  /** As for generate(). */
  priority?: Priority | undefined;
  signal?: AbortSignal | undefined;
  /** Called after each text. */
  onProgress?: ((progress: EmbedProgress) => void) | undefined;
}

export interface EmbedProgress {
  doneTexts: number;
  totalTexts: number;
}

export interface Embedding {
  /** Has as many values as the model's hidden states; with "none", that for each token; with "rank", one for each label. */
  vector: Float32Array;
  /** Tokens of the text, with its prefix. */
  tokens: number;
  /** The prefix of the text, if `as` was given: "" if the model's card asks for none. */
  prefix?: string;
}

export interface RerankOptions {
  /** Return only the best (default: all). */
  topN?: number | undefined;
  signal?: AbortSignal | undefined;
  /** Called after each document. */
  onProgress?: ((progress: EmbedProgress) => void) | undefined;
}

export interface RerankResult {
  /** The best first. */
  results: RankedDocument[];
  /** Tokens of all documents, each with the query. */
  tokens: number;
}

export interface RankedDocument {
  /** Its index in the given list. */
  index: number;
  /** The output of the model's classifier: larger is better. Most models need a sigmoid to make it a probability. */
  score: number;
  document: string;
}

export interface LogitsOptions {
  /** The number of best logits to report per position (default 10). */
  top?: number | undefined;
  /** The number of tokens to continue with, greedily (default 0). */
  greedy?: number | undefined;
  addBos?: boolean | undefined;
  /** As for generate(). */
  parseSpecial?: boolean | undefined;
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
  /** The first position of which the next token is scored (default 0). */
  from?: number | undefined;
  /** Read BOS instead of the first token, if the model starts its texts with one (default false). */
  firstIsBos?: boolean | undefined;
  /** Also return the distributions, at 16 bits a token: vocabulary x positions x 2 bytes (default false). */
  rows?: boolean | undefined;
  /** `rows` of another model with the same vocabulary for the same tokens, to compare with. */
  base?: Uint16Array | undefined;
  signal?: AbortSignal | undefined;
}

/** One value for each position from `from` on, except the last token's, which no token follows. */
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
  /** For matrices of experts: the number of tokens routed to each expert. */
  expertTokens?: Float32Array;
}
