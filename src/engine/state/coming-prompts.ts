// Prompts that are being computed. A prompt that begins like one of them waits for it, and then shares its state: alternatives of a
// text, several users with one system prompt and lines of a batch start at the same time, and would each compute it.
//
// A background prompt waits for any other. A foreground prompt waits only if that costs it nothing: for another foreground prompt
// with at most a block of its own tokens after their common prefix.

import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { AdapterUse } from "./adapter-use.ts";

/** Fewer tokens are computed in the same batches as the other's: waiting would take longer. */
const LEAST_SAVED = 16;

interface ComingPrompt {
  readonly tokens: readonly number[];
  readonly adapters: AdapterUse;
  readonly isBackground: boolean;
  readonly ended: Promise<void>;
  isAwaited: boolean;
}

/** A prompt from its beginning until it is computed or cancelled. */
export interface BegunPrompt extends Disposable {
  /** Whether others wait for its state. */
  readonly isAwaited: boolean;
}

/** A prompt that may wait for others. */
export interface WaitingPrompt {
  readonly tokens: readonly number[];
  readonly adapters: AdapterUse;
  readonly isBackground: boolean;
  /** The number of its tokens that are computed or known by now. */
  known(): number;
  /** The number that need not be computed if `shared` tokens are shared with a sequence. */
  usable(shared: number): number;
  isAborted(): boolean;
}

export class ComingPrompts {
  readonly #coming = new Set<ComingPrompt>();
  /** Wakes the waiting prompts to look again. */
  #look = Promise.withResolvers<void>();

  /** A prompt will be computed, or is already known, by the end of the result's scope. */
  begin(
    tokens: readonly number[],
    adapters: AdapterUse,
    isBackground: boolean = false,
  ): BegunPrompt {
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const coming: ComingPrompt = { tokens, adapters, isBackground, ended, isAwaited: false };
    this.#coming.add(coming);
    return {
      get isAwaited(): boolean {
        return coming.isAwaited;
      },
      [Symbol.dispose]: () => {
        this.#coming.delete(coming);
        resolve();
      },
    };
  }

  /** Waits for prompts that begin like this one, as long as that saves computing; then begins it. */
  async beginAfterOthers(prompt: WaitingPrompt): Promise<BegunPrompt> {
    const { tokens, adapters, isBackground } = prompt;
    for (;;) {
      const other = prompt.isAborted() ? undefined : this.#sharing(prompt);
      if (!other) return this.begin(tokens, adapters, isBackground);
      other.isAwaited = true;
      await Promise.race([other.ended, this.#look.promise]);
    }
  }

  /** A waiting prompt may have been aborted. */
  check(): void {
    this.#look.resolve();
    this.#look = Promise.withResolvers<void>();
  }

  #sharing({ tokens, adapters, isBackground, ...prompt }: WaitingPrompt): ComingPrompt | undefined {
    if (this.#coming.size === 0 || tokens.length <= LEAST_SAVED) return undefined;
    const known = prompt.known();
    for (const coming of this.#coming) {
      if (coming.adapters.key !== adapters.key || (coming.isBackground && !isBackground)) continue;
      const shared = commonPrefix(coming.tokens, tokens);
      const saved = prompt.usable(Math.min(shared, tokens.length - 1)) - known;
      const own = coming.tokens.length - shared;
      if (saved >= LEAST_SAVED && (isBackground || own <= KV_BLOCK_TOKENS)) return coming;
    }
    return undefined;
  }
}

function commonPrefix(a: readonly number[], b: readonly number[]): number {
  const most = Math.min(a.length, b.length);
  let same = 0;
  while (same < most && a[same] === b[same]) same++;
  return same;
}
