// The steps of a generation that compute: it opens its sequence, reuses the known prefix of the prompt, and advances by batches.

import type { GenerateOptions } from "../api/api.ts";
import { AbortedError } from "../base/errors.ts";
import { isBackground } from "./background.ts";
import type { AdvanceOptions, Engine, RunningSequence } from "./engine.ts";
import type { RunControl } from "./run-control.ts";
import type { AdapterUse } from "./state/adapter-use.ts";
import type { Sequence } from "./state/sequence.ts";
import { ownerOf } from "./tiers/owners.ts";

/** undefined if it was aborted while it waited for room. */
export async function openSequence(
  engine: Engine,
  {
    tokens,
    options,
    adapters,
  }: { tokens: readonly number[]; options: GenerateOptions; adapters: AdapterUse },
  maxTokens: number,
  control: RunControl,
): Promise<RunningSequence | undefined> {
  try {
    return await engine.open({
      tokens,
      mayAdd: maxTokens,
      adapters,
      isStored: true,
      owner: ownerOf(options.conversation, options.cacheDisk),
      reuses: options.cachePrompt ?? true,
      reusePieces: options.cachePrompt === false ? 0 : (options.cacheReuse ?? 0),
      ...(isBackground(options.priority) && {
        // Tokens that a context shift dropped cannot be computed again.
        background: options.contextShift ? "stays" : "yields",
      }),
      isAborted: () => control.aborted,
    });
  } catch (error) {
    if (error instanceof AbortedError) return undefined;
    throw error;
  }
}

/** Keeps the state of the prompt's known prefix; the last token is always computed again, for its logits. */
export function reuse(sequence: Sequence, tokens: readonly number[]): number {
  const same = Math.min(sequence.commonPrefix(tokens), tokens.length - 1);
  const cached = sequence.restorable(same);
  sequence.restore(cached);
  return cached;
}

interface PromptRun {
  control: RunControl;
  /** Reads the logits of the last token. */
  output: Pick<AdvanceOptions, "onOutput" | "best" | "adjusted">;
  /** Called before the first batch and after each. */
  onBatch?: (() => void) | undefined;
  /** See AdvanceOptions. */
  meanwhile?: (() => void) | undefined;
}

/** Computes the part of the prompt that is not cached; false if it was aborted. */
export async function prefill(
  engine: Engine,
  running: RunningSequence,
  tokens: readonly number[],
  { control, output, onBatch, meanwhile }: PromptRun,
): Promise<boolean> {
  const { sequence } = running;
  const last = tokens.length - 1;
  const lastOnly: AdvanceOptions = {
    ...output,
    wants: (index) => index === last,
    stop: () => control.aborted,
    ...(meanwhile && { meanwhile }),
  };
  onBatch?.();
  try {
    while (sequence.length < tokens.length) {
      if (control.aborted) return false;
      await engine.advance(running, tokens, sequence.length, lastOnly);
      onBatch?.();
      // Elsewhere messages come in while a device computes, which waits for its next batch now.
      if (!engine.computesApart) await control.yieldThread();
      engine.laps?.lap("prompt", "messages");
    }
  } catch (error) {
    if (!(error instanceof AbortedError)) throw error;
  }
  return !control.aborted;
}

/** Advances batches whose logits go to one buffer; stops as soon as the generation is aborted. */
export function readingInto(
  logits: Float32Array,
  wants: (index: number) => boolean,
  control: RunControl,
): AdvanceOptions {
  return {
    wants,
    onOutput: (_, read) => read("logits", logits),
    stop: () => control.aborted,
  };
}
