// Whose prompt is computed first, where those that wait do not fit into one batch: the one with the fewest tokens left. So a prompt that has
// begun is finished before others of its size begin, and a short question does not wait for a long document; taking turns,
// all would wait for their first token until nearly all of them are computed.
//
// In every fourth batch the one that has waited for longest is first: however many shorter ones come, it advances.

export interface WaitingPrompt {
  readonly tokens: ArrayLike<number>;
  readonly from: number;
}

const EVERY = 4;

export class PromptOrder {
  #batches = 0;

  /** The order of a batch. `waiting`: whoever has waited for longest is first. */
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
