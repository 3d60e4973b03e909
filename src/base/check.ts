// The callback through which long work on a text (templates, tokenizers, the engine's side of both) learns that it
// should stop.

/** Called from time to time. Throws when the work should stop because nobody waits for it any more. */
export type Check = () => void;
