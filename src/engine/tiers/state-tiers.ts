// The tiers of state outside of the backend: in the host's memory, and on disk. Whole blocks are copied out soon after they were
// computed, in the background, and found again by the text that they were computed from (keys.ts): by another turn of a conversation
// whose blocks were evicted, by another branch, after a restart.
//
// Attention without a window needs all blocks of a text, so all are stored. A window, and recurrent state, need only the state at one
// length: it is stored at the end of a prompt, at the end of a text and at checkpoints between them (checkpoints.ts). The end of a text
// is seldom a block boundary: its last partial block is a unit as well.

import type { StateTransfer } from "../../backends/backend.ts";
import { atMost } from "../../base/at-most.ts";
import { messageOf } from "../../base/errors.ts";
import { KV_BLOCK_TOKENS } from "../../graph/batch.ts";
import type { BlockPool } from "../state/block-pool.ts";
import type { Sequence } from "../state/sequence.ts";
import type { CacheCounts, CacheHeld } from "./cache-counts.ts";
import { CHECKPOINT_TOKENS, type Checkpoints } from "./checkpoints.ts";
import { CopyQueue, type EarlyCopy, type Waiting } from "./copy-queue.ts";
import type { CopyWorth } from "./copy-worth.ts";
import type { DiskTier, LostReason, OwnedUnit } from "./disk-tier.ts";
import { blockKeys, nextKey, rootKey, type StateKey, sequenceKeys, unitId } from "./keys.ts";
import { isPrivate, type Owner } from "./owners.ts";
import type { RamTier } from "./ram-tier.ts";
import type { UnitFacts } from "./segment.ts";
import type { StaleState } from "./stale-state.ts";

/** The facts about a kind of state that the tiers use: state-kinds.ts. */
export interface TierKind {
  /** The group of KV states; undefined: recurrent state. */
  readonly group: number | undefined;
  readonly unitBytes: number;
  /** Whether every block of a text is needed to continue it. */
  readonly needsAll: boolean;
  /** The units that a checkpoint has beyond those of the one `tokens` tokens before. */
  checkpointUnits(tokens: number): number;
}

export interface StateTiersParts {
  readonly root: StateKey;
  readonly kinds: readonly TierKind[];
  readonly transfer: StateTransfer;
  readonly ram: RamTier;
  now(): number;
  /** Tells the user. */
  say(sentence: string): void;
  /** Resolves when the earlier stored state is known; undefined: nothing is kept on disk. */
  readonly disk: Promise<DiskTier | undefined>;
  /** The disk budget to show to users before the disk tier is open. Default: 0. */
  readonly diskBudgetBytes?: number;
  readonly counts?: CacheCounts;
  /** The number of tokens between checkpoints. Default: CHECKPOINT_TOKENS. */
  readonly checkpoints?: Checkpoints;
  /** Whether copies pay; undefined: they do. */
  readonly worth?: CopyWorth | undefined;
  /** State on disk that cannot be used. */
  readonly stale?: StaleState | undefined;
}

/**
 * The reason why a unit that was computed once is missing: lost, never copied because its room was needed or because computing is faster,
 * or not stored at that position.
 */
export type MissingReason = LostReason | "dropped" | "dear" | "checkpoint" | "unknown";

export interface Missing {
  readonly reason: MissingReason;
  /** The first token that has to be computed. */
  readonly at: number;
}

/** Tokens that came from each tier. */
export interface TierTokens {
  ram: number;
  disk: number;
}

interface Tail {
  readonly key: StateKey;
  readonly tokens: number;
}

/** Shorter texts are computed faster than they are found. */
const FEWEST_TOKENS: number = 2 * KV_BLOCK_TOKENS;
/** Boundaries with ends behind them that are known: some ten MB of bookkeeping. */
const MOST_TAILS = 65_536;
/** Units that are read at the same time. */
const READS_AT_ONCE = 4;
/** The number of lost units that are remembered, to name the reason: some MB. */
const MOST_LOST = 32_768;
/** The number of adapter choices with a remembered first key. */
const MOST_ROOTS = 1024;

/** Units that are written at once, all together. */
const MOST_WRITE_BYTES: number = 8 * 2 ** 20;

/** Files that were read or written are noticed. A timer waits for a millisecond, where there is something better. */
const turnOfEventLoop = (): Promise<void> =>
  new Promise((resolve) => {
    const { setImmediate: soon } = globalThis as { setImmediate?: (then: () => void) => void };
    if (soon) soon(resolve);
    else setTimeout(resolve);
  });

/** Lets other work of this thread go first. */
const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

export class StateTiers {
  readonly #parts: StateTiersParts;
  #disk: DiskTier | undefined;
  #isDiskKnown = false;
  /** The first key by the key of AdapterUse. */
  readonly #roots = new Map<string, StateKey>();
  /** Ends of texts that are no block boundaries, by the key of the boundary before. */
  readonly #tails = new Map<StateKey, Tail[]>();
  /** Why units are gone that were there. */
  readonly #lost = new Map<string, MissingReason>();
  readonly #queue: CopyQueue;
  #draining: Promise<void> | undefined;
  /** Units that left the queue and are not stored yet. */
  #taken: readonly Waiting[] = [];
  /** Resolves when they are. */
  #storing: Promise<void> = Promise.resolve();
  /** Owners of units on disk that are not written there yet. */
  #owned: OwnedUnit[] = [];
  #isClosed = false;

  constructor(parts: StateTiersParts) {
    this.#parts = parts;
    this.#queue = new CopyQueue({
      copy: (waiting) => this.#copyOf(waiting),
      onDrop: (id) => this.onLost(id, "dropped"),
    });
    void parts.disk.then((disk) => {
      this.#isDiskKnown = true;
      if (this.#isClosed) void disk?.close();
      else this.#disk = disk;
    });
  }

  /** For DiskTierParts.onUnit. */
  readonly onUnit = ({ parent, key, tokens }: UnitFacts): void => {
    if (tokens === KV_BLOCK_TOKENS) return;
    const tails = this.#tails.get(parent);
    if (!tails) this.#tails.set(parent, [{ key, tokens }]);
    else if (tails.every((tail) => tail.key !== key)) tails.push({ key, tokens });
    // A text with a forgotten end computes up to a block again.
    if (this.#tails.size > MOST_TAILS) this.#tails.delete(this.#tails.keys().next().value!);
  };

  /** For DiskTierParts.onLost, and for units that memory drops. */
  readonly onLost = (id: string, reason: MissingReason): void => {
    if (this.#parts.ram.has(id) || this.#disk?.has(id)) return;
    this.#lost.delete(id);
    this.#lost.set(id, reason);
    if (this.#lost.size > MOST_LOST) this.#lost.delete(this.#lost.keys().next().value!);
  };

  now(): number {
    return this.#parts.now();
  }

  /** A batch with this many tokens of a prompt began at `since`, and is over. */
  computed(tokens: number, since: number): void {
    const ms = this.#parts.now() - since;
    this.#parts.checkpoints?.computed(tokens, ms);
    this.#parts.worth?.computed(tokens, ms);
  }

  get held(): CacheHeld {
    const checkpoints = this.#parts.checkpoints?.status;
    const { diskBudgetBytes = 0, worth } = this.#parts;
    const dear = worth?.dear;
    return {
      ...(checkpoints && { checkpoints }),
      ...(dear && { dear }),
      ram: this.#parts.ram.held,
      disk: this.#disk?.held ?? { bytes: 0, budgetBytes: this.#isDiskKnown ? 0 : diskBudgetBytes },
    };
  }

  #has(key: StateKey, kind: number): boolean {
    const id = unitId(key, kind);
    return this.#parts.ram.has(id) || (this.#disk?.has(id) ?? false);
  }

  /** The key before the first token: state computed with adapters is not found without them. */
  #rootOf({ adapters: { key } }: Sequence): StateKey {
    const { root } = this.#parts;
    if (key === "") return root;
    const known = this.#roots.get(key) ?? rootKey([root, key]);
    if (this.#roots.size > MOST_ROOTS) this.#roots.clear();
    this.#roots.set(key, known);
    return known;
  }

  /** Call after each batch: stores the blocks that it filled. */
  note(sequence: Sequence): void {
    if (!this.#parts.worth?.isDear) this.#storeBlocks(sequence);
  }

  #storeBlocks(sequence: Sequence): void {
    const whole = Math.floor(sequence.length / KV_BLOCK_TOKENS);
    const before = sequence.keys.length;
    if (whole === before || sequence.length < FEWEST_TOKENS) return;
    const keys = sequenceKeys(this.#rootOf(sequence), sequence);
    const apart = this.#parts.checkpoints?.tokens ?? CHECKPOINT_TOKENS;
    for (let block = before; block < whole; block++) {
      const length = (block + 1) * KV_BLOCK_TOKENS;
      for (let kind = 0; kind < this.#parts.kinds.length; kind++) {
        const isCheckpoint = length % apart === 0;
        if (this.#parts.kinds[kind]!.needsAll) this.#enqueue(sequence, keys, kind, length);
        else if (isCheckpoint) this.#enqueueAll(sequence, keys, kind, length);
      }
    }
  }

  /** Call at the end of a prompt and of a text: stores the state needed to continue right here, or a little before. */
  mark(sequence: Sequence): void {
    if (sequence.length < FEWEST_TOKENS) return;
    if (this.#parts.worth?.takesText() === false) return;
    this.#storeBlocks(sequence);
    const keys = sequenceKeys(this.#rootOf(sequence), sequence);
    const length = sequence.restorable(sequence.length);
    const whole = sequence.restorable(Math.floor(length / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS);
    for (let kind = 0; kind < this.#parts.kinds.length; kind++) {
      this.#enqueueAll(sequence, keys, kind, length);
      if (whole > 0 && whole % KV_BLOCK_TOKENS === 0) this.#enqueueAll(sequence, keys, kind, whole);
    }
  }

  /** All units of a kind that continuing at `length` takes. */
  #enqueueAll(sequence: Sequence, keys: readonly StateKey[], kind: number, length: number): void {
    for (const at of sequence.states[kind]!.unitsFor(length))
      this.#enqueue(sequence, keys, kind, at);
  }

  #enqueue(sequence: Sequence, keys: readonly StateKey[], kind: number, length: number): void {
    const state = sequence.states[kind]!;
    const number = state.unitAt(length);
    if (number === undefined || this.#isClosed) return;
    const from = Math.floor((length - 1) / KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS;
    const block = from / KV_BLOCK_TOKENS;
    const parent = block === 0 ? this.#rootOf(sequence) : keys[block - 1]!;
    const tokens = sequence.tokens(from, length);
    const isWhole = length % KV_BLOCK_TOKENS === 0;
    const key = isWhole ? keys[block]! : nextKey(parent, tokens);
    const id = unitId(key, kind);
    const unit = { kind, key, parent, tokens: tokens.length, length };
    const { owner } = sequence;
    if (this.#queue.own(id, owner)) return;
    // State that only private texts had is on no disk.
    const isNew = !isPrivate(owner) && this.#parts.ram.isPrivate(id);
    this.#own(unit, id, owner);
    if (this.#has(key, kind) && !(isNew && this.#disk)) return;
    this.#push({ unit, id, number, pool: state.pool, owners: new Set([owner]) });
  }

  /** A unit that is there has this owner as well. */
  #own(unit: UnitFacts, id: string, owner: Owner): void {
    this.#parts.ram.own(id, owner);
    const disk = this.#disk;
    if (isPrivate(owner) || !disk?.has(id) || disk.isOwned(id, owner)) return;
    this.#owned.push({ unit, owners: [owner] });
    this.#start();
  }

  /** Queues a unit to be copied out of the backend: into memory, and to disk where it is not there. */
  #push(waiting: Waiting): void {
    if (this.#queue.has(waiting.id)) return;
    this.#queue.push(waiting); // it is not overwritten until it was copied
    this.#start();
  }

  #start(): void {
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = undefined;
      // A unit may have come after the last look at the queue.
      if (this.#queue.length + this.#owned.length > 0 && !this.#isClosed) this.#start();
    });
  }

  #copyOf({ unit: { kind }, number }: Waiting): EarlyCopy {
    const bytes = this.#parts.ram.room(this.#parts.kinds[kind]!.unitBytes);
    return { bytes, done: this.#copyOut(kind, number, bytes) };
  }

  /** Copies units out, some at a time, while batches run. */
  async #drain(): Promise<void> {
    await this.#parts.disk;
    for (let some = this.#nextUnits(); ; some = this.#nextUnits()) {
      const owned = this.#owned.splice(0);
      if (some.length + owned.length === 0) return;
      if (some[0]?.isOnDisk) {
        await pause(); // nothing else here waits, and the first token would
        if (this.#isClosed) {
          for (const { number, pool } of some) pool.release(number);
          return;
        }
      }
      this.#taken = some;
      const stored = this.#store(some, owned);
      this.#storing = stored.then(() => undefined);
      const isDone = await stored.finally(() => {
        this.#taken = [];
      });
      if (!isDone) return;
    }
  }

  /** Copies units out, together, and writes the further owners of units that are there. false: nothing is copied any more. */
  async #store(some: readonly Waiting[], owned: readonly OwnedUnit[]): Promise<boolean> {
    const { ram, checkpoints, worth, now } = this.#parts;
    const started = now();
    const copies = some.map((waiting) => {
      const { unit, id, number, pool, early, owners } = waiting;
      const { bytes: data, done: copied } = early ?? this.#copyOf(waiting);
      if (!early) pool.release(number); // the unit's current state is copied: see StateTransfer
      return { unit, id, data, copied, owners };
    });
    try {
      await Promise.all(copies.map(({ copied }) => copied));
    } catch (error) {
      this.#parts.say(`state could not be copied out of the KV cache: ${messageOf(error)}`);
      this.#queue.clear();
      return false;
    }
    if (this.#isClosed) return false;
    const wanted = copies.filter(({ owners }) => owners.size > 0); // not forgotten meanwhile
    const kept = wanted.filter(({ unit, id, data, owners }) => {
      const isKept = ram.put(id, data, owners);
      if (isKept) this.onUnit(unit);
      return isKept;
    });
    const units = wanted.map(({ unit, data, owners: all }) => ({ unit, data, owners: [...all] }));
    await this.#disk?.append([...units, ...owned]);
    const bytes = copies.reduce((sum, { data }) => sum + data.length, 0);
    const ms = now() - started;
    if (bytes > 0) {
      checkpoints?.copied(bytes, ms);
      worth?.copied(bytes, ms);
    }
    for (const copy of copies) if (!kept.includes(copy)) ram.back(copy.data);
    if (worth?.isDear) this.#queue.clear(); // units queued before that was known
    return true;
  }

  /** Forgets the state that only these owners have, in memory and on disk. */
  async forget(owners: readonly Owner[]): Promise<void> {
    await this.#parts.disk;
    if (this.#isClosed) return;
    this.#queue.forget(owners);
    for (const waiting of this.#taken) for (const owner of owners) waiting.owners.delete(owner);
    this.#owned = this.#owned.filter((one) => !owners.some((owner) => one.owners.includes(owner)));
    await this.#storing.catch(() => undefined);
    this.#parts.ram.forget(owners);
    await this.#disk?.forget(owners);
    for (const [parent, tails] of this.#tails) {
      const left = tails.filter(({ key }) =>
        this.#parts.kinds.some((_, kind) => this.#has(key, kind)),
      );
      if (left.length === 0) this.#tails.delete(parent);
      else if (left.length < tails.length) this.#tails.set(parent, left);
    }
  }

  /** The units that are copied next, together: a prompt fills several blocks in a batch, and a write takes a turn of the event loop. */
  #nextUnits(): Waiting[] {
    const { ram, disk } = this.held;
    // None of them makes room for another, in memory or on disk.
    const budgets = [ram.budgetBytes / 2, disk.budgetBytes / 16].filter((bytes) => bytes > 0);
    const most = Math.min(MOST_WRITE_BYTES, ...budgets);
    return this.#queue.take(most, ({ unit }) => this.#parts.kinds[unit.kind]!.unitBytes);
  }

  /** Between batches of a prompt, which leave no time for it: lets copies that wait be written. */
  async turn(): Promise<void> {
    if (this.#draining) await turnOfEventLoop();
  }

  async #copyOut(kind: number, number: number, target: Uint8Array<ArrayBuffer>): Promise<void> {
    const { kinds, transfer } = this.#parts;
    const { group } = kinds[kind]!;
    if (group !== undefined) await transfer.readBlock(group, number, target);
    else await transfer.readSlot(number, new Float32Array(target.buffer));
  }

  #copyIn(kind: number, number: number, source: Uint8Array): void {
    const { kinds, transfer } = this.#parts;
    const { group } = kinds[kind]!;
    if (group !== undefined) transfer.writeBlock(group, number, source);
    else
      transfer.writeSlot(
        number,
        new Float32Array(source.buffer, source.byteOffset, source.length / 4),
      );
  }

  /** Frees a unit of this pool that waits to be copied: it is copied now. false: none waits; see CopyQueue.free(). */
  free(pool: BlockPool, isAny: boolean): boolean {
    return this.#queue.free(pool, isAny);
  }

  /**
   * Brings the sequence, which holds a prefix of `tokens`, to the longest stored prefix that is longer; the last token is
   * always computed. `makeRoom` is called before anything is taken from the pools.
   */
  async extend(
    sequence: Sequence,
    tokens: readonly number[],
    makeRoom: (length: number) => void,
  ): Promise<TierTokens & { ms: number }> {
    const started = this.#parts.now();
    const none = { ram: 0, disk: 0, ms: 0 };
    if (this.#isClosed) return none;
    if (tokens.length <= FEWEST_TOKENS || tokens.length - sequence.length <= KV_BLOCK_TOKENS)
      return none;
    const disk = await this.#parts.disk;
    await disk?.refresh().catch(() => undefined);
    const root = this.#rootOf(sequence);
    const keys = blockKeys(root, tokens, tokens.length - 1);
    for (;;) {
      const length = this.#longest(sequence, tokens, keys);
      if (length <= sequence.length) return none;
      const before = sequence.length;
      makeRoom(length);
      const taken = sequence.extend(tokens, length);
      const from = await this.#fill(taken, sequence, tokens, keys, root);
      if (from) {
        // State that only private texts had is stored again, for another owner.
        const blocks = from.isPrivate ? 0 : Math.floor(length / KV_BLOCK_TOKENS);
        sequence.keys = keys.slice(0, blocks);
        const gained = length - before;
        const ram = Math.round((gained * from.ram) / (from.ram + from.disk));
        return { ram, disk: gained - ram, ms: this.#parts.now() - started };
      }
      sequence.restore(0); // state that was not read is forgotten by now: the next try finds less
    }
  }

  /** The longest stored length of these tokens. */
  #longest(sequence: Sequence, tokens: readonly number[], keys: readonly StateKey[]): number {
    const { kinds } = this.#parts;
    const isThere = (kind: number, length: number, key: StateKey): boolean =>
      (length <= sequence.length &&
        sequence.states[kind]!.unitAt(length) !== undefined &&
        length % KV_BLOCK_TOKENS === 0) ||
      this.#has(key, kind);
    // All blocks up to here are there, for kinds that need all.
    let whole = 0;
    const all = kinds.flatMap(({ needsAll }, kind) => (needsAll ? kind : []));
    while (
      whole < keys.length &&
      all.every((kind) => isThere(kind, (whole + 1) * KV_BLOCK_TOKENS, keys[whole]!))
    ) {
      whole++;
    }
    const isComplete = (length: number, end: StateKey): boolean =>
      kinds.every((_, kind) =>
        sequence.states[kind]!.unitsFor(length).every((at) =>
          isThere(kind, at, at === length ? end : keys[at / KV_BLOCK_TOKENS - 1]!),
        ),
      );
    for (let blocks = whole; blocks >= 0; blocks--) {
      const at = blocks * KV_BLOCK_TOKENS;
      if (at + KV_BLOCK_TOKENS <= sequence.length) return 0;
      const key = blocks === 0 ? this.#rootOf(sequence) : keys[blocks - 1]!;
      const tails = (this.#tails.get(key) ?? [])
        .filter((tail) => at + tail.tokens < tokens.length)
        .filter((tail) => tail.key === nextKey(key, tokens.slice(at, at + tail.tokens)))
        .toSorted((a, b) => b.tokens - a.tokens);
      for (const tail of tails) {
        if (isComplete(at + tail.tokens, tail.key)) return at + tail.tokens;
      }
      if (blocks > 0 && isComplete(at, key)) return at;
    }
    return 0;
  }

  /**
   * The reason why a prompt is not known beyond `from` tokens, if an earlier text began with `known` of them; undefined: no more was ever
   * stored. Without an earlier text in this process (0), the stored state tells how much was known.
   */
  missing(tokens: readonly number[], from: number, known: number): Missing | undefined {
    if (this.#isClosed) return undefined;
    const keys = blockKeys(this.#parts.root, tokens, tokens.length - 1);
    const kinds = this.#parts.kinds.map(({ needsAll }, kind) => ({ needsAll, kind }));
    const all = kinds.filter(({ needsAll }) => needsAll);
    const first = Math.floor(from / KV_BLOCK_TOKENS);
    let block = all.length > 0 ? first : Math.floor(known / KV_BLOCK_TOKENS);
    while (block < keys.length && all.every(({ kind }) => this.#has(keys[block]!, kind))) {
      if (all.length === 0) break;
      block++;
    }
    // The blocks of whole attention are there, and more than was used: other kinds have no state at this length. Without other kinds, or
    // in a short text, nothing is lost: it was not looked for, or was stored only since.
    if (block > first && block * KV_BLOCK_TOKENS > from) {
      const isShort = tokens.length <= FEWEST_TOKENS;
      return isShort || all.length === kinds.length
        ? undefined
        : { reason: "checkpoint", at: from };
    }
    if (known <= from + KV_BLOCK_TOKENS) return undefined;
    const lost = kinds.map(({ kind }) => this.#lost.get(unitId(keys[first]!, kind)));
    const otherwise = this.#parts.worth?.isDear ? "dear" : "unknown";
    return { reason: lost.find((reason) => reason) ?? otherwise, at: from };
  }

  /** The difference from the way the model was computed when this prompt was stored; undefined: it was not stored. */
  async stale(tokens: readonly number[]): Promise<string | undefined> {
    return await this.#parts.stale?.find(tokens);
  }

  /** Reads a unit from disk into the backend; `scratch`: memory for units on their way, by their bytes. */
  async #readIn(
    kind: number,
    number: number,
    id: string,
    scratch: Map<number, Uint8Array<ArrayBuffer>>,
  ): Promise<boolean> {
    const { kinds, ram, transfer } = this.#parts;
    const { group, unitBytes } = kinds[kind]!;
    const disk = this.#disk;
    if (!disk) return false;
    // Touching 100 MB of new pages takes as long as reading them: the threads that read do both.
    const own = group === undefined ? undefined : transfer.blockPieces?.(group, number);
    if (own) {
      const isRead = await disk.read(id, own);
      // Kernels multiply the part beyond a text by 0: a damaged file's NaN would stay NaN.
      if (!isRead) for (const piece of own) piece.fill(0);
      return isRead;
    }
    const bytes = scratch.get(unitBytes) ?? ram.room(unitBytes);
    scratch.set(unitBytes, bytes);
    if (!(await disk.read(id, [bytes]))) return false;
    this.#copyIn(kind, number, bytes);
    return true;
  }

  /** Fills units of each state; undefined: one could not be read. */
  async #fill(
    taken: readonly ReadonlyMap<number, number>[],
    { owner, states }: Sequence,
    tokens: readonly number[],
    keys: readonly StateKey[],
    root: StateKey,
  ): Promise<(TierTokens & { isPrivate: boolean }) | undefined> {
    const { ram } = this.#parts;
    const units = taken.flatMap((numbers, kind) =>
      [...numbers].map(([length, number]) => ({ kind, length, number })),
    );
    const from = { ram: 0, disk: 0, isPrivate: false };
    let next = 0;
    let isWhole = true;
    const later: Waiting[] = [];
    const unitOf = (
      key: StateKey,
      parent: StateKey,
      start: number,
      length: number,
      kind: number,
    ) => ({
      ...{ kind, key, parent, length },
      tokens: length - start,
    });
    const readSome = async (): Promise<void> => {
      const scratch = new Map<number, Uint8Array<ArrayBuffer>>();
      while (isWhole && next < units.length) {
        const { kind, length, number } = units[next++]!;
        const block = Math.ceil(length / KV_BLOCK_TOKENS) - 1;
        const parent = block === 0 ? root : keys[block - 1]!;
        const isBoundary = length % KV_BLOCK_TOKENS === 0;
        const start = block * KV_BLOCK_TOKENS;
        const key = isBoundary ? keys[block]! : nextKey(parent, tokens.slice(start, length));
        const id = unitId(key, kind);
        const unit = unitOf(key, parent, start, length, kind);
        if (!isPrivate(owner) && ram.isPrivate(id)) from.isPrivate = true;
        else this.#own(unit, id, owner);
        const held = ram.get(id);
        if (held) {
          this.#copyIn(kind, number, held);
          from.ram++;
          if (this.#parts.counts) this.#parts.counts.restoredBytes.ram += held.length;
          continue;
        }
        if (await this.#readIn(kind, number, id, scratch)) {
          from.disk++;
          if (isBoundary && ram.held.budgetBytes > 0) {
            const { pool } = states[kind]!;
            later.push({ unit, id, number, pool, owners: new Set([owner]), isOnDisk: true });
          }
        } else isWhole = false;
      }
      for (const bytes of scratch.values()) ram.back(bytes);
    };
    await Promise.all(Array.from({ length: READS_AT_ONCE }, readSome));
    if (!isWhole) return undefined;
    for (const one of later) this.#push(one);
    return from;
  }

  /** Resolves when all state computed until now is stored, or after `mostMs`: the rest of the queue is then dropped. */
  async settled(mostMs: number = Infinity): Promise<void> {
    const since = this.#parts.now();
    while (this.#draining) {
      const left = mostMs - (this.#parts.now() - since);
      if (left <= 0) this.#queue.clear();
      await atMost(left > 0 ? left : Infinity, this.#draining);
    }
  }

  /** Drops all copies since the model was opened, which may be wrong; nothing is used or copied from now on. */
  async discard(): Promise<void> {
    if (this.#isClosed) return;
    this.#parts.say(
      "copies of state are not used any more: values that are not finite were computed",
    );
    await this.close((disk) => disk.discard());
  }

  /** Forgets the state in memory, and removes the files of all processes for this model. */
  async clear(): Promise<void> {
    this.#queue.clear();
    this.#owned = [];
    await this.#draining;
    this.#parts.ram.clear();
    this.#tails.clear();
    await this.#disk?.clear();
  }

  /** `end`: the fate of the files. */
  async close(end: (disk: DiskTier) => Promise<void> = (disk) => disk.close()): Promise<void> {
    this.#isClosed = true;
    this.#queue.clear();
    await this.#draining;
    if (this.#disk) await end(this.#disk);
    this.#disk = undefined;
    this.#parts.ram.clear();
    this.#tails.clear();
  }
}
