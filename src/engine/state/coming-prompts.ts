// Prompts that are being computed. Background prompts that begin like one of them wait for it, and then share its state: lines of a
// batch that have a long beginning in common start at the same time, and would each compute it. Nobody waits for a background
// prompt, so waiting costs nothing; foreground prompts never wait here.

import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { AdapterUse } from "./adapter-use.ts";

interface ComingPrompt {
  readonly tokens: readonly number[];
  readonly adapters: AdapterUse;
  readonly ended: Promise<void>;
}

export class ComingPrompts {
  readonly #coming = new Set<ComingPrompt>();

  /** A prompt will be computed, or is already known, by the end of the result's scope. */
  begin(tokens: readonly number[], adapters: AdapterUse): Disposable {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const coming = { tokens, adapters, ended };
    this.#coming.add(coming);
    return {
      [Symbol.dispose]: () => {
        this.#coming.delete(coming);
        resolve();
      },
    };
  }

  /** Waits for prompts that begin like this one, and for more tokens than known() says; then begins it. */
  async beginAfterOthers(
    tokens: readonly number[],
    adapters: AdapterUse,
    known: () => number,
  ): Promise<Disposable> {
    for (;;) {
      const other = this.#sharing(tokens, adapters, known());
      if (!other) return this.begin(tokens, adapters);
      await other.ended;
    }
  }

  /** One that shares at least a whole block more than is known. */
  #sharing(
    tokens: readonly number[],
    { key }: AdapterUse,
    known: number,
  ): ComingPrompt | undefined {
    const least = Math.max(2, Math.floor(known / KV_BLOCK_TOKENS) + 1) * KV_BLOCK_TOKENS;
    if (tokens.length <= least) return undefined;
    for (const coming of this.#coming) {
      if (coming.adapters.key === key && sharesTokens(coming.tokens, tokens, least)) return coming;
    }
    return undefined;
  }
}

function sharesTokens(a: readonly number[], b: readonly number[], count: number): boolean {
  if (a.length < count || b.length < count) return false;
  // From the end: prompts that differ mostly do so before it.
  for (let i = count - 1; i >= 0; i--) if (a[i] !== b[i]) return false;
  return true;
}
