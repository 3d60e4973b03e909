// Which models are in memory. A request holds the model that it names from the moment it is found until it is answered; one that is
// not in memory is loaded first, and idle ones leave to make room for it, the least recently used first.
//
// Loads are one after the other, in the order of the first request for each; all requests for a model wait for the same load. If
// there is room only where a model is busy, that model takes no new requests until it is idle and has left: those that name it get a
// load of their own behind the one that waits. So nobody waits forever, and nobody's answer is cut off.

import { pause } from "../base/backoff.ts";
import { MemoryError, type Model } from "../index.ts";
import { ApiError, queueFull, stopping } from "./errors.ts";
import type { KeepAlive } from "./keep-alive.ts";
import type { TaskOptions } from "./library.ts";
import { type Held, loadFailed, loadStopped, noRoom } from "./load-errors.ts";
import { heldBytes, type OnDemandModels, type PoolLimits } from "./on-demand.ts";
import type { ServedModel } from "./served-model.ts";

export interface PoolParts {
  readonly keepAlive: KeepAlive;
  readonly onDemand: OnDemandModels | undefined;
  readonly limits: PoolLimits;
  /** Requests that may wait for a load. */
  readonly mostWaiting: number;
  readonly stopSignal: AbortSignal;
  /** The opened models, in memory or not. */
  served(): readonly ServedModel[];
  add(served: ServedModel): void;
  remove(id: string): void;
  /** Its state is another one, or its load goes on. */
  changed(id: string): void;
  /** Milliseconds since 1970. */
  time(): number;
}

/** Ends the use of a model. */
export type Release = () => void;

interface Waiter {
  admit(): void;
  refuse(error: unknown): void;
}

/** A model that is to be loaded, and those who wait for it. */
interface Ticket {
  readonly id: string;
  readonly waiters: Set<Waiter>;
  readonly abort: AbortController;
  /** Opens it, and serves it; undefined: as the list of models says. */
  readonly work: (() => Promise<void>) | undefined;
  readonly needs: () => Promise<number>;
  /** Settles when it has been served, or has failed. */
  readonly ended: PromiseWithResolvers<void>;
  isLoading: boolean;
  loadedBytes: number;
  totalBytes: number;
}

export interface LoadState {
  readonly value: "loaded" | "loading" | "unloaded";
  /** Why the last load failed. */
  readonly error?: string | undefined;
  /** While it is loaded. */
  readonly progress?: { readonly loadedBytes: number; readonly totalBytes: number } | undefined;
}

/** After a try to unload a model that somebody has just asked for its status. */
const RETRY_MS = 20;
/** Of a load that finds too little memory: each has unloaded another model before. */
const mostTries = 20;

export class ModelPool {
  readonly #parts: PoolParts;
  readonly #tickets: Ticket[] = [];
  readonly #failed = new Map<string, string>();
  /** Those that must be idle before the first ticket goes on. */
  readonly #draining = new Set<string>();
  /** With which version models were opened here. */
  readonly #versions = new Map<string, string>();
  /** Opened here, so disposed here. */
  readonly #opened = new Set<Model>();
  #working: Promise<void> | undefined;
  #isClosed = false;

  constructor(parts: PoolParts) {
    this.#parts = parts;
  }

  get onDemand(): OnDemandModels | undefined {
    return this.#parts.onDemand;
  }

  get limits(): PoolLimits {
    return this.#parts.limits;
  }

  state(id: string): LoadState {
    const ticket = this.#tickets.find((one) => one.id === id);
    const { loadedBytes = 0, totalBytes = 0 } = ticket ?? {};
    if (ticket) return { value: "loading", progress: { loadedBytes, totalBytes } };
    if (this.#isReady(id)) return { value: "loaded" };
    return { value: "unloaded", error: this.#failed.get(id) };
  }

  /** A model in memory that stays there until it is released; loads it first if it must. */
  async hold(id: string, signal: AbortSignal): Promise<Release> {
    signal.throwIfAborted();
    if (this.#isReady(id) && !this.#draining.has(id)) return this.#parts.keepAlive.use(id);
    return await this.#wait(this.#ticket(id), signal);
  }

  /** The same for whoever holds it already, or held it: it never waits for room that it takes itself. */
  async holdAgain(id: string, signal: AbortSignal): Promise<Release> {
    signal.throwIfAborted();
    if (this.#isServed(id) && this.#parts.keepAlive.isLoaded(id)) {
      return this.#parts.keepAlive.use(id);
    }
    return await this.#wait(this.#ticket(id), signal);
  }

  /** Starts a load that nobody waits for. */
  start(id: string): void {
    if (this.#isReady(id)) return;
    this.#ticket(id).waiters.add({ admit: () => {}, refuse: () => {} });
  }

  /** Stops a load; those who wait for it are told. */
  async stop(id: string): Promise<void> {
    const ticket = this.#tickets.find((one) => one.id === id);
    ticket?.abort.abort(loadStopped(id));
    await ticket?.ended.promise; // of this one only: while others are asked for, the work does not end
  }

  /** Unloads a model that nobody uses; false: somebody does. */
  async unload(id: string): Promise<boolean> {
    this.#failed.delete(id);
    if (!this.#isServed(id)) return true;
    for (let tries = 0; tries < 50; tries++) {
      if (this.#parts.keepAlive.users(id) > 0) return false;
      if (await this.#parts.keepAlive.unload(id)) return true;
      await pause(RETRY_MS);
    }
    return false;
  }

  /** Closes a model that is not in memory: its files are about to go. */
  async forget(id: string): Promise<void> {
    const served = this.#parts.served().find((one) => one.id === id);
    this.#failed.delete(id);
    this.#versions.delete(id);
    if (!served) return;
    this.#parts.remove(id);
    this.#opened.delete(served.model);
    this.#parts.changed(id);
    await served.model.dispose();
  }

  /** Makes room for a model in its turn, and lets the caller open it. */
  async admit(
    id: string,
    needs: () => Promise<number>,
    work: () => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    (await this.#wait(this.#add(id, needs, work), signal))();
  }

  /** Stops all loads, and begins no other. */
  close(): void {
    this.#isClosed = true;
    for (const { abort } of this.#tickets) abort.abort(stopping());
  }

  /** Closes the models that were opened here. */
  async dispose(): Promise<void> {
    this.close();
    await this.#working;
    await Promise.all([...this.#opened].map((model) => model.dispose()));
  }

  #isServed(id: string): boolean {
    return this.#parts.served().some((one) => one.id === id);
  }

  /** In memory, and opened as it is to be opened now. */
  #isReady(id: string): boolean {
    return this.#isServed(id) && this.#parts.keepAlive.isLoaded(id) && !this.#isOutdated(id);
  }

  #isOutdated(id: string): boolean {
    const opened = this.#versions.get(id);
    return opened !== undefined && opened !== this.#parts.onDemand?.version(id);
  }

  #ticket(id: string): Ticket {
    const { onDemand } = this.#parts;
    // One that was stopped ends soon, with somebody else's reason.
    const isOpen = (one: Ticket): boolean => one.id === id && !one.abort.signal.aborted;
    const waiting = this.#tickets.find(isOpen);
    if (waiting) return waiting;
    return this.#add(id, async () => (await onDemand?.needs(id)) ?? 0);
  }

  async #open(id: string, task: TaskOptions): Promise<Model> {
    const { onDemand } = this.#parts;
    if (!onDemand) throw loadFailed(id, "it is not served here any more");
    const version = onDemand.version(id); // before: what changes meanwhile is opened again
    const model = await onDemand.open(id, task);
    this.#opened.add(model);
    this.#versions.set(id, version);
    return model;
  }

  #add(id: string, needs: Ticket["needs"], work?: Ticket["work"]): Ticket {
    if (this.#isClosed) throw stopping();
    const waiters = this.#tickets.reduce((sum, ticket) => sum + ticket.waiters.size, 0);
    if (waiters >= this.#parts.mostWaiting) throw queueFull(0, waiters);
    const ticket: Ticket = {
      ...{ id, needs, work, waiters: new Set<Waiter>(), abort: new AbortController() },
      ...{ ended: Promise.withResolvers<void>() },
      ...{ isLoading: false, loadedBytes: 0, totalBytes: 0 },
    };
    this.#tickets.push(ticket);
    this.#parts.changed(id);
    this.#working ??= this.#work();
    return ticket;
  }

  async #wait(ticket: Ticket, signal: AbortSignal): Promise<Release> {
    const { promise, resolve, reject } = Promise.withResolvers<Release>();
    const leave = (): void => {
      ticket.waiters.delete(waiter);
      // A load that has begun goes on: who asked may ask again.
      if (ticket.waiters.size === 0 && !ticket.isLoading) ticket.abort.abort(signal.reason);
      reject(signal.reason as Error);
    };
    const waiter: Waiter = {
      admit: () => resolve(this.#parts.keepAlive.use(ticket.id)),
      refuse: reject,
    };
    ticket.waiters.add(waiter);
    signal.addEventListener("abort", leave, { once: true });
    try {
      return await promise;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  /** Serves the tickets, one after the other. */
  async #work(): Promise<void> {
    await Promise.resolve(); // whoever made the first ticket waits for it by now
    for (let ticket = this.#tickets[0]; ticket; ticket = this.#tickets[0]) {
      let problem: unknown;
      let isDone = false;
      try {
        await this.#serve(ticket);
        isDone = true;
      } catch (error) {
        problem = error;
      }
      this.#tickets.shift();
      this.#draining.clear();
      // In one go: nobody can unload it before all who waited for it hold it.
      for (const waiter of ticket.waiters) {
        if (isDone) waiter.admit();
        else waiter.refuse(problem);
      }
      ticket.ended.resolve();
      this.#parts.changed(ticket.id);
    }
    this.#working = undefined; // not a moment later: a ticket that came in between would wait for nobody
  }

  async #serve(ticket: Ticket): Promise<void> {
    const { id, abort } = ticket;
    const { keepAlive, stopSignal } = this.#parts;
    const signal = AbortSignal.any([abort.signal, stopSignal]);
    this.#failed.delete(id);
    try {
      if (ticket.work) {
        await this.#makeRoom(id, await ticket.needs(), signal);
        ticket.isLoading = true;
        await ticket.work();
        return;
      }
      if (this.#isOutdated(id)) await this.#discard(id, signal);
      if (this.#isReady(id)) return; // room was found without it
      const served = this.#parts.served().find((one) => one.id === id);
      await this.#makeRoom(
        id,
        served ? heldBytes(served.model.info) : await ticket.needs(),
        signal,
      );
      await this.#load(ticket, served, signal);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (ticket.work) throw error; // whoever works says it in words of its own
      const known = error instanceof ApiError ? error : loadFailed(id, error);
      this.#failed.set(id, known.message);
      throw known;
    } finally {
      if (!keepAlive.isLoaded(id) && !this.#isServed(id)) this.#versions.delete(id);
    }
  }

  /** Closes a model that is to be opened in another way, when nobody uses it. */
  async #discard(id: string, signal: AbortSignal): Promise<void> {
    const { keepAlive } = this.#parts;
    this.#draining.add(id);
    while (keepAlive.users(id) > 0) await keepAlive.someIdle(signal);
    const old = this.#parts.served().find((one) => one.id === id);
    this.#parts.remove(id);
    this.#versions.delete(id);
    if (old) this.#opened.delete(old.model);
    await old?.model.dispose();
  }

  /** Opens the model, or loads it again. Where memory turns out to be short, one more leaves. */
  async #load(ticket: Ticket, served: ServedModel | undefined, signal: AbortSignal): Promise<void> {
    const { id } = ticket;
    const { keepAlive } = this.#parts;
    ticket.isLoading = true;
    for (let tries = 0; ; tries++) {
      try {
        if (served) return await keepAlive.load(id);
        const onProgress: TaskOptions["onProgress"] = (progress) => {
          Object.assign(ticket, progress);
          this.#parts.changed(id);
        };
        const model = await this.#open(id, { signal, onProgress });
        signal.throwIfAborted(); // dispose() closes it
        return await this.#serveOpened(id, model);
      } catch (error) {
        const idle = error instanceof MemoryError ? this.#leaving(id).find(isIdle) : undefined;
        if (!idle || tries >= mostTries) throw error;
        await this.#drop(idle, signal);
      }
    }
  }

  async #serveOpened(id: string, model: Model): Promise<void> {
    const entry = (await this.#parts.onDemand?.list().catch(() => []))?.find(
      (one) => one.id === id,
    );
    this.#parts.add({
      id,
      model,
      created: Math.floor(this.#parts.time() / 1000),
      file: entry?.file,
      aliases: entry?.aliases,
    });
  }

  /** Models besides this one that could leave: the least recently used first, idle ones before all others. */
  #leaving(id: string): Held[] {
    return this.#held(id)
      .filter(({ isPinned }) => !isPinned)
      .toSorted((a, b) => Number(isIdle(b)) - Number(isIdle(a)) || a.used - b.used);
  }

  /** What is in memory besides this model. */
  #held(id: string): Held[] {
    const { keepAlive, onDemand, served } = this.#parts;
    return served()
      .filter((one) => one.id !== id && keepAlive.isLoaded(one.id))
      .map((one) => ({
        id: one.id,
        bytes: heldBytes(one.model.info),
        isPinned: onDemand?.preset(one.id)?.isPinned ?? false,
        users: keepAlive.users(one.id),
        used: keepAlive.lastUse(one.id),
      }));
  }

  async #makeRoom(id: string, needs: number, signal: AbortSignal): Promise<void> {
    const { limits, keepAlive } = this.#parts;
    const atFirst = limits.freeBytes?.() ?? Infinity;
    let left = 0; // bytes of those that have left: the system may say so later
    for (;;) {
      signal.throwIfAborted();
      const held = this.#held(id);
      const leaving = this.#leaving(id);
      const sum = (all: readonly Held[]): number =>
        all.reduce((bytes, one) => bytes + one.bytes, 0);
      const total = sum(held);
      const free =
        limits.bytes === undefined
          ? Math.max(limits.freeBytes?.() ?? Infinity, atFirst + left)
          : limits.bytes - total;
      if (held.length < limits.models && needs <= free) return;
      const isCount = held.length - leaving.length >= limits.models;
      if (isCount || needs > free + sum(leaving)) {
        throw noRoom(id, { needs, free, held, limits, isCount });
      }
      const [first] = leaving;
      if (first && isIdle(first)) {
        if (await this.#drop(first, signal)) left += first.bytes;
      } else {
        // The next to leave takes no more requests until it has.
        if (first) this.#draining.add(first.id);
        await keepAlive.someIdle(signal);
      }
    }
  }

  /** Whether an idle model has left. */
  async #drop({ id }: Held, signal: AbortSignal): Promise<boolean> {
    this.#draining.add(id);
    if (await this.#parts.keepAlive.unload(id)) return true;
    await pause(RETRY_MS, signal); // it was asked for its status
    signal.throwIfAborted();
    return false;
  }
}

function isIdle({ users }: Held): boolean {
  return users === 0;
}
