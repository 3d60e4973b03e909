// The request queue: at most `parallel` generations run, at most `waiting` wait, the rest is refused. All turns (the right to run) are
// shared between clients, however many requests each has:
//   - a free turn goes to the client that has the fewest, of equals to the one that was served longest ago;
//   - if none is free, a turn of the client with the most is asked back (Turn.preempted) for one that has at least two fewer. Its
//     generation continues later, before its client's other requests;
//   - a turn that has lasted for its quantum of tokens is asked back for any waiting request, also of the same client, and its generation
//     continues after those that have had none: the next request of a program that has opened many streams does not wait for all of them;
//   - of several turns, one is kept for requests without a grammar while there are any: masks may take long, however few tokens they are for;
//   - if the queue is full, the last request of the client with the most waiting is refused for one that has at least two fewer.
// Knows nothing of HTTP or models.

import { queueFull, stopping, tooManyChoices } from "./errors.ts";

/** The right to run. It must be given back exactly when the generation has ended. */
export interface Turn {
  /** Aborted when another client is to have the turn: it is given back soon, and the work continues in a further turn. */
  readonly preempted: AbortSignal;
  /** One token of its quantum was generated. */
  spend(): void;
  release(): void;
}

/** Tokens of a turn before it may be asked back for the client's own requests */
export const QUANTUM = 64;
/** The reason of Turn.preempted when the quantum is spent. */
export const QUANTUM_SPENT = "its quantum is spent";
/** Later requests that may overtake one whose quantum is spent. */
const MOST_OVERTAKEN = 4;

export interface EnterOptions {
  /** The turn may be asked back. Default: false. */
  mayPause?: boolean;
  /** The work had a turn before: it is never refused, and continues before its client's other requests. Default: false. */
  isBegun?: boolean;
  /** The quantum of its last turn is spent: it continues after the requests that have had none. Default: false. */
  isSpent?: boolean;
  /** It has a grammar. Default: false. */
  isMasked?: boolean;
  /** The quantum in tokens; more if resuming is more expensive. */
  quantum?: number;
}

interface Waiting {
  client: string;
  mayPause: boolean;
  isBegun: boolean;
  isSpent: boolean;
  isMasked: boolean;
  overtaken: number;
  admit(): void;
  refuse(error: unknown): void;
}

interface Running {
  client: string;
  mayPause: boolean;
  isMasked: boolean;
  /** Tokens that are left of its quantum. */
  left: number;
  preempted: AbortController;
}

/** Numbers by client. */
type Counts = Map<string, number>;

export class AdmissionQueue {
  readonly parallel: number;
  readonly capacity: number;
  /** The most turns of one client, even if others are free. */
  readonly #mostOfClient: number;
  /** Waiting requests in order of arrival, over all clients; those that had a turn before come first. */
  #waiting: Waiting[] = [];
  /** Turns in the order of their beginning. */
  #running: Running[] = [];
  /** When each client was last served, as a counter; clients without requests are forgotten. */
  readonly #served: Counts = new Map();
  #turns = 0;
  #closed = false;

  constructor(parallel: number, capacity: number, mostOfClient: number = parallel) {
    this.parallel = parallel;
    this.capacity = capacity;
    this.#mostOfClient = mostOfClient;
  }

  get running(): number {
    return this.#running.length;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Throws immediately if the queue is too full for `count` more requests of a client. */
  checkCapacity(client: string, count: number = 1): void {
    if (this.#closed) throw stopping();
    if (count > this.parallel + this.capacity) {
      throw tooManyChoices(count, this.parallel + this.capacity);
    }
    const fresh = this.#fresh;
    const waiting = countsOf(fresh);
    let free = this.parallel - this.running + this.capacity - fresh.length;
    for (let own = 1; own <= count; own++, free--) {
      const refused = free > 0 ? undefined : greediest(waiting, client);
      if (free <= 0 && refused === undefined) throw queueFull(this.running, this.waiting);
      if (refused !== undefined) add(waiting, refused, -1);
      add(waiting, client, 1);
    }
  }

  /** A turn, now or later. Rejects if the queue is full, if the signal is aborted, or if the server stops. */
  enter(client: string, signal: AbortSignal, options: EnterOptions = {}): Promise<Turn> {
    const { mayPause = false, isBegun = false, isSpent = false, isMasked = false } = options;
    const { quantum = QUANTUM } = options;
    return new Promise<Turn>((resolve, reject) => {
      signal.throwIfAborted();
      if (!isBegun) this.#makeRoom(client);
      const leave = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(entry), 1);
        entry.refuse(signal.reason);
      };
      const entry: Waiting = {
        ...{ client, mayPause, isBegun, isSpent, isMasked, overtaken: 0 },
        admit: () => {
          signal.removeEventListener("abort", leave);
          resolve(this.#take(entry, quantum));
        },
        refuse: (error) => {
          signal.removeEventListener("abort", leave);
          this.#forget(client);
          reject(error);
        },
      };
      signal.addEventListener("abort", leave);
      this.#waiting.splice(this.#placeOf(entry), 0, entry);
      this.#fill();
    });
  }

  /** Work that was preempted for others goes first; work whose quantum is spent lets some requests that have had no turn go first. */
  #placeOf({ isBegun, isSpent }: Waiting): number {
    if (isSpent) return this.#waiting.length;
    if (isBegun) {
      const at = this.#waiting.findIndex((one) => !one.isBegun || one.isSpent);
      return at < 0 ? this.#waiting.length : at;
    }
    let at = this.#waiting.length;
    for (; at > 0; at--) {
      const before = this.#waiting[at - 1]!;
      if (!before.isSpent || before.overtaken === MOST_OVERTAKEN) break;
      before.overtaken++;
    }
    return at;
  }

  /** Admits no new requests any more; rejects the waiting ones that have not begun. */
  close(): void {
    this.#closed = true;
    const fresh = this.#fresh;
    this.#waiting = this.#waiting.filter(({ isBegun }) => isBegun);
    for (const { refuse } of fresh) refuse(stopping());
  }

  /** Requests that wait for their first turn. */
  get #fresh(): Waiting[] {
    return this.#waiting.filter(({ isBegun }) => !isBegun);
  }

  /** Makes room for one more waiting request, or throws. */
  #makeRoom(client: string): void {
    this.checkCapacity(client);
    const fresh = this.#fresh;
    if (this.running < this.parallel || fresh.length < this.capacity) return;
    const most = greediest(countsOf(fresh), client)!;
    const last = fresh.findLast((entry) => entry.client === most)!;
    this.#waiting.splice(this.#waiting.indexOf(last), 1);
    last.refuse(queueFull(this.running, this.waiting));
  }

  #take({ client, mayPause, isMasked }: Waiting, quantum: number): Turn {
    const preempted = new AbortController();
    const own: Running = { client, mayPause, isMasked, left: quantum, preempted };
    this.#running.push(own);
    this.#served.set(client, ++this.#turns);
    return {
      preempted: own.preempted.signal,
      spend: () => {
        if (--own.left === 0) this.#askBack();
      },
      release: () => {
        const at = this.#running.indexOf(own);
        if (at < 0) return;
        this.#running.splice(at, 1);
        this.#fill();
        this.#forget(client);
      },
    };
  }

  #forget(client: string): void {
    const isOf = (one: { client: string }): boolean => one.client === client;
    if (!this.#running.some(isOf) && !this.#waiting.some(isOf)) this.#served.delete(client);
  }

  /** Gives out the free turns, and asks others back. */
  #fill(): void {
    while (this.running < this.parallel) {
      const open =
        this.parallel - this.running === 1 ? this.#forLast(this.#running) : this.#waiting;
      const next = this.#next(open, countsOf(this.#running));
      if (!next) return;
      this.#waiting.splice(this.#waiting.indexOf(next), 1);
      next.admit();
    }
    this.#askBack();
  }

  /** The requests that may have the last turn beside these: those without a grammar, if there are any and none of them has a turn. */
  #forLast(others: readonly Running[]): readonly Waiting[] {
    if (this.parallel === 1 || others.some(({ isMasked }) => !isMasked)) return this.#waiting;
    const free = this.#waiting.filter(({ isMasked }) => !isMasked);
    return free.length > 0 ? free : this.#waiting;
  }

  /** The request that gets the next turn. */
  #next(waiting: readonly Waiting[], turns: Counts): Waiting | undefined {
    let best: Waiting | undefined;
    const order = ({ client }: Waiting): number[] => [
      turns.get(client) ?? 0,
      this.#served.get(client) ?? 0,
    ];
    for (const entry of waiting) {
      if ((turns.get(entry.client) ?? 0) >= this.#mostOfClient) continue;
      if (!best || isBefore(order(entry), order(best))) best = entry;
    }
    return best;
  }

  /** Asks turns back until every client has its share of them, then those whose quantum is spent, for other waiting requests. */
  #askBack(): void {
    const kept = this.#running.filter(({ preempted }) => !preempted.signal.aborted);
    const turns = countsOf(kept);
    const waiting = [...this.#waiting];
    let promised = this.running - kept.length;
    for (;;) {
      const next = this.#next(waiting, turns);
      if (!next) break;
      if (promised > 0) promised--;
      else {
        const { isMasked } = next;
        const pausable = kept.filter(
          (turn) => turn.mayPause && !this.#isLastFree(turn, kept, isMasked),
        );
        const clients = new Set(pausable.map(({ client }) => client));
        const most = greediest(turns, next.client, (client) => clients.has(client));
        if (most === undefined) break;
        const last = pausable.findLast(({ client }) => client === most)!;
        kept.splice(kept.indexOf(last), 1);
        add(turns, most, -1);
        last.preempted.abort();
      }
      add(turns, next.client, 1);
      waiting.splice(waiting.indexOf(next), 1);
    }
    this.#askForFree(kept, turns);
    for (const { client, isMasked } of waiting.slice(promised)) {
      const own = turns.get(client) ?? 0;
      const spent = kept.find(
        (turn) =>
          turn.mayPause &&
          turn.left <= 0 &&
          !this.#isLastFree(turn, kept, isMasked) &&
          (turn.client === client || (turns.get(turn.client)! > own && own < this.#mostOfClient)),
      );
      if (!spent) continue;
      kept.splice(kept.indexOf(spent), 1);
      add(turns, spent.client, -1);
      add(turns, client, 1);
      spent.preempted.abort(QUANTUM_SPENT);
    }
  }

  /** Whether a request with a grammar cannot have this turn: it is the only turn without one. */
  #isLastFree(turn: Running, kept: readonly Running[], isMasked: boolean): boolean {
    if (this.parallel === 1 || !isMasked || turn.isMasked) return false;
    return !kept.some((other) => other !== turn && !other.isMasked);
  }

  /** If all turns have grammars, one is asked back for a request without. */
  #askForFree(kept: Running[], turns: Counts): void {
    if (this.parallel === 1 || kept.length < this.parallel) return;
    if (kept.some(({ isMasked }) => !isMasked)) return;
    if (this.#forLast(kept).every(({ isMasked }) => isMasked)) return;
    const last = kept.findLast(({ mayPause }) => mayPause);
    if (last === undefined) return;
    kept.splice(kept.indexOf(last), 1);
    add(turns, last.client, -1);
    last.preempted.abort();
  }
}

function countsOf(some: readonly { client: string }[]): Counts {
  const counts: Counts = new Map();
  for (const { client } of some) add(counts, client, 1);
  return counts;
}

function add(counts: Counts, client: string, count: number): void {
  counts.set(client, (counts.get(client) ?? 0) + count);
}

/** The client with the most, if it would still have no fewer than this one after giving it one. */
function greediest(
  counts: Counts,
  than: string,
  isCandidate: (client: string) => boolean = () => true,
): string | undefined {
  let most: string | undefined;
  let least = (counts.get(than) ?? 0) + 2;
  for (const [client, count] of counts) {
    if (count < least || !isCandidate(client)) continue;
    most = client;
    least = count + 1;
  }
  return most;
}

/** Whether a list of numbers comes before another of the same length. */
function isBefore(one: readonly number[], other: readonly number[]): boolean {
  const at = one.findIndex((number, i) => number !== other[i]);
  return at >= 0 && one[at]! < other[at]!;
}
