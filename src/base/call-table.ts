// A table of calls for a profile: how often each was made, and the sum, extremes and variance of their times, kept as
// running numbers (Welford's method), so that a call takes no memory. Loading and what runs after it are kept apart.

/** Where a copy comes from and goes to: a host's memory and a device's. */
export type CopyDirection = "host to device" | "device to host" | "device to device";

/** Calls of one name. */
export interface CallRecord {
  readonly name: string;
  readonly when: "load" | "run";
  readonly count: number;
  readonly ms: number;
  readonly minMs: number;
  readonly maxMs: number;
  /** Of the times of single calls. */
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

/** What calls of a name have in common. */
export interface CallKind {
  readonly copy?: CopyDirection;
  readonly movesLater?: boolean;
}

const plain: CallKind = {};

export class CallTable {
  readonly #load = new Map<string, Sums>();
  readonly #run = new Map<string, Sums>();
  #current = this.#load;

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

  /** Longest first, the load before the rest. */
  records(): CallRecord[] {
    return [...recordsOf(this.#load, "load"), ...recordsOf(this.#run, "run")];
  }
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
