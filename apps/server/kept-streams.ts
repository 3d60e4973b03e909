// Streams that outlast their connection, as llama-server has them: a request with the header X-Conversation-Id is answered to its end
// whether or not the client stays, and a client that lost its connection reads on from any byte (routes/streams.ts). The bytes of a
// stream wait in memory, its last megabytes; one that has ended is kept for some minutes. A conversation has one stream at a time.

export interface KeptLimits {
  readonly mostStreams: number;
  /** Of one stream: what is beyond was dropped at its beginning. */
  readonly mostBytes: number;
  /** After its end. */
  readonly keptMs: number;
}

const usualLimits: KeptLimits = { mostStreams: 64, mostBytes: 4 << 20, keptMs: 300_000 };
export const longestId = 512;

interface Facts {
  readonly conversation_id: string;
  readonly is_done: boolean;
  readonly total_bytes: number;
  /** Seconds since 1970; completed_at is 0 until the end. */
  readonly started_at: number;
  readonly completed_at: number;
}

/** One stream, from its first byte to the last one that there is. */
class KeptStream {
  readonly id: string;
  /** Who may read it: an API key of the server. */
  readonly owner: string;
  readonly #mostBytes: number;
  readonly #time: () => number;
  readonly #startedMs: number;
  readonly #abort: () => void;
  readonly #pieces: Uint8Array[] = [];
  /** Of the bytes that are no longer there, and of all. */
  #dropped = 0;
  #total = 0;
  #endedMs: number | undefined;
  #changed = Promise.withResolvers<void>();

  constructor(
    id: string,
    owner: string,
    limits: KeptLimits,
    time: () => number,
    abort: () => void,
  ) {
    this.id = id;
    this.owner = owner;
    this.#mostBytes = limits.mostBytes;
    this.#time = time;
    this.#startedMs = time();
    this.#abort = abort;
  }

  get dropped(): number {
    return this.#dropped;
  }

  get endedMs(): number | undefined {
    return this.#endedMs;
  }

  facts(): Facts {
    const seconds = (ms: number): number => Math.floor(ms / 1000);
    return {
      conversation_id: this.id,
      is_done: this.#endedMs !== undefined,
      total_bytes: this.#total,
      started_at: seconds(this.#startedMs),
      completed_at: seconds(this.#endedMs ?? 0),
    };
  }

  /** Takes all of a body, at its speed. */
  async fill(body: ReadableStream<Uint8Array>): Promise<void> {
    try {
      for await (const piece of body) {
        if (this.#endedMs !== undefined) break;
        this.#add(piece);
      }
    } catch {
      // Cut off: what has come so far is all there is.
    } finally {
      this.#end();
    }
  }

  #add(piece: Uint8Array): void {
    this.#pieces.push(piece);
    this.#total += piece.length;
    while (this.#total - this.#dropped > this.#mostBytes && this.#pieces.length > 1) {
      this.#dropped += this.#pieces.shift()!.length;
    }
    this.#wake();
  }

  #end(): void {
    this.#endedMs ??= this.#time();
    this.#wake();
  }

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  /** No more is generated, and nobody reads on. */
  cancel(): void {
    this.#abort();
    this.#end();
  }

  /** The bytes from one on, as they come. A reader that is too slow loses its place, and is cut off. */
  read(from: number): ReadableStream<Uint8Array> {
    let at = from;
    let isGone = false;
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        while (at >= this.#total && this.#endedMs === undefined && !isGone) {
          await this.#changed.promise;
        }
        if (isGone) return;
        if (at < this.#dropped) {
          controller.error(new Error("the stream has dropped the bytes that its reader waits for"));
          return;
        }
        for (const piece of this.#piecesFrom(at)) {
          controller.enqueue(piece);
          at += piece.length;
        }
        if (this.#endedMs !== undefined) controller.close();
      },
      cancel: () => {
        isGone = true;
        this.#wake();
      },
    });
  }

  *#piecesFrom(from: number): Iterable<Uint8Array> {
    let begins = this.#dropped;
    for (const piece of [...this.#pieces]) {
      if (begins + piece.length > from) yield piece.subarray(Math.max(0, from - begins));
      begins += piece.length;
    }
  }
}

export class KeptStreams {
  readonly #streams = new Map<string, KeptStream>();
  readonly #limits: KeptLimits;
  readonly #time: () => number;

  constructor(time: () => number, limits: KeptLimits = usualLimits) {
    this.#time = time;
    this.#limits = limits;
  }

  /** A new stream, which ends an earlier one of its conversation; undefined: there are too many, and this one is not kept. */
  add(id: string, owner: string, abort: () => void): KeptStream | undefined {
    this.#sweep();
    const before = this.#streams.get(id);
    if (before && before.owner !== owner) return undefined;
    before?.cancel();
    this.#streams.delete(id);
    if (this.#streams.size >= this.#limits.mostStreams) {
      const ended = [...this.#streams.values()].find(({ endedMs }) => endedMs !== undefined);
      if (!ended) return undefined;
      this.#streams.delete(ended.id);
    }
    const stream = new KeptStream(id, owner, this.#limits, this.#time, abort);
    this.#streams.set(id, stream);
    return stream;
  }

  get(id: string, owner: string): KeptStream | undefined {
    this.#sweep();
    const found = this.#streams.get(id);
    return found?.owner === owner ? found : undefined;
  }

  /** Those of the conversation, and of its models ("ID::MODEL"). */
  of(id: string, owner: string): KeptStream[] {
    this.#sweep();
    return [...this.#streams.values()].filter(
      (one) => one.owner === owner && (one.id === id || one.id.startsWith(`${id}::`)),
    );
  }

  remove(id: string, owner: string): void {
    const found = this.get(id, owner);
    if (!found) return;
    this.#streams.delete(id);
    found.cancel();
  }

  #sweep(): void {
    for (const { id, endedMs } of this.#streams.values()) {
      if (endedMs !== undefined && this.#time() - endedMs > this.#limits.keptMs) {
        this.#streams.delete(id);
      }
    }
  }
}
