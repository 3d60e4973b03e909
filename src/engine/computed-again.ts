// Why a prompt is computed although an earlier text began with it, or held most of it: a sentence for the log and for --explain, so that
// computing again never happens silently.

import type { ComputedAgain } from "../api/api.ts";
import type { Tokenizer } from "../tokenizers/tokenizer.ts";
import { type KnownTexts, NOTABLE_TOKENS, type Rewritten } from "./state/known-texts.ts";
import type { MissingReason, StateTiers } from "./tiers/state-tiers.ts";

export interface ExplainedPrompt {
  readonly tokens: readonly number[];
  /** The number of them that are not computed. */
  readonly cached: number;
  readonly known: KnownTexts;
  readonly tiers: StateTiers | undefined;
  readonly tokenizer: Tokenizer;
}

const reasons: Readonly<Record<MissingReason, readonly [ComputedAgain["reason"], string]>> = {
  budget: ["budget", "the budget for copies was spent on later texts (--cache-ram, --cache-disk)"],
  removed: ["removed", "its copies on disk were removed"],
  damaged: ["damaged", "its copies on disk are damaged"],
  dropped: ["room", "its room in the KV cache was needed before it was copied"],
  checkpoint: [
    "checkpoint",
    "layers with a window or recurrent state go on only from places where their state was kept, and this was the last one",
  ],
  dear: [
    "room",
    "the KV cache had no room for it, and no copy was made because computing is faster here than copying",
  ],
  unknown: ["room", "the KV cache had no room for it, and no copy was made"],
};

/** undefined: no state of the prompt was known, or all known state is used. */
export async function computedAgain(prompt: ExplainedPrompt): Promise<ComputedAgain | undefined> {
  const { tokens, cached, known, tiers } = prompt;
  const usable = tokens.length - 1; // the last token is always computed
  if (usable - cached < NOTABLE_TOKENS) return undefined;
  const prefix = Math.min(known.prefix(tokens), usable);
  const missing = tiers?.missing(tokens, cached, prefix);
  if (missing) {
    const [reason, clause] = reasons[missing.reason];
    return again(prompt, reason, Math.max(prefix - cached, NOTABLE_TOKENS), missing.at, clause);
  }
  if (!tiers && prefix - cached > NOTABLE_TOKENS) {
    const clause =
      "the KV cache had no room for it, and no copies are kept outside of it (--cache-ram, --cache-disk)";
    return again(prompt, "room", prefix - cached, cached, clause);
  }
  const rewritten = known.rewritten(tokens);
  if (rewritten) return changed(prompt, rewritten);
  if (cached > 0) return undefined;
  const stale = await tiers?.stale(tokens);
  return stale === undefined
    ? undefined
    : again(
        prompt,
        "settings",
        usable,
        0,
        `it was stored when the model was computed otherwise: ${stale}`,
      );
}

function again(
  { tokens }: ExplainedPrompt,
  reason: ComputedAgain["reason"],
  count: number,
  at: number,
  clause: string,
): ComputedAgain {
  const text = `a prompt of ${tokens.length} tokens is computed again from token ${at} on: ${clause}`;
  return { reason, tokens: count, at, text };
}

function changed({ tokenizer }: ExplainedPrompt, rewritten: Rewritten): ComputedAgain {
  const { at, was, is, repeated } = rewritten;
  const [old, now] = [was, is].map((id) => shown(tokenizer, id));
  const text =
    `a prompt repeats ${repeated} tokens of an earlier text, but token ${at} is another (it was ${old}, and is ${now}), so they are ` +
    "computed again. Templates and clients that change earlier messages do this, for example with dates or by leaving thoughts out. Both versions are kept";
  return { reason: "changed", tokens: repeated, at, text };
}

function shown(tokenizer: Tokenizer, id: number): string {
  const text =
    id < tokenizer.vocabSize ? tokenizer.decode([id], { special: true, continues: true }) : "";
  return `${id} ${JSON.stringify(text)}`;
}
