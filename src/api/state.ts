// Public types for the state of sequences: what a model computed of a text, saved and loaded. Part of api.ts.

export interface SaveStateOptions {
  /** The text: the prompt and the answer of a generation (promptTokenIds, tokenIds). */
  tokens: readonly number[];
  signal?: AbortSignal | undefined;
}

export interface SavedState {
  /** Tokens whose state was saved: the longest beginning of the text that is still known. */
  tokens: number;
  /** Of the file. */
  bytes: number;
  ms: number;
}

export interface LoadStateOptions {
  signal?: AbortSignal | undefined;
}

export interface LoadedState {
  /** The text that it belongs to. A prompt that begins with it computes only what is new. */
  tokenIds: number[];
  /** Of the file. */
  bytes: number;
  ms: number;
}
