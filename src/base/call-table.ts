// A table of calls for a profile: how often each was made, and the sum, extremes and variance of their times, kept as running
// numbers (Welford's method), so that a call takes no memory. Loading and later work are kept apart.

/** The source and target of a copy: a host's memory and a device's. */
export type CopyDirection = "host to device" | "device to host" | "device to device";

/** Calls of one name. */
export interface CallRecord {
  readonly name: string;
  readonly when: "load" | "run";
  readonly count: number;
  readonly ms: number;
  readonly minMs: number;
  readonly maxMs: number;
  /** The variance of the times of single calls. */
  readonly varianceMs2: number;
  /** Bytes that they moved or allocated; 0: none. */
  readonly bytes: number;
  readonly copy: CopyDirection | undefined;
  /** The call's time is not that of its bytes: it enqueues the work, or only allocates. */
  readonly movesLater: boolean;
}

interface Sums {
  count: number;
  ms: number;
  minMs: number;
  maxMs: number;
  mean: number;
  /** Sum of squared distances from the mean. */
  squares: number;
  bytes: number;
  readonly kind: CallKind;
}

/** The properties that calls of a name share. */
export interface CallKind {
  readonly copy?: CopyDirection;
  readonly movesLater?: boolean;
}

const plain: CallKind = {};

/** Numbers of one call in CallLog.numbers: which name, start, end, bytes. */
export const CALL_NUMBERS = 4;
/** The number of calls that are kept one by one, and of changes of the allocated memory. */
const LOGGED = 2 ** 14;

/** The last calls one by one, for a trace; times are ms on the clock of the calling thread. */
export interface CallLog {
  readonly names: readonly { readonly name: string; readonly copy: CopyDirection | undefined }[];
  readonly numbers: Float64Array;
  /** The changes of the allocated memory: time, bytes. */
  readonly held: Float64Array;
}

export class CallTable {
  readonly #load = new Map<string, Sums>();
  readonly #run = new Map<string, Sums>();
  #current = this.#load;
  readonly #names: { name: string; copy: CopyDirection | undefined }[] = [];
  readonly #nameIndex = new Map<string, number>();
  /** Rings. */
  readonly #logged: number[] = [];
  #loggedCount = 0;
  readonly #held: number[] = [];
  #heldCount = 0;
  #heldBytes = 0;

  /** The model is loaded: calls from now on belong to batches. */
  startRun(): void {
    this.#current = this.#run;
  }

  /** Drops everything but the load. */
  reset(): void {
    this.#run.clear();
  }

  add(name: string, ms: number, bytes = 0, kind: CallKind = plain): void {
    let sums = this.#current.get(name);
    if (!sums) {
      sums = { count: 0, ms: 0, minMs: ms, maxMs: ms, mean: 0, squares: 0, bytes: 0, kind };
      this.#current.set(name, sums);
    }
    sums.count++;
    sums.ms += ms;
    sums.bytes += bytes;
    if (ms < sums.minMs) sums.minMs = ms;
    if (ms > sums.maxMs) sums.maxMs = ms;
    const distance = ms - sums.mean;
    sums.mean += distance / sums.count;
    sums.squares += distance * (ms - sums.mean);
  }

  /** Keeps a call by itself, too. */
  log(name: string, startMs: number, endMs: number, bytes: number, copy?: CopyDirection): void {
    let index = this.#nameIndex.get(name);
    if (index === undefined) {
      index = this.#names.push({ name, copy }) - 1;
      this.#nameIndex.set(name, index);
    }
    const at = (this.#loggedCount++ % LOGGED) * CALL_NUMBERS;
    [index, startMs, endMs, bytes].forEach((number, i) => {
      this.#logged[at + i] = number;
    });
  }

  /** So many bytes were allocated, or freed where it is less than 0. */
  allocated(bytes: number, atMs: number): void {
    this.#heldBytes += bytes;
    const at = (this.#heldCount++ % LOGGED) * 2;
    this.#held[at] = atMs;
    this.#held[at + 1] = this.#heldBytes;
  }

  logged(): CallLog {
    return {
      names: this.#names,
      numbers: inOrder(this.#logged, this.#loggedCount, CALL_NUMBERS),
      held: inOrder(this.#held, this.#heldCount, 2),
    };
  }

  /** Longest first, the load before the rest. */
  records(): CallRecord[] {
    return [...recordsOf(this.#load, "load"), ...recordsOf(this.#run, "run")];
  }
}

/** A ring's entries, the oldest first. */
function inOrder(ring: readonly number[], count: number, size: number): Float64Array {
  const first = count > LOGGED ? (count % LOGGED) * size : 0;
  return Float64Array.from([...ring.slice(first), ...ring.slice(0, first)]);
}

function recordsOf(calls: ReadonlyMap<string, Sums>, when: CallRecord["when"]): CallRecord[] {
  return [...calls]
    .map(([name, { count, ms, minMs, maxMs, squares, bytes, kind }]) => ({
      name,
      when,
      count,
      ms,
      minMs,
      maxMs,
      varianceMs2: squares / count,
      bytes,
      copy: kind.copy,
      movesLater: kind.movesLater ?? false,
    }))
    .sort((a, b) => b.ms - a.ms);
}
