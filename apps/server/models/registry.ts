// The registry of models: which are in memory, who uses them, who waits for them, and when they leave. A request holds the model that
// it names until it is answered; one that is not in memory is loaded first, and others leave to make room for it, the least recently
// used first. A model whose time is over (Ollama's keep_alive, --keep-alive, --sleep-idle-seconds) is unloaded, and loaded again by the
// next request. Everything else in the server asks here; machine.ts has the states.

import { pause } from "../../../src/base/backoff.ts";
import type { Model } from "../../../src/index.ts";
import { stopping } from "../errors.ts";
import type { ServedModel } from "../served-model.ts";
import { loadFailed, loadStopped } from "./errors.ts";
import type { TaskOptions } from "./library.ts";
import { stateMemory } from "./lifecycle.ts";
import { type Load, ModelMachine, type Release, type Waiter } from "./machine.ts";
import type { OnDemandModels, PoolLimits } from "./on-demand.ts";

export type { Release } from "./machine.ts";

export interface RegistryParts {
  readonly onDemand: OnDemandModels | undefined;
  readonly limits: PoolLimits;
  /** How long a model stays after its last request, in ms, unless its preset or a request says otherwise; Infinity: until the end. */
  readonly keepMs: number;
  /** Requests that may wait for loads. */
  readonly mostWaiting: number;
  readonly stopSignal: AbortSignal;
  /** Something has happened to a model, or its load goes on. */
  changed(id: string): void;
  /** Milliseconds since 1970. */
  time(): number;
  log(line: string): void;
}

export interface LoadState {
  readonly value: "loaded" | "loading" | "unloaded";
  /** Why the last load failed. */
  readonly error?: string | undefined;
  /** While it is loaded. */
  readonly progress?: { readonly loadedBytes: number; readonly totalBytes: number } | undefined;
}

/** A load with options that a person has chosen. */
export interface ChosenLoad {
  needs(): Promise<number>;
  open(task: TaskOptions): Promise<Model>;
}

const RETRY_MS = 20;

export class ModelRegistry {
  readonly #parts: RegistryParts;
  readonly #machine: ModelMachine;
  /** Opened here, so disposed here. */
  readonly #opened = new Set<Model>();
  /** Called when a model was added or removed. */
  readonly #followers = new Set<() => void>();
  /** Called back at the next change of any model. */
  #waiting: (() => void)[] = [];

  constructor(parts: RegistryParts) {
    this.#parts = parts;
    const { onDemand, limits, mostWaiting, keepMs, time, log } = parts;
    this.#machine = new ModelMachine({
      ...{ limits, mostWaiting, time, log },
      needs: async (id) => (await onDemand?.needs(id)) ?? 0,
      open: async (id, load) => {
        if (!onDemand) throw loadFailed(id, "it is not served here any more");
        const model = await onDemand.open(id, this.#task(load));
        const list = await onDemand.list().catch(() => []);
        const entry = list.find((one) => one.id === id);
        return this.#served(id, model, { file: entry?.file, aliases: entry?.aliases });
      },
      dispose: async (model) => {
        this.#opened.delete(model);
        await model.dispose();
      },
      version: (id) => onDemand?.version(id) ?? "",
      isPinned: (id) => onDemand?.preset(id)?.isPinned ?? false,
      keepMs: (id) => onDemand?.preset(id)?.keepMs ?? keepMs,
      changed: (id) => {
        parts.changed(id);
        for (const wake of this.#waiting.splice(0)) wake();
      },
      listed: () => {
        for (const follower of this.#followers) follower();
      },
      after: (ms, run) => {
        const timer = setTimeout(run, ms);
        (timer as { unref?(): void }).unref?.(); // a server that ends does not wait for it
        return () => clearTimeout(timer);
      },
    });
    parts.stopSignal.addEventListener("abort", () => this.close(), { once: true });
  }

  get onDemand(): OnDemandModels | undefined {
    return this.#parts.onDemand;
  }

  get limits(): PoolLimits {
    return this.#parts.limits;
  }

  /** Calls back whenever a model is added or removed; returns what ends that. */
  follow(follower: () => void): () => void {
    this.#followers.add(follower);
    return () => void this.#followers.delete(follower);
  }

  /** The opened models, in memory or not. */
  list(): ServedModel[] {
    return this.#machine.entries().flatMap(({ resident }) => resident?.served ?? []);
  }

  get(id: string): ServedModel | undefined {
    return this.#machine.get(id)?.resident?.served;
  }

  state(id: string): LoadState {
    const load = this.#machine.loadOf(id);
    const { loadedBytes = 0, totalBytes = 0 } = load ?? {};
    const { state = "unloaded", reason } = this.#machine.get(id) ?? {};
    if (load || stateMemory[state] === "coming") {
      return { value: "loading", progress: { loadedBytes, totalBytes } };
    }
    const isIn = stateMemory[state] !== "none" && state !== "closing";
    if (isIn) return { value: "loaded" };
    return { value: "unloaded", error: state === "failed" ? reason : undefined };
  }

  /** A model that was opened elsewhere; whoever opened it closes it. */
  add(served: ServedModel): void {
    this.#machine.add(served);
  }

  /** A model in memory that stays there until it is released; loads it first if it must. */
  async hold(id: string, signal: AbortSignal): Promise<Release> {
    return await this.#admitted(signal, (waiter) => this.#machine.ask(id, waiter));
  }

  /** The same for whoever holds it already, or held it: it never waits for room that it takes itself. */
  async holdAgain(id: string, signal: AbortSignal): Promise<Release> {
    return await this.#admitted(signal, (waiter) => this.#machine.ask(id, waiter, true));
  }

  /** Starts a load that nobody waits for. */
  start(id: string): void {
    this.#machine.ask(id, { admit: (release) => release(), refuse: () => {} });
  }

  /** Opens a model with options of its own, in its turn. One of that name is used until then, and closed when it is used no more. */
  async choose(id: string, { needs, open }: ChosenLoad, signal: AbortSignal): Promise<void> {
    const opening = {
      needs,
      open: async (_: string, load: Load) => this.#served(id, await open(this.#task(load)), {}),
    };
    const release = await this.#admitted(signal, (waiter) => {
      this.#machine.choose(id, waiter, opening);
    });
    release();
  }

  /** Stops a load; those who wait for it are told. */
  async stop(id: string): Promise<void> {
    const load = this.#machine.loadOf(id);
    if (load) this.#machine.stop(load, loadStopped(id));
    await load?.ended.promise; // of this one only: it may be asked for again meanwhile
  }

  /** Unloads a model that nobody uses; false: somebody does. */
  async unload(id: string): Promise<boolean> {
    const entry = this.#machine.get(id);
    if (!entry) return true;
    if (entry.state === "failed") this.#machine.send(id, "clear");
    for (let tries = 0; tries < 50; tries++) {
      if (entry.state === "idle") this.#machine.send(id, "leave");
      while (entry.leaving) await this.#change();
      if (stateMemory[entry.state] === "none" || stateMemory[entry.state] === "coming") return true;
      if (entry.state !== "idle") return false;
      await pause(RETRY_MS);
    }
    return false;
  }

  /** Closes a model when nobody uses it any more: its files are about to go. */
  async forget(id: string): Promise<void> {
    const entry = this.#machine.get(id);
    if (!entry) return;
    if (stateMemory[entry.state] === "coming") await this.stop(id);
    while (entry.leaving || stateMemory[entry.state] === "coming") await this.#change();
    const { resident } = entry;
    if (resident) this.#machine.send(id, "forget");
    else if (entry.state === "failed") this.#machine.send(id, "clear");
    await resident?.closed.promise;
  }

  /** Somebody who does not hold the model computes with it soon, which loads it. */
  touch(id: string): void {
    if (this.get(id)) this.#machine.send(id, "touched");
  }

  /** From this request on, the model stays for so long after each. */
  keep(id: string, keepMs: number): void {
    const entry = this.#machine.get(id);
    if (!entry?.resident) return;
    entry.keepMs = keepMs;
    if (entry.state === "idle") this.#machine.send(id, "touched");
  }

  /** When the model is unloaded, in ms since 1970; Infinity: it stays. */
  expiresAt(id: string): number {
    const entry = this.#machine.get(id);
    if (!entry?.resident) return Infinity;
    return entry.resident.users > 0 ? this.#parts.time() + entry.keepMs : entry.expiresAt;
  }

  /** Stops all loads, and begins no other; nothing is unloaded any more. */
  close(): void {
    this.#machine.close(stopping());
  }

  /** Closes the models that were opened here. */
  async dispose(): Promise<void> {
    this.close();
    await Promise.all(this.#machine.loads.map(({ ended }) => ended.promise));
    await Promise.all([...this.#opened].map((model) => model.dispose()));
  }

  async #admitted(signal: AbortSignal, ask: (waiter: Waiter) => void): Promise<Release> {
    signal.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Release>();
    const waiter: Waiter = { admit: resolve, refuse: reject };
    const leave = (): void => this.#machine.leave(waiter, signal.reason);
    signal.addEventListener("abort", leave, { once: true });
    try {
      ask(waiter);
      return await promise;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  #task(load: Load): TaskOptions {
    const { signal } = load.abort;
    return {
      signal,
      onProgress: (progress) => {
        Object.assign(load, progress);
        this.#parts.changed(load.id);
      },
    };
  }

  #served(id: string, model: Model, more: Pick<ServedModel, "file" | "aliases">): ServedModel {
    this.#opened.add(model);
    return { id, model, created: Math.floor(this.#parts.time() / 1000), ...more };
  }

  async #change(): Promise<void> {
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}
