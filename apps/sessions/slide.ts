// Selects the part of a text that has outgrown the context that the model still sees: its beginning, which introduces
// the story, and its latest part, which is to be continued. The middle is left out of the prompt, never of the story.
//
// The cut moves in large steps, like llama.cpp's context shift (n_keep, then half of the rest). Between two steps the
// prompt only grows at its end, so the KV cache holds all but the new tokens.

import type { GenerateOptions } from "../../src/index.ts";
import type { PartReader } from "./answer.ts";

export interface Prompt {
  tokens: number[];
  /** Tokens of the text that are not in the prompt. */
  dropped: number;
  /** Makes the reader that tells reasoning and calls from text; undefined: the text is the answer. */
  reader?: (() => PartReader) | undefined;
  /** Options of the generation that the reader needs. */
  options?: GenerateOptions | undefined;
}

/** The fraction of the context that the beginning may take. */
const keptShare = 1 / 4;
/**
 * The largest fraction of the context that is kept free for the answer. A longer answer slides again while it is
 * written.
 */
const capacityShare = 1 / 3;

/** `wanted`: the most tokens of the answer; undefined: as many as fit. */
export function slide(
  tokens: readonly number[],
  contextSize: number,
  wanted: number | undefined,
): Prompt {
  const mostCapacity = Math.max(1, Math.floor(contextSize * capacityShare));
  const room = Math.min(wanted ?? mostCapacity, mostCapacity);
  if (tokens.length + room <= contextSize) return { tokens: [...tokens], dropped: 0 };
  const kept = Math.floor(contextSize * keptShare);
  const latest = contextSize - room - kept; // at most
  const step = Math.max(1, Math.floor(latest / 2));
  const dropped = Math.ceil((tokens.length - kept - latest) / step) * step;
  return { tokens: [...tokens.slice(0, kept), ...tokens.slice(kept + dropped)], dropped };
}
