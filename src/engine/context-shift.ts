// Context shift: the tokens that a generation drops of a full context so that it can continue.

import type { ContextShift, GenerateOptions } from "../api/api.ts";
import { UsageError } from "../base/errors.ts";
import type { Engine } from "./engine.ts";
import { checkCount } from "./prompt-checks.ts";
import type { Sequence } from "./state/sequence.ts";

/** The tokens that a full context drops, as llama-server does; undefined: it does not shift. */
export function contextShift(
  engine: Engine,
  promptTokens: number,
  { contextShift = false, keepTokens = 0, discardTokens = 0 }: GenerateOptions,
): ((sequence: Sequence) => ContextShift | undefined) | undefined {
  checkCount("discardTokens", discardTokens);
  if (keepTokens !== -1) checkCount("keepTokens", keepTokens);
  if (!contextShift) return undefined;
  const { refusal } = engine.mover;
  if (refusal !== undefined) {
    throw new UsageError(
      `contextShift: the context of ${engine.info.name} cannot shift: ${refusal}. Leave it out; the answer then ends when the context is full`,
    );
  }
  const bos = engine.tokenizer.special.addBos ? 1 : 0;
  return ({ length, capacity }) => {
    if (length + 1 < capacity) return undefined;
    const kept = Math.min(
      Math.max(0, capacity - 4),
      (keepTokens < 0 ? promptTokens : keepTokens) + bos,
    );
    const left = length - kept;
    const discarded = Math.min(discardTokens || Math.floor(left / 2), Math.max(0, left - 1));
    return discarded > 0 ? { kept, discarded } : undefined;
  };
}
