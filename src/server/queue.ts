// The request queue: at most `parallel` generations run, at most `waiting` wait, the rest is refused. Clients take
// turns: the client that was served longest ago is next, so that one with a hundred requests does not block the
// others. Knows nothing of HTTP or models.

import { queueFull, stopping, tooManyChoices } from "./errors.ts";

/** A turn to run. It must be given back exactly when the generation has ended. */
export interface Turn {
  release(): void;
}

interface Waiting {
  client: string;
  admit(): void;
  refuse(error: unknown): void;
}

export class AdmissionQueue {
  readonly parallel: number;
  readonly capacity: number;
  /** In order of arrival, over all clients. */
  readonly #waiting: Waiting[] = [];
  /** When each client was last served, as a counter; clients without requests are forgotten. */
  readonly #served = new Map<string, number>();
  readonly #active = new Map<string, number>();
  #running = 0;
  #turns = 0;
  #closed = false;

  constructor(parallel: number, capacity: number) {
    this.parallel = parallel;
    this.capacity = capacity;
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Throws immediately if `count` more requests could not even wait. */
  checkRoom(count: number = 1): void {
    if (this.#closed) throw stopping();
    if (count > this.parallel + this.capacity) {
      throw tooManyChoices(count, this.parallel + this.capacity);
    }
    const free = this.parallel - this.#running + this.capacity - this.#waiting.length;
    if (count > free) throw queueFull(this.#running, this.#waiting.length);
  }

  /** A turn, now or later. Rejects if there is no room, if the signal is aborted, or if the server stops. */
  enter(client: string, signal: AbortSignal): Promise<Turn> {
    return new Promise<Turn>((resolve, reject) => {
      signal.throwIfAborted();
      this.checkRoom();
      const admit = (): void => {
        signal.removeEventListener("abort", leave);
        resolve(this.#take(client));
      };
      const refuse = (error: unknown): void => {
        signal.removeEventListener("abort", leave);
        reject(error);
      };
      const entry: Waiting = { client, admit, refuse };
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(entry), 1);
        refuse(signal.reason);
      };
      if (this.#running < this.parallel) return admit();
      signal.addEventListener("abort", leave);
      this.#waiting.push(entry);
    });
  }

  /** Admits nobody any more; rejects those who wait. */
  close(): void {
    this.#closed = true;
    for (const { refuse } of this.#waiting.splice(0)) refuse(stopping());
  }

  #take(client: string): Turn {
    this.#running++;
    this.#served.set(client, ++this.#turns);
    this.#active.set(client, (this.#active.get(client) ?? 0) + 1);
    let held = true;
    return {
      release: () => {
        if (!held) return;
        held = false;
        this.#running--;
        this.#leave(client);
        this.#admitNext();
      },
    };
  }

  #leave(client: string): void {
    const left = this.#active.get(client)! - 1;
    if (left > 0) return void this.#active.set(client, left);
    this.#active.delete(client);
    if (!this.#waiting.some((entry) => entry.client === client)) this.#served.delete(client);
  }

  #admitNext(): void {
    if (this.#waiting.length === 0) return;
    const turn = (entry: Waiting): number => this.#served.get(entry.client) ?? 0;
    const next = this.#waiting.reduce((best, entry) => (turn(entry) < turn(best) ? entry : best));
    this.#waiting.splice(this.#waiting.indexOf(next), 1);
    next.admit();
  }
}
