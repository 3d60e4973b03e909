// The processor's cores, shared by the engines of one process. Each engine has threads of its own, which sleep while it
// has nothing to compute. Before a batch it takes as many cores as it has threads, and gives them back after it: so two
// models that generate at once take turns in order of arrival, instead of slowing each other down with more threads than
// cores. An engine alone never waits. Engines whose threads fit on the cores together run at the same
// time.
//
// A change of turns is not free: the next engine's threads must be woken, and its weights are no longer in the caches. So an engine
// with short batches keeps the cores for TURN_MS although others wait. In the last batch of its turn its threads are told to sleep
// at once when they are done: they would spin on the cores that the next engine computes on.
//
// Shared i32 words:
//   changes   counts up whenever cores become free or an engine leaves the queue; waiting engines sleep on it
//   free      cores that no engine has taken
//   next      the last ticket that was handed out
//   used      entries that were ever given to engines
//   then, for each entry: its ticket while it waits (0: it does not), and the cores that it has taken

const CHANGES = 0;
const FREE = 1;
const NEXT = 2;
const USED = 3;
const PLACES = 4;
const TICKET = 0;
const TAKEN = 1;
const PLACE_WORDS = 2;
const MOST_PLACES = 64;
/** A waiting engine looks again after this time even if it was not woken: its request may have been aborted. */
const LOOK_MS = 100;
/** The interval of looks on platforms that cannot wake threads. */
const POLL_MS = 1;
/** The time for which an engine with short batches keeps the cores while others wait. */
export const TURN_MS = 10;

/** An engine's entry in the shared words, for its thread. */
export interface CorePlace {
  readonly words: Int32Array;
  readonly place: number;
  readonly cores: number;
}

/** The caller's side: gives entries to engines, and takes back the cores of a lost engine. */
export class CoreTurns {
  readonly #cores: number;
  readonly #words: Int32Array | undefined;
  readonly #unused: number[] = [];

  constructor(cores: number) {
    this.#cores = cores;
    if (typeof SharedArrayBuffer === "undefined") return;
    const bytes = 4 * (PLACES + PLACE_WORDS * MOST_PLACES);
    this.#words = new Int32Array(new SharedArrayBuffer(bytes));
    this.#words[FREE] = cores;
  }

  /** undefined: engines cannot share here, or there are too many; each computes as if it were alone. */
  enter(): CorePlace | undefined {
    const words = this.#words;
    if (!words) return undefined;
    const place = this.#unused.pop() ?? words[USED]!;
    if (place >= MOST_PLACES) return undefined;
    if (place === words[USED]) Atomics.add(words, USED, 1);
    return { words, place, cores: this.#cores };
  }

  /** The engine's thread has ended, perhaps in the middle of a batch. */
  leave({ words, place }: CorePlace): void {
    Atomics.store(words, wordOf(place, TICKET), 0);
    giveBack(words, place);
    this.#unused.push(place);
  }
}

/** The engine's side: around each batch. */
export class CoreTurn {
  readonly #words: Int32Array;
  readonly #place: number;
  readonly #threads: number;
  readonly #now: () => number;
  /** When the turn began, and the batch. */
  #since = 0;
  #begun = 0;
  /** The duration of the last batch. */
  #batchMs = 0;
  /** Between two batches of one turn. */
  #isKept = false;
  /** Ends a turn without a further batch. */
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `threads`: how many compute; 0 if something other than the processor does. */
  constructor(
    { words, place, cores }: CorePlace,
    threads: number,
    now: () => number = () => performance.now(),
  ) {
    this.#words = words;
    this.#place = place;
    this.#threads = Math.min(threads, cores);
    this.#now = now;
  }

  /** Takes the cores if it has kept them, or if enough are free and no engine waits for them. */
  take(): boolean {
    if (this.#isKept) {
      this.#isKept = false;
      return true;
    }
    return this.#take(0);
  }

  /** Takes the cores when it is this engine's turn, or leaves without them once `stop` returns true. */
  async wait(stop: () => boolean): Promise<void> {
    const words = this.#words;
    const mine = wordOf(this.#place, TICKET);
    const ticket = (Atomics.add(words, NEXT, 1) + 1) | 0 || 1;
    Atomics.store(words, mine, ticket);
    for (;;) {
      const seen = Atomics.load(words, CHANGES);
      if (stop() || this.#take(ticket)) break;
      await changed(words, seen);
    }
    Atomics.store(words, mine, 0);
    wakeOthers(words);
  }

  /** A batch begins. Whether it is probably the last of this turn: its threads should then leave the cores at once. */
  begin(): boolean {
    this.#begun = this.#now();
    return this.#begun + this.#batchMs - this.#since >= TURN_MS && this.#isWanted();
  }

  /**
   * After a batch: gives back the cores that it took, if any. With `isMore`, another batch will follow soon: if others wait, the
   * cores are kept until the turn is over, or the engine calls end().
   */
  release(isMore: boolean = false): void {
    const now = this.#now();
    this.#batchMs = now - this.#begun;
    const isOver = now - this.#since >= TURN_MS;
    if (!isMore || isOver || this.#threads === 0 || !this.#isWanted()) {
      this.end();
      return;
    }
    this.#isKept = true;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (this.#isKept) this.end();
    }, TURN_MS);
  }

  /** No batch follows: gives the cores back. Not during a batch. */
  end(): void {
    this.#isKept = false;
    giveBack(this.#words, this.#place);
  }

  /** Whether another engine waits for cores. */
  #isWanted(): boolean {
    const used = Atomics.load(this.#words, USED);
    for (let place = 0; place < used; place++) {
      if (place !== this.#place && Atomics.load(this.#words, wordOf(place, TICKET)) !== 0) {
        return true;
      }
    }
    return false;
  }

  /** `ticket`: this engine's position in the queue; 0: it is not in it. */
  #take(ticket: number): boolean {
    const words = this.#words;
    if (this.#threads === 0) return true;
    const used = Atomics.load(words, USED);
    for (let place = 0; place < used; place++) {
      if (place === this.#place) continue;
      const other = Atomics.load(words, wordOf(place, TICKET));
      // Compared by their distance: tickets begin again after 2^32.
      if (other !== 0 && (ticket === 0 || ((other - ticket) | 0) < 0)) return false;
    }
    for (;;) {
      const free = Atomics.load(words, FREE);
      if (free < this.#threads) return false;
      if (Atomics.compareExchange(words, FREE, free, free - this.#threads) !== free) continue;
      Atomics.store(words, wordOf(this.#place, TAKEN), this.#threads);
      this.#since = this.#now();
      return true;
    }
  }
}

function wordOf(place: number, word: number): number {
  return PLACES + PLACE_WORDS * place + word;
}

function giveBack(words: Int32Array, place: number): void {
  const taken = Atomics.exchange(words, wordOf(place, TAKEN), 0);
  if (taken === 0) return;
  Atomics.add(words, FREE, taken);
  wakeOthers(words);
}

function wakeOthers(words: Int32Array): void {
  Atomics.add(words, CHANGES, 1);
  Atomics.notify(words, CHANGES);
}

/** Resolves when the count of changes is no longer `seen`, or after a while. The thread receives messages meanwhile. */
async function changed(words: Int32Array, seen: number): Promise<void> {
  if (typeof Atomics.waitAsync !== "function") {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    return;
  }
  const waiting = Atomics.waitAsync(words as Int32Array<SharedArrayBuffer>, CHANGES, seen, LOOK_MS);
  if (waiting.async) await waiting.value;
}
