// What of a text that has outgrown the context the model still sees: its beginning, which says who and where the story is
// about, and its latest part, which is to be continued. What lies between is left out of the prompt, never of the story.
//
// The cut moves in large steps, as llama.cpp's context shift does (n_keep, then half of the rest): between two steps the
// prompt only grows at its end, so that the KV cache still holds all but the new tokens.

export interface Prompt {
  tokens: number[];
  /** Tokens of the text that are not in it. */
  dropped: number;
}

/** Of the context, what the beginning may take. */
const keptShare = 1 / 4;
/** Of the context, what is kept free for the answer at most. A longer answer slides again while it is written. */
const roomShare = 1 / 3;

/** `wanted`: how many tokens the answer may have; undefined: as many as there is room for. */
export function slide(
  tokens: readonly number[],
  contextSize: number,
  wanted: number | undefined,
): Prompt {
  const mostRoom = Math.max(1, Math.floor(contextSize * roomShare));
  const room = Math.min(wanted ?? mostRoom, mostRoom);
  if (tokens.length + room <= contextSize) return { tokens: [...tokens], dropped: 0 };
  const kept = Math.floor(contextSize * keptShare);
  const latest = contextSize - room - kept; // at most
  const step = Math.max(1, Math.floor(latest / 2));
  const dropped = Math.ceil((tokens.length - kept - latest) / step) * step;
  return { tokens: [...tokens.slice(0, kept), ...tokens.slice(kept + dropped)], dropped };
}
