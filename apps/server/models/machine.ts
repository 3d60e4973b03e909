// Runs the lifecycle of all models (lifecycle.ts): each event is one step of the table and its actions, at once and whole. What takes
// time (opening, unloading, closing, timers) is begun by an action, and its end is another event. registry.ts is what the rest of the
// server sees of it.
//
// Loads are one after the other, in the order of the first request for each; all requests for a model wait for the same load. If there
// is room only where a model is busy, that model takes no new requests until it has left: they wait for a load behind the one that
// needs the room. So nobody waits forever, and nobody's answer is cut off.

import { Backoff } from "../../../src/base/backoff.ts";
import { messageOf } from "../../../src/base/errors.ts";
import { MemoryError, type Model } from "../../../src/index.ts";
import { ApiError, queueFull, stopping } from "../errors.ts";
import type { ServedModel } from "../served-model.ts";
import { loadFailed, noCapacity } from "./errors.ts";
import { type Action, type Event, lifecycle, type State, stateMemory } from "./lifecycle.ts";
import { heldBytes, type PoolLimits } from "./on-demand.ts";
import { type Held, makeRoom } from "./room.ts";

/** Ends the use of a model. */
export type Release = () => void;

export interface Waiter {
  admit(release: Release): void;
  refuse(error: unknown): void;
}

/** How a model is opened. */
export interface Opening {
  needs(id: string): PromiseLike<number>;
  open(id: string, load: Load): PromiseLike<ServedModel>;
}

export interface MachineParts extends Opening {
  /** Changes when a model must be opened again, because what it is opened with has changed. */
  version(id: string): string;
  isPinned(id: string): boolean;
  /** How long a model that is added stays after its last request, in ms. */
  keepMs(id: string): number;
  readonly limits: PoolLimits;
  /** Requests that may wait for loads. */
  readonly mostWaiting: number;
  /** Something has happened to a model. */
  changed(id: string): void;
  /** Called with each step, for tests. */
  stepped?(state: State, event: Event): void;
  /** A model was added to those that were opened, or removed. */
  listed(): void;
  /** Milliseconds since 1970. */
  time(): number;
  /** Calls back after so many ms; what it returns prevents that. */
  after(ms: number, run: () => void): () => void;
  /** Frees what it holds. */
  dispose(model: Model): PromiseLike<void>;
  log(line: string): void;
}

/** A model that was opened, in memory or not. */
export interface Resident {
  readonly served: ServedModel;
  /** With which version it was opened; undefined: it was opened in another way. */
  readonly version: string | undefined;
  users: number;
  /** It is to be closed as soon as nobody uses it. */
  isForgotten: boolean;
  readonly closed: PromiseWithResolvers<void>;
}

export interface Entry {
  readonly id: string;
  state: State;
  resident?: Resident | undefined;
  /** For which unload() or dispose() runs: the end of either is of no interest where another model has come. */
  leaving?: Resident | undefined;
  keepMs: number;
  /** When it is unloaded, in ms since 1970; Infinity: never. */
  expiresAt: number;
  /** A counter of uses: the smallest was used longest ago. */
  used: number;
  /** Why its last load failed. */
  reason?: string | undefined;
  readonly retry: Backoff;
  isResting: boolean;
  endTimer(): void;
}

/** A load that waits or runs. */
export interface Load {
  readonly id: string;
  readonly waiters: Set<Waiter>;
  /** Opens it as a person has chosen, who is one of the waiters; undefined: as the list of models says. */
  readonly chosen: Opening | undefined;
  readonly by: Waiter;
  readonly abort: AbortController;
  readonly ended: PromiseWithResolvers<void>;
  phase: "waiting" | "sizing" | "sized" | "running" | "ended";
  needs: number;
  /** Memory that was free when it began to make room, and bytes that have left since: the system may say so later. */
  freeAtFirst: number;
  left: number;
  /** A model that leaves because a try found too little memory. */
  behind?: Entry | undefined;
  tries: number;
  loadedBytes: number;
  totalBytes: number;
}

interface Given {
  readonly waiter?: Waiter;
  readonly chosen?: Opening | undefined;
  readonly load?: Load;
}

/** Between looking a model up and computing with it, a request may take so long before the model is loaded twice. */
const LOOKED_UP_MS = 5000;
/** How exact the end of a model's time is. */
const TIMER_MS = 200;
/** The longest that a timer takes. */
const MOST_TIMER_MS: number = 2 ** 31 - 1;
/** After a try to unload a model that was just asked for its status. */
const retries = { firstMs: 20, mostMs: 30_000, tries: Infinity };
/** Of a load that finds too little memory: each has unloaded another model before. */
const mostTries = 20;

export class ModelMachine {
  readonly #parts: MachineParts;
  readonly #entries = new Map<string, Entry>();
  /** The first one is made room for, or runs. */
  readonly #loads: Load[] = [];
  /** Those that are closed, or will be as soon as they are used no more. */
  readonly #forgotten = new Set<Resident>();
  #uses = 0;
  #depth = 0;
  #isClosed = false;

  constructor(parts: MachineParts) {
    this.#parts = parts;
  }

  /** In the order in which they were opened. */
  entries(): readonly Entry[] {
    return [...this.#entries.values()];
  }

  get(id: string): Entry | undefined {
    return this.#entries.get(id);
  }

  loadOf(id: string): Load | undefined {
    return this.#loads.find((one) => one.id === id);
  }

  get loads(): readonly Load[] {
    return this.#loads;
  }

  /** A request asks for a model; the waiter is told at once, or when a load has ended. `isHolder`: it holds the model, or held it. */
  ask(id: string, waiter: Waiter, isHolder = false): void {
    const isOutdated = this.#isOutdated(this.#entry(id));
    this.#ask(id, isHolder ? "askAgain" : isOutdated ? "askAnew" : "ask", { waiter });
  }

  /** Opens a model as a person has chosen. It is used as it is until then. */
  choose(id: string, waiter: Waiter, chosen: Opening): void {
    this.#ask(id, "choose", { waiter, chosen });
  }

  /** A request waits no more. A load that has begun goes on, unless it was chosen: who asked may ask again. */
  leave(waiter: Waiter, reason: unknown): void {
    const load = this.#loads.find(({ waiters }) => waiters.delete(waiter));
    waiter.refuse(reason);
    if (!load) return;
    const isLast = load.waiters.size === 0 && load.phase !== "running";
    if (isLast || (load.chosen && load.by === waiter)) this.stop(load, reason);
  }

  /** Stops a load; those who wait for it are told. It ends when opening has. */
  stop(load: Load, reason: unknown): void {
    if (load.abort.signal.aborted) return;
    load.abort.abort(reason);
    this.#within(() => {
      const waiters = [...load.waiters];
      load.waiters.clear();
      for (const waiter of waiters) waiter.refuse(reason);
      if (load.phase !== "running") this.#end(load);
      const entry = this.#entry(load.id);
      const isLoading = load.phase === "running" && entry.state === "loading";
      if (isLoading || entry.state === "queued") this.#send(entry, "stop");
    });
  }

  /** A model that was opened elsewhere. */
  add(served: ServedModel): void {
    this.#put(served, undefined);
  }

  send(id: string, event: "touched" | "leave" | "forget" | "clear"): void {
    this.#send(this.#entry(id), event);
  }

  /** Stops all loads, and begins no other; nothing is unloaded any more. */
  close(reason: unknown): void {
    this.#isClosed = true;
    for (const entry of this.#entries.values()) entry.endTimer();
    for (const load of [...this.#loads]) this.stop(load, reason);
  }

  #entry(id: string): Entry {
    const known = this.#entries.get(id);
    if (known) return known;
    const entry: Entry = {
      ...{ id, state: "unloaded", keepMs: Infinity, expiresAt: Infinity, used: 0 },
      ...{ retry: new Backoff(retries), isResting: false, endTimer: () => {} },
    };
    this.#entries.set(id, entry);
    return entry;
  }

  #isOutdated({ id, resident }: Entry): boolean {
    const { version } = resident ?? {};
    return version !== undefined && version !== this.#parts.version(id);
  }

  #ask(id: string, event: Event, given: Given): void {
    const entry = this.#entry(id);
    const waits = lifecycle[entry.state][event]?.includes("wait");
    if (waits && (given.chosen || !this.#openLoad(id))) {
      if (this.#isClosed) throw stopping();
      const waiting = this.#loads.reduce((sum, { waiters }) => sum + waiters.size, 0);
      if (waiting >= this.#parts.mostWaiting) throw queueFull(0, waiting);
    }
    this.#send(entry, event, given);
  }

  /** The load that requests for a model join. */
  #openLoad(id: string): Load | undefined {
    return this.#loads.find((one) => one.id === id && !one.abort.signal.aborted);
  }

  /** One step of the table. */
  #send(entry: Entry, event: Event, given: Given = {}): void {
    const step = lifecycle[entry.state][event];
    if (!step) {
      this.#parts.log(`a bug: ${event} of ${entry.id}, which is ${entry.state}`);
      return;
    }
    const [to, ...actions] = step;
    this.#parts.stepped?.(entry.state, event);
    this.#within(() => {
      entry.state = to;
      for (const action of actions) this.#actions[action](entry, given);
      const isOut = entry.state === "unloaded" || entry.state === "failed";
      if (isOut && this.#openLoad(entry.id)) this.#send(entry, "wanted");
      this.#parts.changed(entry.id);
    });
  }

  /** Any change may let the first load go on; but only after the whole of it: those who are admitted together hold the model by then. */
  #within(work: () => void): void {
    this.#depth++;
    try {
      work();
      while (this.#depth === 1 && this.#advance());
    } finally {
      this.#depth--;
    }
  }

  readonly #actions: Readonly<Record<Action, (entry: Entry, given: Given) => void>> = {
    use: (entry, { waiter }) => this.#use(entry, entry.resident!, waiter!),
    wait: ({ id }, { waiter, chosen }) => {
      const load = chosen ? undefined : this.#openLoad(id);
      (load ?? this.#addLoad(id, waiter!, chosen)).waiters.add(waiter!);
    },
    admit: (entry) => {
      const isServed = ({ id, chosen, phase, abort }: Load): boolean =>
        id === entry.id &&
        !abort.signal.aborted &&
        (phase === "ended" || (!chosen && phase !== "running"));
      const loads = this.#loads.filter(isServed);
      for (const load of loads) this.#end(load);
      for (const waiter of loads.flatMap(({ waiters }) => [...waiters])) {
        this.#send(entry, "askAgain", { waiter });
      }
    },
    open: (entry, { load }) => this.#open(entry, load!),
    unload: (entry) => this.#unload(entry, entry.resident!),
    close: (entry) => {
      const resident = entry.resident!;
      entry.leaving = resident;
      this.#forget(entry, () => this.#left(entry, resident, "closed"));
    },
    discard: (entry) => this.#forget(entry),
    stay: (entry) => this.#stay(entry, entry.keepMs),
    linger: (entry) => this.#stay(entry, Math.max(entry.keepMs, LOOKED_UP_MS)),
    rest: (entry) => {
      if (this.#isClosed) return;
      entry.isResting = true;
      entry.endTimer = this.#parts.after(entry.retry.next()!, () => this.#timeOver(entry));
    },
  };

  #use(entry: Entry, resident: Resident, waiter: Waiter): void {
    resident.users++;
    entry.used = ++this.#uses;
    entry.retry.succeeded();
    this.#endTimer(entry);
    let isUsed = true;
    waiter.admit(() => {
      if (!isUsed) return;
      isUsed = false;
      if (--resident.users > 0) return;
      if (entry.resident === resident) this.#send(entry, "released");
      else if (resident.isForgotten) this.#dispose(resident);
    });
  }

  #endTimer(entry: Entry): void {
    entry.endTimer();
    entry.isResting = false;
  }

  #stay(entry: Entry, ms: number): void {
    const isPinned = this.#parts.isPinned(entry.id);
    entry.expiresAt = isPinned ? Infinity : this.#parts.time() + ms;
    this.#wakeIn(entry, entry.expiresAt === Infinity ? Infinity : ms);
  }

  #wakeIn(entry: Entry, ms: number): void {
    this.#endTimer(entry);
    if (ms === Infinity || this.#isClosed) return;
    entry.endTimer = this.#parts.after(Math.min(ms, MOST_TIMER_MS), () => this.#timeOver(entry));
  }

  #timeOver(entry: Entry): void {
    if (entry.state !== "idle") return;
    this.#within(() => {
      const left = entry.expiresAt - this.#parts.time();
      if (left > TIMER_MS) this.#wakeIn(entry, left);
      else this.#send(entry, "leave");
    });
  }

  #unload(entry: Entry, resident: Resident): void {
    entry.leaving = resident;
    this.#endTimer(entry);
    resident.served.model.unload().then(
      (isOut) => this.#left(entry, resident, isOut ? "left" : "refused"),
      (error: unknown) => {
        // Behind a server that has ended, the model may have been closed.
        if (!this.#isClosed)
          this.#parts.log(`${entry.id} could not be unloaded: ${messageOf(error)}`);
        this.#left(entry, resident, "refused");
      },
    );
  }

  #left(entry: Entry, resident: Resident, event: "left" | "refused" | "closed"): void {
    if (entry.leaving !== resident) return;
    entry.leaving = undefined;
    const [first] = this.#loads;
    if (first && event !== "refused") first.left += heldBytes(resident.served.model.info);
    this.#send(entry, event);
  }

  /** Its model is served no more, and closed when nobody uses it. */
  #forget(entry: Entry, done?: () => void): void {
    const { resident } = entry;
    if (!resident) return;
    entry.resident = undefined;
    resident.isForgotten = true;
    this.#forgotten.add(resident);
    this.#endTimer(entry);
    this.#parts.listed();
    if (resident.users === 0) this.#dispose(resident, done);
  }

  #dispose(resident: Resident, done?: () => void): void {
    const end = (): void => {
      resident.closed.resolve();
      this.#forgotten.delete(resident);
      this.#within(() => done?.());
    };
    this.#parts.dispose(resident.served.model).then(end, (error: unknown) => {
      this.#parts.log(`${resident.served.id} could not be closed: ${messageOf(error)}`);
      end();
    });
  }

  /** A model takes the place of one of that name. */
  #put(served: ServedModel, version: string | undefined): void {
    const entry = this.#entry(served.id);
    entry.leaving = undefined;
    const closed = Promise.withResolvers<void>();
    entry.resident = { served, version, users: 0, isForgotten: false, closed };
    entry.keepMs = this.#parts.keepMs(served.id);
    entry.used = ++this.#uses;
    this.#entries.delete(served.id);
    this.#entries.set(served.id, entry); // the last in the order
    this.#send(entry, "opened");
    this.#parts.listed();
  }

  #addLoad(id: string, by: Waiter, chosen: Opening | undefined): Load {
    const load: Load = {
      ...{ id, by, chosen, waiters: new Set(), abort: new AbortController() },
      ...{ ended: Promise.withResolvers<void>(), phase: "waiting" },
      ...{ needs: 0, freeAtFirst: 0, left: 0, tries: 0, loadedBytes: 0, totalBytes: 0 },
    };
    this.#loads.push(load);
    return load;
  }

  #end(load: Load): void {
    const at = this.#loads.indexOf(load);
    if (at < 0) return;
    this.#loads.splice(at, 1);
    load.ended.resolve();
    this.#parts.changed(load.id);
    if (at > 0) return;
    for (const entry of this.entries()) if (entry.state === "draining") this.#send(entry, "spare");
  }

  /** Whether the first load went on. */
  #advance(): boolean {
    const [load] = this.#loads;
    if (!load || load.phase === "running" || load.phase === "sizing") return false;
    const entry = this.#entry(load.id);
    if (isLeaving(entry)) return false;
    if (load.phase === "waiting") {
      this.#size(load, entry);
      return true;
    }
    if (load.behind && (isLeaving(load.behind) || load.behind.isResting)) return false;
    load.behind = undefined;
    const { limits } = this.#parts;
    const held = this.#held(load.id);
    const free =
      limits.bytes === undefined
        ? Math.max(limits.freeBytes?.() ?? Infinity, load.freeAtFirst + load.left)
        : limits.bytes - held.reduce((sum, { bytes }) => sum + bytes, 0);
    const facts = { needs: load.needs, free, held, limits };
    const next = makeRoom(facts);
    if (next === "wait") return false;
    if (next === "fits") {
      load.phase = "running";
      this.#send(entry, "turn", { load });
    } else if (next === "never") this.#failed(load, noCapacity(load.id, facts));
    else {
      const { state } = this.#entry(next.id);
      if (state === "draining") return false;
      this.#send(this.#entry(next.id), state === "idle" ? "leave" : "drain");
    }
    return true;
  }

  #size(load: Load, entry: Entry): void {
    const sized = (bytes: number): void => {
      if (load.phase !== "sizing" || load.abort.signal.aborted) return;
      load.phase = "sized";
      load.needs = bytes;
      load.freeAtFirst = this.#parts.limits.freeBytes?.() ?? Infinity;
      this.#within(() => {});
    };
    load.phase = "sizing";
    const { resident } = entry;
    if (resident && !load.chosen && !this.#isOutdated(entry)) {
      sized(heldBytes(resident.served.model.info));
    } else {
      const needs = (load.chosen ?? this.#parts).needs(load.id);
      needs.then(sized, (error: unknown) => this.#failed(load, error));
    }
  }

  /** What is in memory besides this model. */
  #held(id: string): Held[] {
    const held = this.entries().filter((one) => one.id !== id && one.resident && isIn(one));
    const leaving = { isPinned: false, isLeaving: true, isResting: false, used: 0 };
    return [
      ...held.map((entry) => ({
        id: entry.id,
        bytes: heldBytes(entry.resident!.served.model.info),
        isPinned: this.#parts.isPinned(entry.id),
        isLeaving: isLeaving(entry),
        isResting: entry.isResting,
        users: entry.resident!.users,
        used: entry.used,
      })),
      ...[...this.#forgotten].map(({ served, users }) => ({
        ...{ id: served.id, bytes: heldBytes(served.model.info), users, ...leaving },
      })),
    ];
  }

  #open(entry: Entry, load: Load): void {
    const { resident } = entry;
    if (!resident || load.chosen) this.#openNow(load);
    else if (this.#isOutdated(entry)) this.#forget(entry, () => this.#openNow(load));
    else {
      const loaded = (): void =>
        this.#within(() => {
          load.phase = "ended";
          this.#send(entry, "loaded");
          this.#end(load);
        });
      const failed = (error: unknown): void => this.#failed(load, error);
      resident.served.model.load().then(loaded, failed);
    }
  }

  #openNow(load: Load): void {
    const { id, chosen, abort } = load;
    const failed = (error: unknown): void => this.#failed(load, error);
    if (abort.signal.aborted) failed(abort.signal.reason);
    else {
      const version = chosen ? undefined : this.#parts.version(id); // before: what changes meanwhile is opened again
      const opened = (served: ServedModel): void => this.#opened(load, served, version);
      (chosen ?? this.#parts).open(id, load).then(opened, failed);
    }
  }

  #opened(load: Load, served: ServedModel, version: string | undefined): void {
    if (load.abort.signal.aborted) {
      const ended = (): void => this.#failed(load, load.abort.signal.reason);
      return void this.#parts.dispose(served.model).then(ended, ended);
    }
    this.#within(() => {
      load.phase = "ended";
      this.#forget(this.#entry(load.id));
      this.#put(served, version);
      this.#end(load);
    });
  }

  #failed(load: Load, error: unknown): void {
    if (!this.#loads.includes(load)) return; // stopped before it began
    const entry = this.#entry(load.id);
    const isStopped = load.abort.signal.aborted;
    this.#within(() => {
      if (
        load.phase === "running" &&
        !isStopped &&
        error instanceof MemoryError &&
        load.tries < mostTries
      ) {
        const idle = this.#held(load.id).filter((one) => one.users === 0 && !one.isPinned);
        const [first] = idle.filter((one) => !one.isLeaving).toSorted((a, b) => a.used - b.used);
        if (first) return this.#leavesFor(load, this.#entry(first.id));
      }
      const known = load.chosen || error instanceof ApiError;
      const problem = known ? error : loadFailed(load.id, error);
      this.#end(load);
      for (const waiter of load.waiters) waiter.refuse(problem);
      const isOurs = isStopped ? entry.state === "stopping" : isOut(entry);
      if (!isOurs) return;
      entry.reason = load.chosen ? undefined : messageOf(problem);
      this.#send(entry, "broke");
    });
  }

  /** The load is tried again when that one has left. */
  #leavesFor(load: Load, idle: Entry): void {
    const entry = this.#entry(load.id);
    load.tries++;
    load.phase = "sized";
    load.behind = idle;
    if (entry.state === "loading") this.#send(entry, "short");
    if (idle.state === "idle" && !idle.isResting) this.#send(idle, "leave");
  }
}

function isLeaving({ state }: Entry): boolean {
  return stateMemory[state] === "leaving";
}

function isIn({ state }: Entry): boolean {
  return stateMemory[state] === "held" || stateMemory[state] === "leaving";
}

/** Neither in memory nor stopped. */
function isOut({ state }: Entry): boolean {
  return state === "queued" || state === "loading";
}
