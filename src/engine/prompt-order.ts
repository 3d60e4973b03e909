// The order of prefill: if the waiting prompts do not fit into one batch, the one with the fewest tokens left comes first. So a prompt that
// has begun is finished before others of its size begin, and a short question does not wait for a long document; in round-robin order, each
// would wait for its first token until nearly all of them are computed.
//
// In every fourth batch the prompt that has waited longest is first: it advances even if shorter ones keep coming.

export interface WaitingPrompt {
  readonly tokens: ArrayLike<number>;
  readonly from: number;
}

const EVERY = 4;

export class PromptOrder {
  #batches = 0;

  /** The order of a batch. `waiting`: the one that has waited longest is first. */
  of<T extends WaitingPrompt>(waiting: readonly T[]): readonly T[] {
    if (waiting.length < 2) return waiting;
    this.#batches++;
    const left = ({ tokens, from }: T): number => tokens.length - from;
    const shortest = waiting.toSorted((a, b) => left(a) - left(b));
    if (this.#batches % EVERY !== 0) return shortest;
    const longest = waiting[0]!;
    return [longest, ...shortest.filter((prompt) => prompt !== longest)];
  }
}
