// Room for the state of sequences: who may begin, what they were promised of each pool, and memory for the KV blocks, which
// grows as generations come and sequences are kept, up to what was planned when the model was loaded.
//
// A generation begins when what it may come to need is promised to nobody else *and* the backend holds it. So a device that
// turns out to have no memory left makes the next one wait, or refuses it; nobody who runs is ever hurt.

import type { Backend, KvCacheOptions } from "../../backends/backend.ts";
import { ContextError, MemoryError } from "../../base/errors.ts";
import { Admission, type Amounts, isWithin } from "./admission.ts";
import { BlockPool } from "./block-pool.ts";
import { PrefixCache } from "./prefix-cache.ts";
import { Sequence } from "./sequence.ts";
import type { StateKind } from "./state-kinds.ts";

export interface StateRoomParts {
  readonly backend: Pick<Backend, "copyKvBlock" | "growKv">;
  readonly contextSize: number;
  readonly kinds: readonly StateKind[];
  /** What there may be, and what the backend holds already. */
  readonly kv: KvCacheOptions;
}

export class StateRoom {
  /** By kind. */
  readonly pools: readonly BlockPool[];
  readonly prefixes: PrefixCache;
  readonly admission: Admission;
  readonly #parts: StateRoomParts;
  /** One growth after the other. */
  #growing: Promise<void> = Promise.resolve();

  constructor(parts: StateRoomParts) {
    const { kinds, kv, contextSize } = parts;
    this.#parts = parts;
    this.pools = kinds.map(({ group }) => {
      if (group === undefined) return new BlockPool(kv.slots ?? 0);
      const { blocks, held = blocks } = kv.groups?.[group] ?? kv;
      return new BlockPool(blocks, held);
    });
    this.prefixes = new PrefixCache(contextSize);
    this.admission = new Admission(this.pools.map(({ most }) => most));
  }

  /** Those of the KV cache. */
  get kvPools(): readonly BlockPool[] {
    return this.pools.filter((_, i) => this.#parts.kinds[i]!.group !== undefined);
  }

  /** Bytes that the pools stand for, padding left out: those held, and the most that there may be. */
  get bytes(): { held: number; most: number } {
    const { kinds, kv } = this.#parts;
    const sum = (count: (pool: BlockPool) => number) =>
      this.pools.reduce((all, pool, i) => all + count(pool) * kinds[i]!.unitBytes(kv.dtype), 0);
    return { held: sum(({ size }) => size), most: sum(({ most }) => most) };
  }

  /** What a running sequence of `tokens` tokens may come to need. */
  demand(tokens: number): Amounts {
    return this.#parts.kinds.map((kind) => kind.demand(tokens));
  }

  /** Resolves when `wanted` is promised and held; leave() gives it back. Returns how much it is. */
  async enter(wanted: Amounts, isAborted: () => boolean): Promise<Amounts> {
    for (;;) {
      const amounts = await this.admission.enter(wanted, isAborted);
      try {
        await this.#hold();
      } catch (error) {
        this.leave(amounts);
        if (!(error instanceof MemoryError) || !isWithin(amounts, this.#sizes)) throw error;
        // There is room for it once others have ended.
        this.admission.limit(this.#sizes);
        continue;
      }
      return amounts;
    }
  }

  leave(amounts: Amounts): void {
    this.admission.leave(amounts);
  }

  newSequence(): Sequence {
    const { kinds, backend, contextSize } = this.#parts;
    const states = kinds.map((kind, i) => kind.create(this.pools[i]!, backend, contextSize));
    return new Sequence(states, contextSize);
  }

  /** Frees what sequences hold that are only kept, until `count` more tokens fit. */
  makeRoom(sequence: Sequence, count: number): void {
    const { states } = sequence;
    for (let i = 0; i < states.length; i++) {
      const state = states[i]!;
      // Asked anew after each: a block that was shared with what went is the sequence's own, and need not be copied.
      while (state.pool.freeCount < state.needed(count)) {
        if (this.prefixes.evict()) continue;
        throw new ContextError(
          `${this.#parts.kinds[i]!.full(state.pool.size)}, and running generations use them. Open the model with a larger parallel, or contextSize`,
        );
      }
    }
  }

  get #sizes(): Amounts {
    return this.pools.map(({ size }) => size);
  }

  /** Memory for all that is promised, and for what is kept as long as there is any to be had. */
  #hold(): Promise<void> {
    const grown = this.#growing.then(() => this.#grow());
    this.#growing = grown.catch(() => undefined);
    return grown;
  }

  async #grow(): Promise<void> {
    const { admission, pools } = this;
    const { backend, contextSize, kinds } = this.#parts;
    const sizes = pools.map((pool, i) => {
      const needed = Math.min(pool.most, pool.usedCount + admission.promised[i]!);
      if (needed <= pool.size) return pool.size;
      // Some at a time: on a GPU every growth copies what is there.
      const batch = kinds[i]!.perContext(contextSize, false);
      return Math.min(pool.most, Math.max(needed, pool.size + batch));
    });
    if (isWithin(sizes, this.#sizes)) return;
    try {
      await backend.growKv?.(sizes.filter((_, i) => kinds[i]!.group !== undefined));
    } catch (error) {
      // Kept sequences can go instead, if that is enough.
      if (error instanceof MemoryError && isWithin(admission.promised, this.#sizes)) return;
      throw error;
    }
    pools.forEach((pool, i) => {
      pool.grow(sizes[i]!);
    });
  }
}
