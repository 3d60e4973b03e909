// The depth of drafts that maximises tokens per millisecond, 0 included. Arithmetic only; costs.ts knows the times of batches, and the
// drafter knows its acceptance.
//
// With depth d one batch verifies d drafted tokens and gives one more of the model's own. If each drafted token is right with
// probability a once all before it were, it gives 1 + a + ... + a^d tokens on average; if each has a probability of its own, 1 + a0 +
// a0 a1 + ...

export interface Depth {
  /** Tokens to draft; 0: speculation does not pay. */
  readonly depth: number;
  /** Tokens per millisecond, relative to depth 0; at least 1. */
  readonly gain: number;
}

const noDraft: Depth = { depth: 0, gain: 1 };

/** The facts that the choice depends on. */
export interface DepthFacts {
  /** Milliseconds of a batch with n tokens of this sequence and `others` of other sequences. */
  batchMs(tokens: number): number;
  /** Milliseconds of drafting n tokens; default: 0. */
  draftMs?(tokens: number): number;
  /** The probability that each drafted token is right, if all before it are. */
  readonly acceptance: number | ((index: number) => number);
  /** The most tokens of a draft; and the fewest (default 1): fewer are not drafted, 0 still is. */
  readonly most: number;
  readonly least?: number;
  /** Others wait for the drafts as well, so it is the tokens of all that are maximised. Default: 0. */
  readonly others?: number;
  /**
   * Whether state goes back to before the batch where a token was wrong. Then the next batch computes the accepted tokens of this one
   * again, in front of its own token, and has no drafts: both batches count. Default: false.
   */
  readonly goesBack?: boolean;
}

export function bestDepth(facts: DepthFacts): Depth {
  const { acceptance, most, least = 1, others = 0, goesBack = false } = facts;
  const plain = facts.batchMs(1) / (others + 1);
  let best = 0;
  let gain = 1;
  let tokens = others + 1;
  let power = 1;
  let againMs = 0; // of batches that follow a wrong token, times the probability of each
  for (let depth = 1; depth <= most; depth++) {
    const chance = typeof acceptance === "number" ? acceptance : acceptance(depth - 1);
    if (chance === 0) break;
    if (goesBack) {
      const wrong = power * (1 - chance);
      // The last token, depth - 1 that were right, and the one that was sampled instead.
      againMs += wrong * facts.batchMs(depth + 1);
      tokens += wrong * (others + 1);
    }
    power *= chance;
    tokens += power;
    if (depth < least) continue;
    const ms = facts.batchMs(depth + 1) + (facts.draftMs?.(depth) ?? 0) + againMs;
    const here = (tokens * plain) / ms;
    // For equal gains the lower depth: it wastes less if the acceptance was overestimated.
    if (here > gain) {
      gain = here;
      best = depth;
    }
    // Deeper drafts take at least as long, so that most end here: before each token of a text, at first in an interpreter.
    const atMost = tokens + power * (most - depth + (goesBack ? others + 1 : 0));
    if ((atMost * plain) / ms <= gain) break;
  }
  return best === 0 ? noDraft : { depth: best, gain };
}
