// How long work on a text is told to stop, wherever it is done: templates, tokenizers, the engine's side of both.

/** Called now and then; throws where the work should stop: nobody waits for it any more. */
export type Check = () => void;
