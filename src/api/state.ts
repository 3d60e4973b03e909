// Public types for the state of sequences: a model's state of a text, saved and loaded. Part of api.ts.

export interface SaveStateOptions {
  /** The text: the prompt and the answer of a generation (promptTokenIds, tokenIds). */
  tokens: readonly number[];
  signal?: AbortSignal | undefined;
}

export interface SavedState {
  /** Tokens with saved state: the longest beginning of the text that is still known. */
  tokens: number;
  /** The size of the file. */
  bytes: number;
  ms: number;
}

export interface LoadStateOptions {
  signal?: AbortSignal | undefined;
}

export interface LoadedState {
  /** The text that it belongs to. A prompt that begins with it computes only the new tokens. */
  tokenIds: number[];
  /** The size of the file. */
  bytes: number;
  ms: number;
}
