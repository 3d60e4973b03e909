// An answer that is continued from its first tokens: GenerateOptions.resumeTokens. Another engine has written them, and this one
// continues as that one would have.
//
// Their state is computed as a prompt's is, many tokens at a time. The sampler is then in its state after them: penalties know the
// tokens, and the random number generator has drawn as often. If that is not enough (a sampler that learns from logits, a context that
// shifts) the tokens are decoded one by one once more, and only the choice is not free.

import { UsageError } from "../base/errors.ts";
import { show } from "../base/show.ts";
import type { Engine } from "./engine.ts";
import type { SampledToken, Sampler } from "./sampling.ts";

export function checkedResume(engine: Engine, tokens: readonly number[] = []): readonly number[] {
  const wrong = tokens.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= engine.vocabSize);
  if (wrong < 0) return tokens;
  throw new UsageError(
    `resumeTokens: token id ${show(tokens[wrong])} is not in the vocabulary (0 to ${engine.vocabSize - 1}). Give the tokens that the same model has written`,
  );
}

/** Whether the tokens can be read like a prompt; the sampler has gone on behind them then. */
export function canReadAnswer(
  engine: Engine,
  prompt: readonly number[],
  resumed: readonly number[],
  isShifting: boolean,
  sampler: Sampler,
): boolean {
  if (isShifting || prompt.length + resumed.length >= engine.info.contextSize) return false;
  return sampler.skip(resumed.length);
}

/** The token that was written here before, if one was. */
export function again(sampled: SampledToken, written: number | undefined): SampledToken {
  return written === undefined || written === sampled.id ? sampled : { ...sampled, id: written };
}
