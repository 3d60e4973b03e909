// How long models stay in memory after their last request: Ollama's keep_alive, --keep-alive of `lantern serve` and llama.cpp's
// --sleep-idle-seconds. A model whose time is over is unloaded, and stays in the list of served ones: the next request loads it again.

import * as z from "zod";
import { keepAliveText, keepMsOf } from "../base/durations.ts";
import { messageOf } from "../base/errors.ts";
import type { Model } from "../index.ts";

/** How long a model stays after its last request, in milliseconds; Infinity: until the server ends. */
export type KeepMs = number;

/** Clocks and timers, for tests. */
export interface KeepAliveParts {
  /** Whether a model never leaves by itself, whatever its time. */
  isPinned?(id: string): boolean;
  /** A model has left memory. */
  left?(id: string): void;
  /** Milliseconds since 1970. */
  time(): number;
  log(line: string): void;
}

interface Kept {
  readonly model: Model;
  keepMs: KeepMs;
  /** Requests that compute now. */
  users: number;
  /** When it is unloaded, in ms since 1970; Infinity: never. */
  expiresAt: number;
  /** A counter of uses: the smallest was used longest ago. */
  used: number;
  /** false: it was unloaded, and nobody has asked for it since. */
  isLoaded: boolean;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** Between looking a model up and computing with it, a request may take so long before the model is loaded twice. */
const LOOKED_UP_MS = 5000;
/** After a try to unload a model that was just asked for its status. */
const RETRY_MS = 200;
/** The longest that a timer takes. */
const MOST_TIMER_MS: number = 2 ** 31 - 1;

export class KeepAlive {
  readonly #defaultMs: KeepMs;
  readonly #parts: KeepAliveParts;
  readonly #kept = new Map<string, Kept>();
  #uses = 0;
  #isClosed = false;
  /** Those that wait until some model is used no more. */
  #waiting: (() => void)[] = [];

  constructor(defaultMs: KeepMs, parts: KeepAliveParts) {
    this.#defaultMs = defaultMs;
    this.#parts = parts;
  }

  /** From now on this model stays as long as the server's default says. */
  add(id: string, model: Model, keepMs: KeepMs = this.#defaultMs): void {
    this.remove(id);
    const kept: Kept = {
      ...{ model, keepMs, users: 0, expiresAt: 0, timer: undefined },
      ...{ used: ++this.#uses, isLoaded: true },
    };
    this.#kept.set(id, kept);
    this.#stay(id, kept, kept.keepMs);
  }

  remove(id: string): void {
    clearTimeout(this.#kept.get(id)?.timer);
    this.#kept.delete(id);
    this.#wake();
  }

  /** Whether it is in memory. */
  isLoaded(id: string): boolean {
    return this.#kept.get(id)?.isLoaded ?? false;
  }

  /** Requests that use it now. */
  users(id: string): number {
    return this.#kept.get(id)?.users ?? 0;
  }

  /** When it was last used, as a counter. */
  lastUse(id: string): number {
    return this.#kept.get(id)?.used ?? 0;
  }

  /** Loads it again after it was unloaded. */
  async load(id: string): Promise<void> {
    const kept = this.#kept.get(id);
    if (!kept) return;
    await kept.model.load();
    kept.isLoaded = true;
    this.touch(id);
  }

  /** Resolves when some model is used no more, or is gone. */
  async someIdle(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const leave = (): void => reject(signal.reason as Error);
    signal.addEventListener("abort", leave, { once: true });
    this.#waiting.push(resolve);
    try {
      await promise;
    } finally {
      signal.removeEventListener("abort", leave);
      this.#waiting = this.#waiting.filter((wake) => wake !== resolve);
    }
  }

  #wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** From this request on, the model of that name stays for so long after each. */
  set(id: string, keepMs: KeepMs): void {
    const kept = this.#kept.get(id);
    if (!kept) return;
    kept.keepMs = keepMs;
    if (kept.isLoaded) this.touch(id);
  }

  /** A request has asked for the model, and computes with it soon. */
  touch(id: string): void {
    const kept = this.#kept.get(id);
    if (!kept) return;
    kept.isLoaded = true; // what asks a model that was unloaded loads it
    if (kept.users === 0) this.#stay(id, kept, Math.max(kept.keepMs, LOOKED_UP_MS));
  }

  /** A request computes with the model until the returned function is called. */
  use(id: string): () => void {
    const kept = this.#kept.get(id);
    if (!kept) return () => {};
    kept.users++;
    kept.used = ++this.#uses;
    kept.isLoaded = true;
    clearTimeout(kept.timer);
    let isUsed = true;
    return () => {
      if (!isUsed) return;
      isUsed = false;
      kept.users--;
      if (kept.users > 0) return;
      if (this.#kept.get(id) === kept) this.#stay(id, kept, kept.keepMs);
      this.#wake();
    };
  }

  /** When the model is unloaded, in ms since 1970; Infinity: it stays. */
  expiresAt(id: string): number {
    const kept = this.#kept.get(id);
    if (!kept) return Infinity;
    return kept.users > 0 ? this.#parts.time() + kept.keepMs : kept.expiresAt;
  }

  /** Unloads it now, or as soon as nothing computes with it. Whether it is out of memory now. */
  async unload(id: string): Promise<boolean> {
    const kept = this.#kept.get(id);
    if (kept?.isLoaded && kept.users === 0) await this.#unload(id, kept);
    return !this.isLoaded(id);
  }

  /** From now on nothing is unloaded. */
  close(): void {
    this.#isClosed = true;
    for (const { timer } of this.#kept.values()) clearTimeout(timer);
  }

  #stay(id: string, kept: Kept, ms: number): void {
    clearTimeout(kept.timer);
    kept.expiresAt = this.#parts.time() + ms;
    if (this.#parts.isPinned?.(id)) kept.expiresAt = Infinity;
    if (kept.expiresAt === Infinity || !kept.isLoaded || this.#isClosed) return;
    kept.timer = setTimeout(() => this.#end(id, kept), Math.min(ms, MOST_TIMER_MS));
    (kept.timer as { unref?(): void }).unref?.(); // a server that ends does not wait for it
  }

  #end(id: string, kept: Kept): void {
    if (this.#kept.get(id) !== kept || kept.users > 0) return;
    const left = kept.expiresAt - this.#parts.time();
    if (left > RETRY_MS) this.#stay(id, kept, left);
    else void this.#unload(id, kept);
  }

  async #unload(id: string, kept: Kept): Promise<void> {
    try {
      if (await kept.model.unload()) {
        kept.isLoaded = kept.users > 0; // who came meanwhile has loaded it
        this.#parts.left?.(id);
        return;
      }
    } catch (error) {
      if (this.#isClosed) return; // the model was disposed of behind the server that ended
      this.#parts.log(`${id} could not be unloaded: ${messageOf(error)}`);
      return;
    }
    if (kept.users === 0 && this.#kept.get(id) === kept) this.#stay(id, kept, RETRY_MS);
  }
}

/** Ollama's field, in milliseconds. */
export const keepAliveField: z.ZodType<KeepMs> = z.unknown().transform((value, issues) => {
  const ms = keepMsOf(value);
  if (ms !== undefined) return ms;
  const got = JSON.stringify(value)?.slice(0, 100);
  issues.addIssue(`got ${got}, expected ${keepAliveText}`);
  return z.NEVER;
});
