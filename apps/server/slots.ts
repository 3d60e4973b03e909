// llama.cpp's slots. The engine has none: it finds cached prefixes by their tokens, whichever request computed them. Here a slot is
// a number that a request runs under, and the text that was last computed under it: POST /slots/:id saves, restores and erases that
// text.
//
// A request without `id_slot` gets the idle slot whose text shares the longest prefix with its prompt, or else the one not used for longest.

import type { GenerateOptions } from "../../src/index.ts";
import { invalidRequest, queueFull } from "./errors.ts";

/** The least share of a prompt that a slot's text must begin with to be chosen for it, as in llama.cpp. */
const LEAST_SIMILARITY = 0.1;

/** A running generation, for /slots. */
export interface Job {
  id: number;
  /** llama.cpp's slot (slots.ts). */
  slot: number;
  model: string;
  route: string;
  options: GenerateOptions;
  promptTokens: number;
  /** Prompt tokens that were not computed; 0 until that is known. */
  cachedTokens: number;
  generatedTokens: number;
  hasNewLine: boolean;
}

export interface Slot {
  readonly id: number;
  /** The model and the tokens of the last text. */
  model: string | undefined;
  tokens: readonly number[];
  /** The running generation, or the last one. */
  job: Job | undefined;
  isBusy: boolean;
  /** A counter of uses: the smallest was used longest ago. */
  used: number;
}

export class Slots {
  readonly all: readonly Slot[];
  readonly #mostWaiting: number;
  #uses = 0;
  /** Requests that wait for a slot to become idle. */
  #waiting: (() => void)[] = [];

  constructor(count: number, mostWaiting: number) {
    this.#mostWaiting = mostWaiting;
    this.all = Array.from({ length: count }, (_, id) => ({
      id,
      model: undefined,
      tokens: [],
      job: undefined,
      isBusy: false,
      used: 0,
    }));
  }

  /** Throws llama.cpp's message if there is none. */
  at(id: number): Slot {
    const slot = this.all[id];
    if (slot) return slot;
    throw invalidRequest(
      `Invalid slot ID: got ${id}, expected 0 to ${this.all.length - 1} (--parallel)`,
      "id_slot",
    );
  }

  /** Resolves when this slot (default: any) is idle: claim() it at once. */
  async idle(id: number | undefined, signal: AbortSignal): Promise<void> {
    const wanted = id === undefined ? this.all : [this.at(id)];
    while (wanted.every(({ isBusy }) => isBusy)) {
      signal.throwIfAborted();
      if (this.#waiting.length >= this.#mostWaiting) {
        throw queueFull(this.all.filter(({ isBusy }) => isBusy).length, this.#waiting.length);
      }
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const leave = (): void => {
        this.#waiting = this.#waiting.filter((wake) => wake !== resolve);
        reject(signal.reason as Error);
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting.push(resolve);
      try {
        await promise;
      } finally {
        signal.removeEventListener("abort", leave);
      }
    }
  }

  /** Takes this slot, or else the best idle one for a prompt; undefined: it is busy. */
  claim(
    asked: number | undefined,
    prompt: { model: string; tokens: readonly number[] },
  ): Slot | undefined {
    const slot = asked === undefined ? this.#best(prompt) : this.at(asked);
    if (!slot || slot.isBusy) return undefined;
    slot.isBusy = true;
    slot.used = ++this.#uses;
    return slot;
  }

  /** Forgets the texts of these conversations; none of them is running. */
  forget(conversations: readonly string[]): void {
    for (const slot of this.all) {
      const { conversation } = slot.job?.options ?? {};
      if (slot.isBusy || conversation === undefined || !conversations.includes(conversation))
        continue;
      Object.assign(slot, { model: undefined, tokens: [], job: undefined });
    }
  }

  release(slot: Slot): void {
    slot.isBusy = false;
    for (const wake of this.#waiting.splice(0)) wake();
  }

  #best({ model, tokens }: { model: string; tokens: readonly number[] }): Slot | undefined {
    const idle = this.all.filter(({ isBusy }) => !isBusy);
    let best: Slot | undefined;
    let most = tokens.length * LEAST_SIMILARITY;
    for (const slot of idle) {
      const same = slot.model === model ? commonPrefix(slot.tokens, tokens) : 0;
      if (same <= most) continue;
      best = slot;
      most = same;
    }
    return best ?? idle.toSorted((a, b) => a.used - b.used)[0];
  }
}

function commonPrefix(a: readonly number[], b: readonly number[]): number {
  const most = Math.min(a.length, b.length);
  for (let same = 0; same < most; same++) if (a[same] !== b[same]) return same;
  return most;
}

/** The rules of llama.cpp's fs_validate_filename, without subfolders: a name that stays in its folder on every system. */
export function isPlainFileName(name: string): boolean {
  if (name === "" || new TextEncoder().encode(name).length > 255) return false;
  if (/^ |[ .]$|\.\./.test(name)) return false;
  // Control characters, separators and their lookalikes, characters that Windows forbids, lone surrogates.
  return !/[\p{Cc}\p{Cs}/\\:*?"<>|\uff0e\u2215\u2216\ufffd\ufeff]/u.test(name);
}
