// The callback through which long work on a text (templates, tokenizers, the engine's side of both) learns that it
// should stop.

/** Called from time to time. Throws when the work should stop because its result is no longer needed. */
export type Check = () => void;
