// Chores for idle times: one after the other, aborted when work arrives and restarted after it. `chat` runs them while
// the user thinks, `serve` while it has no requests.

import { AbortedError } from "../../src/index.ts";

/** Rejects with an AbortedError if the signal is aborted; any other result, also a failure, ends the chore. */
export type IdleChore = (signal: AbortSignal) => Promise<void>;

export class IdleWork {
  readonly #chores: IdleChore[];
  #running: { controller: AbortController; ended: Promise<void> } | undefined;

  constructor(chores: readonly IdleChore[]) {
    this.#chores = [...chores];
  }

  get isDone(): boolean {
    return this.#chores.length === 0;
  }

  resume(): void {
    if (this.isDone || this.#running) return;
    const controller = new AbortController();
    this.#running = { controller, ended: this.#work(controller.signal) };
  }

  async pause(): Promise<void> {
    const running = this.#running;
    running?.controller.abort();
    await running?.ended;
  }

  async #work(signal: AbortSignal): Promise<void> {
    for (let chore = this.#chores[0]; chore && !signal.aborted; chore = this.#chores[0]) {
      try {
        await chore(signal);
      } catch (error) {
        if (error instanceof AbortedError) break; // later, from its start
      }
      this.#chores.shift();
    }
    this.#running = undefined;
  }
}

const lookMs = 50;
/** Checks without work before the program counts as idle. */
const patience = 40;

/** Runs the chores whenever `isBusy` was false for two seconds; returns a function that ends it. */
export function workWhileIdle(work: IdleWork, isBusy: () => boolean): () => Promise<void> {
  let quiet = 0;
  const timer = setInterval(() => {
    if (work.isDone) clearInterval(timer);
    quiet = isBusy() ? 0 : quiet + 1;
    if (quiet === 0) void work.pause();
    else if (quiet >= patience) work.resume();
  }, lookMs);
  return async () => {
    clearInterval(timer);
    await work.pause();
  };
}
