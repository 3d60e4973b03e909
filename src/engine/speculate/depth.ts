// How many tokens to draft: the depth that maximises tokens per millisecond, 0 included. Arithmetic only; costs.ts knows
// what batches take, and who drafts knows how often it was right.
//
// With depth d one batch verifies d drafted tokens and gives one more of the model's own. If each drafted token is right
// with probability a once those before it were, it gives 1 + a + ... + a^d tokens on average; where each has a probability of
// its own, 1 + a0 + a0 a1 + ...

export interface Depth {
  /** Tokens to draft; 0: speculation does not pay. */
  readonly depth: number;
  /** Tokens per millisecond, relative to depth 0; at least 1. */
  readonly gain: number;
}

const noDraft: Depth = { depth: 0, gain: 1 };

/**
 * `batchMs(n)`: of a batch with n tokens of this sequence and `others` of other sequences. They wait for the drafts as well,
 * so it is the tokens of all that are maximised. `draftMs(n)`: of drafting n tokens. `acceptance`: of each drafted token, if
 * those before it are right. `least`: fewer are not drafted (0 still is).
 */
export function bestDepth(
  batchMs: (tokens: number) => number,
  draftMs: (tokens: number) => number,
  acceptance: number | ((index: number) => number),
  most: number,
  least = 1,
  others = 0,
): Depth {
  const plain = batchMs(1) / (others + 1);
  let best = 0;
  let gain = 1;
  let tokens = others + 1;
  let power = 1;
  for (let depth = 1; depth <= most; depth++) {
    power *= typeof acceptance === "number" ? acceptance : acceptance(depth - 1);
    if (power === 0) break;
    tokens += power;
    if (depth < least) continue;
    const here = (tokens * plain) / (batchMs(depth + 1) + draftMs(depth));
    // Of equal gains the lower depth: it wastes less when the acceptance was overestimated.
    if (here > gain) {
      gain = here;
      best = depth;
    }
  }
  return best === 0 ? noDraft : { depth: best, gain };
}
