// A value that components watch. This is all of the app's state management: a store holds one immutable value, `set`
// replaces it, `useStore` renders again when it (or the part that a selector takes from it) changes.

import { useLayoutEffect, useState } from "preact/hooks";

export class Store<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(next: T): void {
    if (Object.is(next, this.#value)) return;
    this.#value = next;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Replaces some fields. */
  patch(part: Partial<T>): void {
    this.set({ ...this.#value, ...part });
  }

  watch(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Resolves when the value matches `isSo`, perhaps at once. */
  async until(isSo: (value: T) => boolean): Promise<void> {
    if (isSo(this.#value)) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const stop = this.watch(() => {
      if (isSo(this.#value)) resolve();
    });
    await promise;
    stop();
  }
}

export function useStore<T>(store: Store<T>): T;
export function useStore<T, Part>(store: Store<T>, select: (value: T) => Part): Part;
export function useStore<T>(store: Store<T>, select: (value: T) => unknown = (v) => v): unknown {
  const [, render] = useState(0);
  const now = select(store.value);
  useLayoutEffect(() => {
    let seen = now;
    const look = (): void => {
      const next = select(store.value);
      if (Object.is(next, seen)) return;
      seen = next;
      render((count) => count + 1);
    };
    look(); // it may have changed since rendering
    return store.watch(look);
  });
  return now;
}
