// Room for the state of sequences: admission, reservations in each pool, and memory for KV blocks, which grows as
// generations and cached sequences need it, up to the plan made when the model was loaded.
//
// A generation starts when all that it may need is reserved for it *and* the backend holds the memory. If a device turns out to have no memory
// left, the next generation waits; if waiting would not help, it fails with a DeviceMemoryError, and the connection opens the model again with
// less of it on the device (engine/connection.ts).

import type { Backend, KvCacheOptions } from "../../backends/backend.ts";
import { ContextError, DeviceMemoryError, MemoryError } from "../../base/errors.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { BackgroundPlace } from "../background.ts";
import { CHECKPOINT_TOKENS } from "../tiers/checkpoints.ts";
import type { StateTiers, TierKind } from "../tiers/state-tiers.ts";
import type { AdapterUse } from "./adapter-use.ts";
import { Admission, type Amounts, isWithin } from "./admission.ts";
import { BlockPool } from "./block-pool.ts";
import { LaterGrowth } from "./later-growth.ts";
import { PrefixCache } from "./prefix-cache.ts";
import type { CheckpointDistance } from "./recurrent-slots.ts";
import { Sequence } from "./sequence.ts";
import type { SequenceState } from "./sequence-state.ts";
import type { StateKind } from "./state-kinds.ts";

/** Tokens of a short request, prompt and answer: memory for this many tokens of every concurrent generation is held from the start. */
export const FIRST_TOKENS = 256;

/** The largest growth of memory at a time beyond the need, as a factor. */
const MOST_GROWTH = 4;

export interface StateCapacityParts {
  readonly backend: Pick<Backend, "copyKvBlock" | "growKv">;
  readonly contextSize: number;
  readonly kinds: readonly StateKind[];
  /** The planned sizes, and the sizes that the backend already holds. */
  readonly kv: KvCacheOptions;
  /** See Engine.asAsked. Default: at once. */
  asAsked?(work: () => Promise<void>): Promise<void>;
  /** For tests: waits this many ms. Default: a timer. */
  readonly wait?: ((ms: number) => Promise<void>) | undefined;
}

export class StateCapacity {
  /** One pool for each kind of state. */
  readonly pools: readonly BlockPool[];
  readonly prefixes: PrefixCache;
  readonly admission: Admission;
  readonly #parts: StateCapacityParts;
  /** Copies of state outside of the backend; undefined: there are none. */
  tiers: StateTiers | undefined;
  /** The number of tokens between checkpoints of recurrent state. */
  checkpoints: CheckpointDistance = { tokens: CHECKPOINT_TOKENS };
  /** Running sequences, by their reservations. */
  readonly #running = new Map<Amounts, Sequence>();
  /** Serializes growth. */
  #growing: Promise<void> = Promise.resolve();
  /** The number of generations that have begun so far, and of those that wait for memory. */
  #begun = 0;
  #urgent = 0;
  /** Memory that cached sequences would need besides the reservations, and memory for all generations that may come: #growTo(). */
  #later: { sizes: Amounts; all: Amounts };
  readonly #laterGrowth: LaterGrowth;

  constructor(parts: StateCapacityParts) {
    const { kinds, kv, contextSize } = parts;
    this.#parts = parts;
    this.pools = kinds.map(({ group }) => {
      if (group === undefined) return new BlockPool(kv.slots ?? 0);
      const { blocks, held } = kv.groups[group]!;
      return new BlockPool(blocks, held);
    });
    this.prefixes = new PrefixCache(contextSize);
    this.admission = new Admission(this.pools.map(({ most }) => most));
    this.#later = { sizes: this.#sizes, all: this.#sizes };
    this.#laterGrowth = new LaterGrowth({
      begun: () => this.#begun,
      running: () => this.admission.running,
      isUrgent: () => this.#urgent > 0,
      grow: (pause) => {
        const grow = () => this.#inTurn(() => this.#growLater(pause));
        return parts.asAsked?.(grow) ?? grow();
      },
      wait: parts.wait,
    });
  }

  /** Memory that is not urgent is not asked for any more. */
  dispose(): void {
    this.#laterGrowth.dispose();
  }

  /** The pools of the KV cache. */
  get kvPools(): readonly BlockPool[] {
    return this.pools.filter((_, i) => this.#parts.kinds[i]!.group !== undefined);
  }

  /** Bytes behind the pools, without padding: the bytes held, and the most that may be held. */
  get bytes(): { held: number; most: number } {
    const { kinds, kv } = this.#parts;
    const sum = (count: (pool: BlockPool) => number) =>
      this.pools.reduce((all, pool, i) => all + count(pool) * kinds[i]!.unitBytes(kv.dtype), 0);
    return { held: sum(({ size }) => size), most: sum(({ most }) => most) };
  }

  /** Bytes of a token in the states that keep all tokens. */
  get bytesPerToken(): number {
    return this.tierKinds.reduce(
      (sum, { needsAll, unitBytes }) => sum + (needsAll ? unitBytes / KV_BLOCK_TOKENS : 0),
      0,
    );
  }

  /** The state kinds as the copies of state see them. */
  get tierKinds(): TierKind[] {
    const { kinds, kv } = this.#parts;
    return kinds.map(({ group, demand, unitBytes, checkpointUnits }) => ({
      group,
      unitBytes: unitBytes(kv.dtype),
      needsAll: group !== undefined && demand(Infinity) === Infinity,
      checkpointUnits,
    }));
  }

  /** The units that a running sequence of `tokens` tokens may need. */
  demand(tokens: number): Amounts {
    return this.#parts.kinds.map((kind) => kind.demand(tokens));
  }

  /**
   * On a device, holds memory for a short request of every concurrent generation, if there is enough: the first simultaneous ones need not wait
   * for growth.
   */
  async holdFirst(): Promise<void> {
    if (!this.#parts.backend.growKv) return;
    const sizes = this.#sizesFor(FIRST_TOKENS);
    if (isWithin(sizes, this.#sizes)) return;
    try {
      await this.#growExactly(sizes);
    } catch (error) {
      if (!(error instanceof MemoryError)) throw error;
    }
  }

  /**
   * Resolves with the amounts when they are reserved and held; leave() gives them back. `likely`: the tokens that it and generations that come
   * with it will probably have.
   */
  async enter(
    wanted: Amounts,
    isAborted: () => boolean,
    place?: BackgroundPlace,
    likely: number = 0,
  ): Promise<Amounts> {
    for (;;) {
      const amounts = await this.admission.enter(wanted, isAborted, place);
      try {
        await this.#hold(likely);
      } catch (error) {
        this.leave(amounts);
        if (!(error instanceof MemoryError)) throw error;
        if (!isWithin(amounts, this.#sizes)) throw new DeviceMemoryError(error.message);
        // It fits once others have ended.
        this.admission.limit(this.#sizes);
        continue;
      }
      return amounts;
    }
  }

  /** Notes the sequence that these amounts are for: its units are not needed twice. */
  began(amounts: Amounts, sequence: Sequence): void {
    this.#running.set(amounts, sequence);
  }

  leave(amounts: Amounts): void {
    this.#running.delete(amounts);
    this.admission.leave(amounts);
  }

  newSequence(adapters?: AdapterUse): Sequence {
    const { kinds, backend, contextSize } = this.#parts;
    const states = kinds.map((kind, i) =>
      kind.create(this.pools[i]!, backend, contextSize, this.checkpoints),
    );
    return new Sequence(states, contextSize, adapters);
  }

  /** Evicts cached sequences until `count` more tokens fit. */
  makeRoom(sequence: Sequence, count: number): void {
    this.#evictUntil(sequence, (state) => state.needed(count));
  }

  /** Makes the room that Sequence.extend() needs. */
  makeRoomToExtend(sequence: Sequence, length: number): void {
    this.#evictUntil(sequence, (state) => state.extendNeeds(length));
  }

  #evictUntil({ states }: Sequence, needed: (state: SequenceState) => number): void {
    for (let i = 0; i < states.length; i++) {
      const state = states[i]!;
      // Checked again after each eviction: a block shared with the evicted sequence is no longer shared and need
      // not be copied.
      while (state.pool.freeCount < needed(state)) {
        // State that waits to be copied and has no other holder goes first: that loses nothing.
        if (this.tiers?.free(state.pool, false) || this.prefixes.evict()) continue;
        if (this.tiers?.free(state.pool, true)) continue;
        throw new ContextError(
          `${this.#parts.kinds[i]!.full(state.pool.size)}, and running generations use them. Use a larger \`parallel\`, or contextSize`,
        );
      }
    }
  }

  get #sizes(): Amounts {
    return this.pools.map(({ size }) => size);
  }

  /** The sizes held at present, or more if every concurrent generation has this many tokens. */
  #sizesFor(tokens: number): Amounts {
    const { contextSize, kinds } = this.#parts;
    return this.pools.map(({ most, size }, i) => {
      const { group, perContext, demand } = kinds[i]!;
      if (group === undefined) return size;
      const contexts = Math.max(1, Math.floor(most / perContext(contextSize, true)));
      return Math.max(size, Math.min(most, contexts * demand(Math.min(tokens, contextSize))));
    });
  }

  /**
   * Makes sure that the backend holds everything reserved, and cached sequences as far as memory allows. Nobody waits for the room of the latter:
   * where memory takes time, it grows later (later-growth.ts), and meanwhile the oldest of them are evicted.
   */
  async #hold(likely: number): Promise<void> {
    this.#begun++;
    if (this.#parts.backend.growKv && isWithin(this.admission.promised, this.#sizes)) {
      const sizes = this.#sizesNeeded();
      if (isWithin(sizes, this.#sizes)) return;
      this.#later = {
        sizes: larger(sizes, this.#later.sizes),
        all: larger(this.#sizesFor(likely), this.#later.all),
      };
      this.#laterGrowth.begin();
      return;
    }
    this.#urgent++;
    this.#laterGrowth.hurry();
    try {
      await this.#inTurn(() => this.#grow(likely));
    } finally {
      this.#urgent--;
    }
  }

  async #growLater(pause: () => Promise<void>): Promise<void> {
    const { sizes, all } = this.#later;
    this.#later = { sizes: this.#sizes, all: this.#sizes };
    await this.#growTo(sizes, all, pause);
  }

  /** Grows after the growth that is under way. */
  #inTurn(grow: () => Promise<void>): Promise<void> {
    const grown = this.#growing.then(grow);
    this.#growing = grown.catch(() => undefined);
    return grown;
  }

  /** The sizes for all reservations and cached sequences. */
  #sizesNeeded(): Amounts {
    const { contextSize, kinds } = this.#parts;
    return this.pools.map((pool, i) => {
      const promised = this.admission.promised[i]!;
      if (pool.usedCount + promised <= pool.size) return pool.size;
      const needed = Math.min(pool.most, pool.usedCount - this.#usedByRunning(i) + promised);
      if (needed <= pool.size) return pool.size;
      // Growth in steps of a context: on a GPU every growth copies the old contents.
      const batch = kinds[i]!.perContext(contextSize, false);
      return Math.min(pool.most, Math.max(needed, pool.size + batch));
    });
  }

  async #grow(likely: number): Promise<void> {
    const sizes = this.#sizesNeeded();
    if (isWithin(sizes, this.#sizes)) return;
    try {
      await this.#growTo(sizes, this.#sizesFor(likely));
    } catch (error) {
      // Cached sequences can be evicted instead, if that is enough.
      if (error instanceof MemoryError && isWithin(this.admission.promised, this.#sizes)) return;
      throw error;
    }
  }

  /** Units of a pool that running sequences have; units that a window no longer reads are not counted. */
  #usedByRunning(kind: number): number {
    const units = new Set<number>();
    for (const { states, length } of this.#running.values()) {
      const state = states[kind]!;
      for (const at of state.unitsFor(length)) {
        const unit = state.unitAt(at);
        if (unit !== undefined) units.add(unit);
      }
    }
    return units.size;
  }

  /**
   * Grows to the sizes that all waiting generations would need, so that it need not grow for each, but at most to MOST_GROWTH times the size;
   * else to twice the size, so that many small contexts are not copied as often; else to `sizes`, if there is memory for them.
   */
  async #growTo(sizes: Amounts, all: Amounts, pause?: () => Promise<void>): Promise<void> {
    if (isWithin(sizes, this.#sizes)) return;
    const atLeast = (wanted: (size: number, i: number) => number): Amounts =>
      this.pools.map(({ most, size }, i) =>
        sizes[i]! > size ? Math.min(most, Math.max(sizes[i]!, wanted(size, i))) : size,
      );
    const twice = atLeast((size) => 2 * size);
    const ahead = atLeast((size, i) => Math.max(2 * size, Math.min(all[i]!, MOST_GROWTH * size)));
    const attempts = [ahead, twice].filter((one) => !isWithin(one, one === ahead ? twice : sizes));
    for (const attempt of attempts) {
      try {
        await this.#growExactly(attempt, pause);
        return;
      } catch (error) {
        if (!(error instanceof MemoryError)) throw error;
      }
    }
    await this.#growExactly(larger(sizes, this.#sizes), pause);
  }

  async #growExactly(sizes: Amounts, pause?: () => Promise<void>): Promise<void> {
    const { backend, kinds } = this.#parts;
    const blocks = sizes.filter((_, i) => kinds[i]!.group !== undefined);
    await backend.growKv?.(blocks, pause);
    this.pools.forEach((pool, i) => {
      pool.grow(sizes[i]!);
    });
  }
}

function larger(some: Amounts, others: Amounts): Amounts {
  return some.map((amount, pool) => Math.max(amount, others[pool]!));
}
