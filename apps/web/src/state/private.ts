// The state of the private switch: whether the next conversation is private. It is not stored: a person decides it anew
// for each.

import { Store, useStore } from "./store.ts";

const next: Store<boolean> = new Store(false);

export const useNextPrivate = (): boolean => useStore(next, (is) => is);
export const isNextPrivate = (): boolean => next.value;
export const setNextPrivate = (is: boolean): void => next.set(is);
